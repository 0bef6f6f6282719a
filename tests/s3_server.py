"""An S3 server, moto's, in a process of its own, that can be away, or ignore the conditions of writes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.free_ports import free_port
from tests.limits import HANG_SECS

REGION = "us-east-1"
ROOT = Path(__file__).parents[1]


class S3Server:
    """A running server; its switches are files in `folder`."""

    def __init__(self, port: int, folder: Path, host: str = "127.0.0.1") -> None:
        self.command = (sys.executable, "-m", "tests.s3_server", host, str(port), str(folder))
        self.port, self.folder = port, folder
        self.url = f"http://{host}:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",  # else the client itself retries for 6 s
        }

    @contextmanager
    def switched(self, name: str) -> Iterator[None]:
        """Answer 503 while `name` is ``away``, 403 for ``forbidden``; ``careless`` ignores conditions."""
        switch = self.folder / name
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """Run a server with the bucket ``bucket``; its switches are in `folder`."""
    server = S3Server(free_port(), folder)
    process = subprocess.Popen(server.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield server
    finally:
        process.kill()
        process.communicate(timeout=HANG_SECS)


def serve(host: str, port: int, folder: Path) -> None:
    """Serve until killed."""
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server
    from werkzeug.wrappers import Response

    moto = DomainDispatcherApplication(create_backend_app)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        for name, status, code in (("away", 503, "ServiceUnavailable"), ("forbidden", 403, "InvalidAccessKeyId")):
            if (folder / name).exists():
                error = f"<Error><Code>{code}</Code><Message>it is switched {name}</Message></Error>"
                return Response(error, status, content_type="application/xml")(environ, start_response)
        if (folder / "careless").exists():
            environ.pop("HTTP_IF_MATCH", None)
            environ.pop("HTTP_IF_NONE_MATCH", None)
        return moto(environ, start_response)

    server = make_server(host, port, answer, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {"endpoint_url": f"http://{host}:{port}", "region_name": REGION}
    boto3.client("s3", aws_access_key_id="a", aws_secret_access_key="b", **options).create_bucket(Bucket="bucket")
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

"""The certificate of a manually started cluster: for its owner, and as long as the cluster lives."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from psflow.ps_runtime.cluster.certificate_file import (
    announced,
    announced_model_dir,
    kept_certificate,
    read_certificate,
)
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.errors import StorageError, UsageError
from psflow.ps_runtime.specs.task_facts import ClusterSpec

NEW, FIRST, SECOND = (new_pem() for _ in range(3))


def test_the_certificate_is_for_its_owner_alone_and_for_the_time_of_the_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a" / "tls"
    assert read_certificate(str(folder.parent)) is None
    with kept_certificate(str(folder.parent), NEW):
        file = folder / "cluster.pem"
        assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file)] == [0o700, 0o600]
        assert read_certificate(str(folder.parent)) == NEW
    assert not folder.exists()


def test_what_a_killed_chief_has_left_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    folder.mkdir(mode=0o755)
    (folder / "cluster.pem").write_text("old")
    with kept_certificate(str(tmp_path), NEW):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert read_certificate(str(tmp_path)) == NEW
        (folder / "cluster.pem").write_text("of the next chief")
    assert (folder / "cluster.pem").read_text() == "of the next chief"


def test_a_certificate_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with kept_certificate(str(tmp_path), NEW):
        (tmp_path / "tls" / "cluster.pem").chmod(0o640)
        with pytest.raises(UsageError, match=r"cluster\.pem holds a key, but other users may read it \(mode 0640\)"):
            read_certificate(str(tmp_path))


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_certificate_that_this_user_may_not_read_is_refused(tmp_path: Path) -> None:
    with kept_certificate(str(tmp_path), NEW):
        (tmp_path / "tls" / "cluster.pem").chmod(0)
        with pytest.raises(UsageError, match=r"cluster\.pem cannot be read: Permission denied; start all processes as"):
            read_certificate(str(tmp_path))


def test_two_chiefs_do_not_take_away_the_certificate_of_each_other(tmp_path: Path) -> None:
    with kept_certificate(str(tmp_path), FIRST):
        words = f"^another chief of model_dir {tmp_path} runs on this host; stop it, or choose another model_dir$"
        with (
            pytest.raises(UsageError, match=words),
            kept_certificate(str(tmp_path), SECOND),
        ):
            pass
        assert read_certificate(str(tmp_path)) == FIRST
    with kept_certificate(str(tmp_path), SECOND):
        assert read_certificate(str(tmp_path)) == SECOND
    assert list(tmp_path.iterdir()) == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (tmp_path / "tls").symlink_to(elsewhere)
    with (
        pytest.raises(UsageError, match=r"tls should be a directory of this user, not a link"),
        kept_certificate(str(tmp_path), NEW),
    ):
        pass
    assert (stat.S_IMODE(elsewhere.stat().st_mode), list(elsewhere.iterdir())) == (0o755, [])
    (tmp_path / "tls").unlink()
    (tmp_path / "tls").mkdir()
    (elsewhere / "key").touch(0o600)
    (tmp_path / "tls" / "cluster.pem").symlink_to(elsewhere / "key")
    with pytest.raises(UsageError, match=r"cluster\.pem cannot be read: it is a symbolic link; start all processes as"):
        read_certificate(str(tmp_path))


def test_a_certificate_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kept_certificate(str(tmp_path), NEW):
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)
        with pytest.raises(
            UsageError, match=rf"cluster\.pem is of user {other - 1}, and this process of {other}; start"
        ):
            read_certificate(str(tmp_path))
        with (
            pytest.raises(UsageError, match=r"tls should be a directory of this user"),
            kept_certificate(str(tmp_path), "of another"),
        ):
            pass


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tls").touch()
    words = rf"^{tmp_path}/tls should be a directory of this user, not a link, because it holds a key; remove it$"
    with pytest.raises(UsageError, match=words), kept_certificate(str(tmp_path), NEW):
        pass


def test_a_model_dir_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = r"^.*/file/model could not be written: "
    with pytest.raises(StorageError, match=words), kept_certificate(str(tmp_path / "file" / "model"), NEW):
        pytest.fail("there is no model_dir")


def test_a_certificate_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    os.mkfifo(tmp_path / "tls" / "cluster.pem", 0o600)
    with pytest.raises(UsageError, match=r"cluster\.pem should be a file that the chief has written; remove it, and"):
        read_certificate(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"old", b"\xff\xfe", NEW.partition("-----END CERTIFICATE")[0].encode()])
def test_a_file_without_a_certificate_is_refused(content: bytes, tmp_path: Path) -> None:
    with kept_certificate(str(tmp_path), NEW):
        (tmp_path / "tls" / "cluster.pem").write_bytes(content)
        with pytest.raises(
            UsageError, match=r"cluster\.pem should hold a key and its certificate; remove it, and start"
        ):
            read_certificate(str(tmp_path))


def test_without_a_home_directory_a_chief_announces_nothing_and_a_join_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    cluster = ClusterSpec({"chief": ("a:1",), "ps": ("b:1",)})
    entered = False
    with announced(cluster, "/shared/model"):
        entered = True
    assert entered
    with pytest.raises(UsageError, match="this user has no home directory; pass the model_dir to join"):
        announced_model_dir(cluster)


def test_an_announcement_that_cannot_be_written_or_read_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".psflow").write_text("a file")
    cluster = ClusterSpec({"chief": ("a:1",), "ps": ("b:1",)})
    words = "cannot be read: Not a directory; pass the model_dir to join"
    with announced(cluster, "/shared/model"), pytest.raises(UsageError, match=words):
        announced_model_dir(cluster)

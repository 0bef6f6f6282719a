"""A switch in user space, whose cables are slow, long or lose frames: ``python switch.py JSON``.

It carries 900 Mbit/s of TCP in frames of 1,500 bytes, and 1 Gbit/s in frames of 9,000.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["TUN", "Direction", "Link", "hardware_address"]

TUN = "/dev/net/tun"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
HEADER_BYTES = 14
UNSEEN_BYTES = 24
"""Of each frame on a cable: preamble, checksum and the gap before the next one."""
NUM_READ_AT_ONCE = 32
"""So that one host does not keep the others waiting."""


@dataclass(frozen=True)
class Link:
    """What each cable of a switch is like, the same in both directions."""

    delay_secs: float = 0.0
    """From one host to another, one way."""
    loss: float = 0.0
    """Probability that a frame does not arrive."""
    bits_per_sec: float = 1e12
    queue_bytes: int = 1 << 20
    """What waits for its turn at one end of a cable; more is dropped."""
    mtu: int = 1500

    def command(self, names: list[str]) -> tuple[str, ...]:
        """Return the command that is a switch with a TAP device of each of these names."""
        return (sys.executable, __file__, json.dumps({"names": names, **asdict(self)}))


class Direction:
    """One direction of a cable: frames leave a queue at a rate, and arrive later or never."""

    def __init__(self, link: Link, seed: int) -> None:
        self.link = link
        self.secs_per_byte = 8 / link.bits_per_sec
        self.queue_secs = link.queue_bytes * self.secs_per_byte
        self.free_at = 0.0
        self.frames: deque[tuple[float, bytes]] = deque()
        self.random = random.Random(seed)

    def send(self, frame: bytes, now: float) -> None:
        """Queue a frame; drop it if the queue is full."""
        start = max(now, self.free_at)
        if start - now > self.queue_secs:
            return
        self.free_at = start + (len(frame) + UNSEEN_BYTES) * self.secs_per_byte
        if self.random.random() >= self.link.loss:
            self.frames.append((self.free_at + self.link.delay_secs, frame))

    def arrived(self, now: float) -> Iterator[bytes]:
        """Yield the frames that are there by now, and forget them."""
        while self.frames and self.frames[0][0] <= now:
            yield self.frames.popleft()[1]


class Port:
    """The TAP device of a host, and the two directions of its cable; what a frame meets, it meets on the way up."""

    def __init__(self, index: int, name: str, link: Link) -> None:
        self.address = bytes.fromhex(hardware_address(index).replace(":", ""))
        self.file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
        self.up = Direction(link, index)
        self.down = Direction(replace(link, delay_secs=0.0, loss=0.0), index)
        self.frame_bytes = link.mtu + HEADER_BYTES

    def read(self, now: float) -> None:
        """Take the frames that the host has sent."""
        with suppress(BlockingIOError):
            for _ in range(NUM_READ_AT_ONCE):
                self.up.send(os.read(self.file, self.frame_bytes), now)

    def write(self, now: float) -> None:
        """Hand the frames to the host that have arrived; one that is not up yet gets none."""
        for frame in self.down.arrived(now):
            with suppress(OSError):
                os.write(self.file, frame)


def hardware_address(index: int) -> str:
    """Return the Ethernet address that the host at a port is to have."""
    return f"02:00:00:00:00:{index + 1:02x}"


def forward(ports: list[Port]) -> None:
    """Carry frames between the hosts for ever."""
    files = {port.file: port for port in ports}
    by_address = {port.address: port for port in ports}
    while True:
        dues = [way.frames[0][0] for port in ports for way in (port.up, port.down) if way.frames]
        wait_secs = max(0.0, min(dues) - time.monotonic()) if dues else None
        readable, _, _ = select.select(list(files), [], [], wait_secs)
        now = time.monotonic()
        for file in readable:
            files[file].read(now)
        for port in ports:
            for frame in port.up.arrived(now):
                there = by_address.get(frame[:6])
                for target in (there,) if there else (other for other in ports if other is not port):
                    target.down.send(frame, now)
        for port in ports:
            port.write(now)


def main(names: list[str], **link: Any) -> None:
    """Open a port for each name, and serve."""
    ports = [Port(index, name, Link(**link)) for index, name in enumerate(names)]
    print("ready", flush=True)
    forward(ports)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

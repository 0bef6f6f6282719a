"""Writes every frame that passes a switch to a file: ``python sniffer.py FILE`` in the namespace of the switch."""

from __future__ import annotations

import socket
import sys

ALL_PROTOCOLS = 3
"""ETH_P_ALL of Linux."""

if __name__ == "__main__":
    listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    with open(sys.argv[1], "wb", buffering=0) as file:
        while True:
            file.write(listening.recv(1 << 16))

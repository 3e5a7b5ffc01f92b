"""Stands in for an emulator that does not answer: the method's name says when. It has no graphs, inputs or outputs."""

from __future__ import annotations

import itertools
import socket
import sys
import time

from edgewright.backends.qualcomm.messages import PeerClosed, receive, send


def main(descriptor: int) -> None:
    line, hangs, numbers = socket.socket(fileno=descriptor), "", itertools.count()
    while True:
        try:
            header, _ = receive(line, 1 << 20)
        except PeerClosed:
            return
        hangs = header.get("method", hangs)
        while hangs == f"hang at {header['do']}":
            time.sleep(1)
        send(line, {"id": next(numbers), "build": "v2.51.0", "inputs": [], "outputs": []})


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The NPU beside a simulated board: runs the command streams that the board's application passes on."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgewright.backends.ethos_u import npu
from tests.bare_metal.boards import FOLDER

_FAST_SCRATCH = 1 << 20


@contextlib.contextmanager
def simulated_npu(folder: Path, calls: int) -> Iterator[tuple[str, ...]]:
    """What an image is linked with so that its NPU is the simulator here, for so many calls."""
    pipes = [folder / name for name in ("npu_request", "npu_reply")]
    for pipe in pipes:
        os.mkfifo(pipe)
    served = threading.Thread(target=_serve, args=(*pipes, calls), daemon=True)
    served.start()
    macros = [f'-D{name}="{pipe}"' for name, pipe in zip(("NPU_REQUEST", "NPU_REPLY"), pipes, strict=True)]
    yield str(FOLDER / "npu_hook.c"), *macros
    served.join(timeout=10)
    assert not served.is_alive(), "the board called its NPU less often"


def _serve(request: Path, reply: Path, calls: int) -> None:
    for _ in range(calls):
        with request.open("rb") as source:
            sizes = struct.unpack("<3I", source.read(12))
            commands, weights, scratch = (source.read(size) for size in sizes)
        memory = np.frombuffer(bytearray(scratch), np.uint8)
        npu.run(npu.decode(commands), weights=weights, scratch=memory, fast_scratch=np.zeros(_FAST_SCRATCH, np.uint8))
        with reply.open("wb") as target:
            target.write(memory.tobytes())

"""The process of one model: ``python -m tests.zoo.worker NAME TARGET...``.

Writes lines of JSON: ``{"start": target}`` before each target, then its row. A crash leaves the last start unanswered.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import llvmlite.binding  # noqa: F401  (with LLVM in this process, few kernels compile here: a process for each takes longer)

from tests.zoo.judge import Row, Subject, first_line, is_finite, judge, make_subject, untyped
from tests.zoo.targets import TARGETS


def work(name: str, targets: Sequence[str], lines: TextIO) -> None:
    _tell(lines, {"start": targets[0]})
    subject, facts = _prepared(name)
    if subject is None:
        for target in targets:
            _tell(lines, {"target": target, **facts})
        return
    gc.collect()
    gc.freeze()  # libraries and the model, which collections would look through again and again
    for target in targets:
        _tell(lines, {"start": target})
        begin = time.process_time()
        row = judge(subject, TARGETS[target])
        _free_memory()
        _tell(lines, {"target": target, **facts, **row, "seconds": round(time.process_time() - begin, 1)})


def _free_memory() -> None:
    """Return the memory of one target to the system before the next: graphs are cycles, and the C library keeps what is
    freed between tensors that remain."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # other C libraries
        ctypes.CDLL(None).malloc_trim(0)


def _prepared(name: str) -> tuple[Subject | None, Row]:
    """The exported model with its inputs, and what to note of it; or the row that holds for all targets."""
    import edgewright as ew
    from edgewright.errors import EdgewrightError
    from tests.zoo.network import ModelError, run_eager
    from tests.zoo.sources import build

    try:
        network = build(name)
        if not is_finite([[x.detach().float().numpy() for x in run_eager(network.module, network.calls[0])]]):
            raise ModelError("random weights give numbers that are not finite")
    except ModelError as error:
        return None, {"status": "model", "message": first_line(error)}
    facts: Row = {"parameters": sum(p.numel() for p in network.module.parameters())}
    if network.note:
        facts["input"] = network.note
    try:
        subject = make_subject(ew.export(network.module, tuple(network.calls[0])), network.calls)
    except EdgewrightError as error:
        return None, {**facts, "status": "export", "error": type(error).__name__, "message": first_line(error)}
    except Exception as error:
        return None, {**facts, **untyped(error)}
    return subject, facts


def _tell(lines: TextIO, content: Row) -> None:
    lines.write(json.dumps(content) + "\n")
    lines.flush()


def _follow_parent(parent: int) -> None:
    """A run that is killed takes its worker with it: nobody would read the rows."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main(arguments: Sequence[str]) -> int:
    """Rows go to what was standard output; whatever libraries print goes to standard error. Kernels of many models are
    cached where they do not evict those of others."""
    os.environ.setdefault("EDGEWRIGHT_CACHE", str(Path.home() / ".cache" / "edgewright-zoo"))
    warnings.simplefilter("ignore")
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    with os.fdopen(os.dup(1), "w") as lines:
        os.dup2(2, 1)
        work(arguments[0], arguments[1:], lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

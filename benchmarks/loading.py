"""How long it takes to load a MobileNetV2 program by path, here and in the stock runtime, in the same run.

The file is the 14 MB portable program that stock ExecuTorch 1.5.1 writes, with its weights set to zero (loading
does not read them). Stock's minimal verification checks next to nothing; "consistency" is its full one.
"""

from __future__ import annotations

import gc
import lzma
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from edgewright.formats import read_program
from edgewright.runtime import Runtime

PACKED = Path(__file__).parent.parent / "tests" / "golden" / "mv2_portable_zeros.pte.xz"


def measure(action: Callable[[], object], rounds: int = 30) -> float:
    """The median time of a call in milliseconds, after warming up."""
    action()
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        action()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def stock_loaders(path: str) -> dict[str, Callable[[], object]]:
    try:
        from executorch.runtime import Runtime as Stock
        from executorch.runtime import Verification
    except ImportError:
        return {}
    runtime = Stock.get()
    return {
        "stock load_program, consistency": lambda: runtime.load_program(
            path, verification=Verification.InternalConsistency
        ),
        "stock load_program, minimal": lambda: runtime.load_program(path, verification=Verification.Minimal),
        "stock load_program + load_method": lambda: runtime.load_program(path).load_method("forward"),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mv2.pte"
        path.write_bytes(lzma.decompress(PACKED.read_bytes()))
        runtime = Runtime.get()
        rows = {
            "edgewright read_program (full verification)": measure(lambda: read_program(path)),
            "edgewright load_program + load_method": measure(lambda: runtime.load_program(path).load_method("forward")),
        }
        rows |= {name: measure(action) for name, action in stock_loaders(str(path)).items()}
        base = next(iter(rows.values()))
        table = Table("loading MobileNetV2, 14 MB", "ms", "ratio")
        for name, spent in rows.items():
            table.add_row(name, f"{spent:.2f}", f"{spent / base:.2f}")
        Console().print(table)


if __name__ == "__main__":
    main()

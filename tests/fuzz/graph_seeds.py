"""Valid device graphs of every dialect, small ones, as files: what mutations start with."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from edgewright.backends.ethos_u.dialect.table import TOSA
from edgewright.backends.nxp.dialect.table import TFLITE
from edgewright.backends.qualcomm.dialect.table import QNN
from edgewright.backends.samsung.dialect.table import ENN
from edgewright.backends.xnnpack.blob import Blob, write_blob
from edgewright.backends.xnnpack.blob_writer import to_blob
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.core.table import CORE_OPS
from edgewright.ir.graph import Graph
from tests.backends.node_cases import EXACT, FLOAT, ROWS

DIALECTS = ("core", "xnnpack", "tosa", "tflite", "qnn", "enn")
_VENDORS = {"tosa": "ethos_u", "tflite": "nxp", "qnn": "qualcomm", "enn": "samsung"}
_TABLES = {
    "core": [kind.removeprefix("core.") for kind in CORE_OPS],
    "tosa": TOSA,
    "tflite": TFLITE,
    "qnn": QNN,
    "enn": ENN,
}
_LARGEST = 8192  # bytes of a seed: larger ones take longer and reach no more code


def operators(dialect: str) -> list[str]:
    """The kinds of operators of a dialect, as graphs have them."""
    return sorted(f"{dialect}.{kind}" for kind in _TABLES[dialect])


def seeds(dialect: str, samples: int = 3, stride: int = 1) -> list[bytes]:
    """Files of graphs, the same ones in the same order every time. ``samples``: of each operator and element type.
    ``stride``: of the operators; 5 takes every fifth."""
    found = _nodes() if dialect in ("core", "xnnpack") else _rows(dialect, samples, stride)
    write = _blob if dialect == "xnnpack" else _twin
    files = dict.fromkeys(write(graph) for graph in found)
    return [data for data in files if len(data) <= _LARGEST]


def stored_seeds(dialect: str, folder: Path) -> list[bytes]:
    """The same, from a file in ``folder`` if they were made before: lowering them takes longer than fuzzing a while."""
    sources = (Path(__file__), *sorted(Path(__file__).parents[1].joinpath("engine", "coverage").glob("*.py")))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    path = folder / f"{dialect}-{digest}.zip"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        with zipfile.ZipFile(unfinished, "w") as archive:
            for index, data in enumerate(seeds(dialect)):
                archive.writestr(f"{index:05}", data)
        unfinished.rename(path)
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist()]


def _nodes() -> Iterator[Graph]:
    for cases in (FLOAT, EXACT, ROWS):
        yield from (make()[0] for make in cases.values())


def _rows(dialect: str, samples: int, stride: int) -> Iterator[Graph]:
    from tests.engine.coverage.vendors import VENDORS  # needs every backend's compiler

    vendor = VENDORS[_VENDORS[dialect]]
    for op in list(vendor.rows)[::stride]:
        for held in vendor.types.values():
            lowered = (vendor.lower(case) for case in vendor.samples(op, held))
            yield from islice((graph for graph in lowered if graph is not None), samples)


def _twin(graph: Graph) -> bytes:
    return write_twin({"": graph})


def _blob(graph: Graph) -> bytes:
    """A blob that holds its constants, as older ones do: what is outside of it is another file."""
    blob, named = to_blob(graph)
    constants = bytearray(blob.constants)
    for entry in blob.graph.constant_data or ():
        if entry.named_key is not None:
            constants += bytes(-len(constants) % 16)
            entry.offset, entry.size = len(constants), len(named[entry.named_key])
            constants += named[entry.named_key]
            entry.named_key = None
    return write_blob(Blob(blob.graph, bytes(constants)))

"""Write arrays: reproducible ``.npz`` files, and raw files in the format of the device runners."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.files import write_file

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest zip timestamp: output must not depend on the clock


def npz_bytes(arrays: Mapping[str, Any], *, compress: bool = False) -> bytes:
    """An ``.npz`` of ``arrays``. Scalars and text become 0-d arrays; dtypes unknown to numpy become raw bytes."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, value in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            entry.compress_type = method
            archive.writestr(entry, npy_bytes(value))
    return buffer.getvalue()


def npy_bytes(value: Any) -> bytes:
    """One array as ``.npy``. A null output is an empty array."""
    buffer = io.BytesIO()
    array = np.asarray([] if value is None else value)
    if array.dtype.kind == "V" and array.dtype.names is None:  # bfloat16 and 8-bit floats have no numpy dtype name
        array = array.view(f"V{array.dtype.itemsize}")
    npy_format: Any = np.lib.format
    npy_format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def save_arrays(path: str, runs: Sequence[Sequence[Any]]) -> int:
    """Write the outputs of every run: ``out0, out1, ...`` of one, ``0.out0, 0.out1, 1.out0, ...`` of several."""
    if path.endswith(".npy"):
        if len(runs) != 1 or len(runs[0]) != 1:
            count = sum(map(len, runs))
            raise UsageError("--output", "an .npy holds one array; name an .npz", value=f"{count} outputs")
        return write_file(path, [npy_bytes(runs[0][0])])
    single = len(runs) == 1
    named = {f"out{i}" if single else f"{n}.out{i}": value for n, run in enumerate(runs) for i, value in enumerate(run)}
    return write_file(path, [npz_bytes(named)])


def save_raw(folder: Path, inference: int, outputs: Sequence[Any]) -> None:
    """Write ``output_<inference>_<index>.raw``: the bytes of each output, row by row."""
    for index, value in enumerate(outputs):
        path = folder / f"output_{inference}_{index}.raw"
        write_file(path, [raw_bytes(value)], durable=False)  # there may be thousands


def raw_bytes(value: Any) -> bytes:
    """The bytes of an output, row by row."""
    array = np.ascontiguousarray([] if value is None else value)
    return array.tobytes() if array.dtype.kind != "U" else str(value).encode()

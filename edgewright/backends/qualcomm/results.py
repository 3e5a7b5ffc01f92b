"""Reads the output files of the runner on a phone: one per output and inference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.errors import VendorError
from edgewright.ir.dtypes import parse_dtype
from edgewright.runtime.metadata import MethodMetadata, TensorInfo


def read_outputs(files: Sequence[Path], metadata: MethodMetadata, runs: int = 1) -> list[list[Any]]:
    """Read the outputs of every inference; raises if the number or size of files is wrong."""
    infos = [info for info in metadata.outputs if isinstance(info, TensorInfo)]
    if len(files) != runs * len(infos):
        remedy = "Its log says where it stopped; the program on the phone must be the one that was pushed."
        rule = f"must write {runs * len(infos)} outputs: {len(infos)} for each of {runs} inferences"
        raise VendorError("runner", rule, value=len(files), remedy=remedy)
    arrays = [_array(path, infos[i % len(infos)]) for i, path in enumerate(files)]
    return [arrays[n * len(infos) : (n + 1) * len(infos)] for n in range(runs)]


def _array(path: Path, info: TensorInfo) -> Any:
    dtype, data = parse_dtype(info.dtype), path.read_bytes()
    shape = [info.shape[dim] for dim in info.dim_order]
    expected = int(np.prod(shape)) * dtype.itemsize
    if len(data) != expected:
        rule = f"must have the {expected} bytes of {list(info.shape)} {info.dtype}"
        remedy = "The runner was interrupted, or the phone is full: run it again."
        raise VendorError(path.name, rule, value=len(data), remedy=remedy)
    return np.frombuffer(data, dtype).reshape(shape).transpose(np.argsort(info.dim_order))

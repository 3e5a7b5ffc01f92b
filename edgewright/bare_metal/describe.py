"""What firmware must know about a program, as plain data: read by the C header, the manifest and the budget."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgewright._version import VERSION
from edgewright.bare_metal.pools import Pools, find_method, measure_pools
from edgewright.errors import UsageError
from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.pte_reader import read_program
from edgewright.ir.dtypes import ScalarType
from edgewright.program import manifest

RUNTIME = "1.5"  # the release of ExecuTorch whose structures the pool sizes are computed from
_QUANTIZED_TYPES = ("int8", "uint8", "int16", "uint16", "int32")


@dataclass(frozen=True)
class Port:
    """An input or output of the method. ``scale`` and ``zero_point``: of integers that stand for real numbers, if the
    file records them; otherwise None."""

    name: str
    type: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    bytes: int
    planned: bool  # in planned memory; otherwise the application provides a buffer
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True)
class Description:
    """A method of a file, for firmware."""

    file: bytes
    plan: schema.ExecutionPlan
    pools: Pools
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    operators: tuple[str, ...]
    build: Mapping[str, Any]  # the file's own manifest

    @property
    def crc32(self) -> int:
        return zlib.crc32(self.file)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.file).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The content of ``manifest.json``."""
        pools = self.pools
        return {
            "edgewright": VERSION,
            "executorch": RUNTIME,
            "method": self.plan.name,
            "pte": {"bytes": len(self.file), "alignment": 16, "crc32": f"{self.crc32:08x}", "sha256": self.sha256},
            "pools": {
                "planned_memory": list(pools.planned),
                "method_allocator": {
                    **{f"pointers_{bits}": count for bits, count in pools.method.items()},
                    "exact": pools.method_exact,
                },
                "temp_allocator": {f"pointers_{bits}": count for bits, count in pools.temp.items()},
                "npu_scratch": pools.scratch,
                "npu_fast_scratch": {"bytes": pools.fast_scratch, "exact": pools.fast_scratch_exact},
            },
            "inputs": [asdict(port) for port in self.inputs],
            "outputs": [asdict(port) for port in self.outputs],
            "operators": list(self.operators),
            "delegates": [{"target": d.target, **d.parts} for d in pools.delegates],
            "build": self.build,
        }


def describe(path: str, method: str | None = None) -> Description:
    """Read a file and describe one of its methods."""
    with_bytes = read_program(path)
    plan = find_method(with_bytes, method, path)
    pools = measure_pools(with_bytes, plan)
    with open(path, "rb") as file:  # read_program has opened it before, so that errors are typed
        content = file.read()
    build = manifest.read(with_bytes) or {}
    operators = tuple(sorted({operator.key for operator in plan.operators or ()}))
    return Description(content, plan, pools, *read_ports(with_bytes, plan), operators, build)


def read_ports(program: schema.Program, plan: schema.ExecutionPlan) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """The inputs and the outputs of a method, all of them tensors."""
    quantized = (manifest.read(program) or {}).get("quantized_io")
    quantized = quantized if isinstance(quantized, Mapping) else {}
    inputs, outputs = (
        tuple(_port(side, n, plan.values[i], quantized) for n, i in enumerate(indices))
        for side, indices in (("input", plan.inputs), ("output", plan.outputs))
    )
    return inputs, outputs


def _port(side: str, number: int, value: schema.Value, quantized: Mapping[str, Any]) -> Port:
    assert isinstance(value, schema.Tensor)  # measure_pools has checked it
    name = f"{side}{number}"
    dtype = ScalarType(value.scalar_type).name.lower()
    scale, zero_point = _parameters(name, dtype, quantized.get(name))
    planned = value.allocation_info is not None or value.data_buffer_idx != 0
    size = tensor_bytes(value.scalar_type, value.sizes)
    return Port(name, dtype, tuple(value.sizes), tuple(value.dim_order), size, planned, scale, zero_point)


def _parameters(name: str, dtype: str, recorded: Any) -> tuple[float | None, int | None]:
    """Scale and zero point as the manifest has them; it is not trusted."""
    if recorded is None:
        return None, None
    if not isinstance(recorded, Mapping) or recorded.get("type") != dtype or dtype not in _QUANTIZED_TYPES:
        raise UsageError(f"manifest: {name}", f"must have the type of the tensor, {dtype}", value=recorded)
    scale, zero_point = recorded.get("scale"), recorded.get("zero_point")
    if not isinstance(scale, float) or not 0 < scale < 1e30 or not isinstance(zero_point, int):
        raise UsageError(f"manifest: {name}", "must have a positive scale and an integer zero point", value=recorded)
    return scale, zero_point

"""Vela's performance estimates of a compiled delegate. Labelled as estimates: they are not measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.ethos_u.tosa_file import is_result, result_names
from edgewright.ir.graph import Graph, Op
from edgewright.ir.layer_names import layer_name
from edgewright.lowering.estimates import MEMORIES, describe

LABEL = "Vela's estimate"
_REPORTED = {name.replace("_", ""): name for name in MEMORIES}  # memory names of the in-process compiler


@dataclass(frozen=True)
class LayerEstimate:
    """One NPU operation, named after its output tensor."""

    name: str
    operator: str
    cycles: int
    npu_cycles: int
    macs: int


@dataclass(frozen=True)
class Estimates:
    """Vela's estimates: cycles, memory in bytes by kind, weight compression."""

    target: str
    system_config: str
    memory_mode: str
    clock: float  # Hz
    macs_per_cycle: int
    total_cycles: int
    npu_cycles: int
    macs: int
    memory: Mapping[str, int]
    original_weights: int  # bytes
    encoded_weights: int
    layers: Sequence[LayerEstimate] = ()

    @property
    def inferences_per_second(self) -> float:
        return self.clock / self.total_cycles if self.total_cycles else 0.0

    @property
    def mac_utilisation(self) -> float:
        """MACs over the MACs that the cycles allow."""
        max_macs = self.total_cycles * self.macs_per_cycle
        return self.macs / max_macs if max_macs else 0.0

    def utilization(self, layer: LayerEstimate) -> float:
        """MAC utilization of a layer."""
        return layer.macs / (layer.cycles * self.macs_per_cycle) if layer.cycles else 0.0

    def summary(self) -> dict[str, Any]:
        """Totals as plain data, deterministic, for manifests."""
        return {
            "basis": LABEL,
            "target": self.target,
            "system": self.system_config,
            "memory_mode": self.memory_mode,
            "cycles": self.total_cycles,
            "npu_cycles": self.npu_cycles,
            "inferences_per_second": round(self.inferences_per_second, 3),
            "macs": self.macs,
            "mac_utilisation": round(self.mac_utilisation, 4),
            "memory": {name: self.memory[name] for name in sorted(self.memory)},
            "weights": {"original": self.original_weights, "encoded": self.encoded_weights},
        }

    def to_dict(self) -> dict[str, Any]:
        """Totals and layers, for reports."""
        layers = [{**asdict(layer), "mac_utilisation": round(self.utilization(layer), 4)} for layer in self.layers]
        return {**self.summary(), "layers": layers}

    def __str__(self) -> str:
        return describe(self.summary())


def from_report(report: Any, database: Any, spec: EthosUCompileSpec, config: Mapping[str, Any]) -> Estimates:
    """Estimates of the in-process compiler. ``config``: clock, and whether constants share the arena's SRAM."""
    memory = {}
    for name, used in report.memories.items():
        key = _REPORTED.get(str(name).lower())
        if key is not None:
            memory[key] = int(used.peakUsage)
    constants = int(report.readOnlyPeakUsage)
    if config["constants_in_sram"] and constants and "on_chip_flash" not in memory:
        memory["on_chip_flash"] = constants  # Vela reports constants in the arena's SRAM under this name
        memory["sram"] = memory.get("sram", 0) - constants
    return Estimates(
        **_target(spec, config["clock"]),
        total_cycles=int(report.totalCycles),
        npu_cycles=int(report.npuCycles),
        macs=int(report.macCount),
        memory={name: count for name, count in sorted(memory.items()) if count},
        original_weights=int(report.originalWeights),
        encoded_weights=int(report.encodedWeights),
        layers=_layers(database),
    )


def _target(spec: EthosUCompileSpec, clock: float) -> dict[str, Any]:
    return {
        "target": spec.target,
        "system_config": spec.system_config,
        "memory_mode": spec.memory_mode,
        "clock": clock,
        "macs_per_cycle": spec.macs,
    }


def name_layers(estimates: Estimates, device: Graph) -> Estimates:
    """The estimates with layers named after the user's modules, which Vela does not know: it names its operations after
    tensors of the TOSA graph."""
    pairs = zip(estimates.layers, source_ops(estimates.layers, device), strict=True)
    return replace(estimates, layers=tuple(replace(layer, name=layer_name(op)) for layer, op in pairs))


def source_ops(layers: Sequence[LayerEstimate], device: Graph) -> list[Op]:
    """The operator of the TOSA graph behind every operation. One that Vela adds itself belongs to the operation before,
    if its tensor is not of the graph."""
    by_result = dict(zip(result_names(device), device.ops, strict=True))
    ops, last = [], device.ops[0]
    for layer in layers:
        last = by_result.get(layer.name, last)
        ops.append(last)
    return ops


def _layers(database: Any) -> tuple[LayerEstimate, ...]:
    """Vela's operations. Those that it adds for an operator of the graph are named after the operator's result."""
    rows = table_rows(database, "perf")
    results = {row["source_id"]: row["name"] for row in rows if is_result(row["name"])}
    return tuple(
        LayerEstimate(
            row["name"] if is_result(row["name"]) else results.get(row["source_id"], row["name"]),
            row["operator"],
            *(int(row[name] or 0) for name in ("op_cycles", "npu_cycles", "mac_count")),
        )
        for row in rows
    )


def table_rows(database: Any, name: str) -> list[dict[str, str]]:
    """The rows of a table of Vela's database; none if it has no such table."""
    table = database.tables.get(name) if database is not None else None
    return [] if table is None else [dict(zip(table.header, row, strict=False)) for row in table.data]


def from_table(row: Mapping[str, str], spec: EthosUCompileSpec, layers: Sequence[Mapping[str, str]] = ()) -> Estimates:
    """Estimates from the CSV files of Vela's command line."""
    used = {name: round(float(row[f"{name}_memory_used"]) * 1024) for name in MEMORIES}
    return Estimates(
        **_target(spec, float(row["core_clock"])),
        total_cycles=round(float(row["cycles_total"])),
        npu_cycles=round(float(row["cycles_npu"])),
        macs=round(float(row["nn_macs"])),
        memory={name: count for name, count in sorted(used.items()) if count},
        original_weights=round(float(row["total_original_weights"])),
        encoded_weights=round(float(row["total_npu_encoded_weights"])),
        layers=tuple(
            LayerEstimate(r["Name"], r["NNG Operator"], int(r["Op Cycles"]), int(r["NPU"]), int(r["MAC Count"]))
            for r in layers
        ),
    )

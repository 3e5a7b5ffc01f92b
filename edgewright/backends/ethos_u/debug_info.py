"""Debugging information: the node, module and line of the model that each TOSA operator of a delegate comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgewright.backends.ethos_u.target import DebugMode, EthosUCompileSpec
from edgewright.backends.ethos_u.vela import tosa_file_name
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.ir.graph import Graph, Op


def save_debug_info(device: Graph, tosa: bytes, spec: EthosUCompileSpec) -> None:
    """Write a JSON file beside the delegate's TOSA graph, with the fields that ExecuTorch's has."""
    folder = Path(_folder(spec))
    folder.mkdir(parents=True, exist_ok=True)
    events = [_event(number, op) for number, op in enumerate(device.ops)]
    name = Path(tosa_file_name(tosa)).with_suffix(".debug.json")
    write_file(folder / name, [json.dumps(events, indent=1).encode()])


def locations(device: Graph, spec: EthosUCompileSpec) -> list[str] | None:
    """What the TOSA graph has as the location of every operator; None for graphs without locations."""
    if spec.debug_mode is not DebugMode.TOSA:
        return None
    _folder(spec)
    events = [_event(number, op) for number, op in enumerate(device.ops)]
    return [json.dumps({name: value for name, value in e.items() if name != "tosa_info"}) for e in events]


def _folder(spec: EthosUCompileSpec) -> str:
    if spec.intermediates is None:
        remedy = "Call dump_intermediate_artifacts_to(folder) as well."
        raise UsageError("dump_debug_info", "needs a folder to write to", remedy=remedy)
    return spec.intermediates


def _event(number: int, op: Op) -> dict[str, Any]:
    origin = op.origin
    results = [value.name for value in op.outputs if value is not None]
    return {
        "event_id": number,
        "aten_info": {"node_name": origin.node, "exported_nodes": list(origin.exported_nodes)},
        "tosa_info": {"node_name": ", ".join(results), "operator_name": op.kind.removeprefix("tosa.")},
        "torch_info": {
            "stack_trace": [f"{file}:{line} {function}: {code}" for file, line, function, code in origin.frames],
            "nn_module_stack": origin.module,
        },
    }

"""Tests that every backend gets: each row on the op table's own samples, offered one operator at a time.

What is offered is taken, or refused by a rule that says why; lowering never fails; and the program gives what eager
torch gives, whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from edgewright.backends import find_partitioner
from edgewright.backends.registry import find_backend
from edgewright.ir.aten.ops import OPS
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.ir.aten.harness import to_array
from tests.ir.aten.overload_calls import Call, calls_of, overload_named, torch_argument

DEVICES = {"ethos_u": "ethos-u55-128", "qualcomm": "SM8650"}  # for backends that have more than one
HALF = ("qualcomm", "samsung")  # backends that compute real numbers in 16 bits
PICKS = ("topk",)  # operators that compute nothing: of numbers made equal they may pick another


@dataclass
class Outcome:
    """What became of a row's samples."""

    seen: int = 0  # offered under the row's name; some forms are decomposed, or dropped, before
    taken: int = 0
    refused: list[str] = field(default_factory=list)


class One(torch.nn.Module):
    """A call of one operator. The first tensor is computed, so that it is no constant; the others are weights."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.op = overload_named(call.overload)
        schema = {a.name: a for a in self.op._schema.arguments}
        self.given = {n: torch_argument(v, str(schema[n].real_type)) for n, v in call.args.items()}
        if not isinstance(self.given.get("memory_format"), torch.memory_format):
            self.given.pop("memory_format", None)  # a number, as schemas write their default
        self.by_name = {n for n in self.given if schema[n].kwarg_only}
        self.names = [n for n, v in self.given.items() if isinstance(v, torch.Tensor)]
        for name in self.names[1:]:
            self.register_buffer(f"held_{name}", self.given[name])
        self.first = self.given[self.names[0]]

    def forward(self, x: torch.Tensor) -> Any:
        held = {n: getattr(self, f"held_{n}") for n in self.names[1:]}
        given = {**self.given, **held, self.names[0]: x}
        positional = [v for n, v in given.items() if n not in self.by_name]
        return self.op(*positional, **{n: given[n] for n in self.by_name})


def samples(op: str, most: int = 4) -> list[Call]:
    """Calls of an operator whose first tensor is of single precision and not empty."""
    found = [c for overload in OPS[op].aten for c in calls_of(OPS[op], overload)]
    return [c for c in found if _usable(c)][:most]


def _usable(call: Call) -> bool:
    tensors = [v for v in call.args.values() if isinstance(v, np.ndarray)]
    lists = any(isinstance(v, list) and any(isinstance(i, np.ndarray) for i in v) for v in call.args.values())
    return bool(tensors) and not lists and all(str(t.dtype) == "float32" and t.size for t in tensors)


def check_row(backend: str, op: str, also: Callable[[bytes, Any, Any], None] | None = None) -> Outcome:
    """Run a row's samples; ``also`` is given program, input and eager outputs of every one that was taken."""
    outcome = Outcome()
    for call in samples(op):
        if backend in HALF and op not in PICKS:
            call = replace(call, args={n: moderate(v) for n, v in call.args.items()})
        module = One(call).eval()
        exported = torch.export.export(module, (module.first,), strict=False)
        made_by = find_partitioner(backend)
        make = made_by.for_simulation if find_backend(backend).simulates else made_by.for_target
        partitioner = make(DEVICES.get(backend))
        program = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch()
        report = partitioner.reports["forward"]
        outcome.seen += any(v.operator == op for v in report.verdicts)
        outcome.taken += any(v.operator == op for v in report.delegated)
        outcome.refused += [why for v in report.rejected for why in v.rejections]
        wanted = _results(module(module.first))
        loaded = Runtime.get().load_program(program.buffer, twin=program.twin)
        made = loaded.load_method("forward").execute([to_array(module.first)])
        _close(made, wanted, half=backend in HALF)
        if also is not None and report.delegated:
            also(program.buffer, to_array(module.first), wanted)
    return outcome


def _results(result: Any) -> list[Any]:
    return [to_array(r) for r in (result if isinstance(result, tuple | list) else [result])]


def moderate(given: Any) -> Any:
    """Numbers that 16 bits can tell apart: none that are not finite, huge or all but zero."""
    if isinstance(given, list):
        return [moderate(g) for g in given]
    if not isinstance(given, np.ndarray) or given.dtype != np.float32:
        return given
    clipped = np.clip(np.nan_to_num(given), -8, 8)
    return np.where(np.abs(clipped) < 1e-3, np.float32(0), clipped).astype(np.float32)


def _close(got: Any, wanted: list[Any], half: bool) -> None:
    for ours, eager in zip(got, wanted, strict=True):
        a, b = np.asarray(ours, np.float64), np.asarray(eager, np.float64)
        if half and eager.dtype == np.float32:
            known = np.isfinite(b)
            np.testing.assert_allclose(a[known], b[known], 1e-2, 1e-2 * np.abs(b[known]).max(initial=1e-3))
        else:
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)

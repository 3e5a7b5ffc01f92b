"""The self-check of ``compile``: a file has to compute what the graph it was lowered from computes.

The graph (fake-quantized, or in floating point) runs in eager torch, the file in this machine's runtime, on the same
inputs. They differ by rounding, so the bound is rounding: the graph runs again with every stored integer moved by up to
a step at random, and every real number by a few units in the last place (``Rounding`` of the backend). No output may be
further away than the furthest of those runs, or than one step of its own. What is further is searched layer by layer,
each computed from the file's own inputs to it, where nothing has added up yet; the first that is not within its own
rounding is the error's subject. If all are, rounding it was: it flipped a decision that the model makes.

Where rounding alone may change a quarter of an output, as in deep networks that were never trained, outputs say
nothing: then layers are compared like this even if outputs are within the bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.api.checked_method import Lower, Subject, run_file
from edgewright.api.compile_report import Check
from edgewright.api.data import Call
from edgewright.api.deviation import Output, compared_values, decibels
from edgewright.api.graph_interpreter import Reference
from edgewright.api.locate import Fault, faulty_layer, locate
from edgewright.api.shape_samples import calls_at_bounds
from edgewright.backends.registry import load_backend
from edgewright.backends.table import Rounding
from edgewright.engine.isa import BF16_VARIABLE
from edgewright.errors import MiscompileError, MissingError

_CALLS = 2
_TELLING = 12.0  # dB: a quarter of an output; where rounding alone may change more, outputs tell nothing of layers
_CHAOTIC = 2.0  # how far beyond the sampled bound an output may be where rounding alone changes that much
_BFLOAT16 = 2.0**-8  # what products are rounded to where the user asks for it


def check_program(
    program: Any, sources: Mapping[str, ExportedProgram], cases: Mapping[str, Sequence[Sequence[Call]]], lower: Lower,
    rounding: Rounding, name: str = "program",
) -> Check:  # fmt: skip
    """Compare every method of a finished program with the graph it was lowered from; raise if rounding does not
    explain a difference. ``cases``: for each method, sequences of calls that follow each other."""
    found = Check()
    for method, exported in sources.items():
        reference = Reference(exported)
        why = reference.unsupported or ("" if cases.get(method) else "there are no example inputs")
        if why:
            found = found.joined(Check(skipped=f"{method}: {why}"))
            continue
        subject = Subject(name, method, reference, rounding, lower)
        for sequence in cases[method]:
            found = found.joined(_check_sequence(subject, program, [call.leaves() for call in sequence]))
            if found.skipped:
                break
    return found


def check_cases(exported: ExportedProgram, example: Call, calls: Sequence[Call]) -> list[list[Call]]:
    """What to check a program on: two inputs of the user's, or the example; and the bounds of dynamic shapes."""
    first = list(calls[:_CALLS]) or [example, *_varied(example)]
    return [first, *([call] for call in calls_at_bounds(exported, first[-1]).values())]


def _varied(example: Call) -> list[Call]:
    """The example with random numbers where it has one number throughout, of which any layer makes the same."""
    leaves, spec = pytree.tree_flatten((example.args, example.kwargs))
    random = torch.Generator().manual_seed(0)
    made = [torch.rand(x.shape, generator=random).to(x.dtype) if _is_uniform(x) else x for x in leaves]
    return [Call(*pytree.tree_unflatten(made, spec))] if any(map(_is_uniform, leaves)) else []


def _is_uniform(value: Any) -> bool:
    real = isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1
    return real and bool((value == value.reshape(-1)[0]).all())


def rounding_of(backends: Iterable[str]) -> Rounding:
    """What holds for programs that these backends share, with kernels of the CPU between."""
    found = Rounding(real=_BFLOAT16) if os.environ.get(BF16_VARIABLE) == "1" else Rounding()
    for name in backends:
        found = found.joined(load_backend(name).rounding)
    return found


def _check_sequence(subject: Subject, program: Any, calls: Sequence[Sequence[Any]]) -> Check:
    try:
        expected = subject.reference.run(calls)
    except Exception as error:  # torch's: an operator without a kernel for the CPU, say
        told = str(error).strip().split("\n")[0]
        return Check(skipped=f"{subject.method}: eager torch cannot run it: {type(error).__name__}: {told}")
    try:
        actual = run_file(program, subject.method, calls)
    except MissingError as error:
        return Check(skipped=f"{subject.method}: {error.subject}: {error.rule}")
    outputs = compared(subject, expected, actual, [])
    if any(o.exceeds for o in outputs):
        outputs = compared(subject, expected, actual, noisy_runs(subject, calls))
    note = ""
    if any(o.exceeds for o in outputs):
        note = _explained(subject, calls, actual, outputs)
    elif any(_is_loose(o) for o in outputs):
        note = _layer_by_layer(subject, calls, actual, outputs)
    numbers = [o for o in outputs if not o.discrete]
    if not numbers:
        return Check(len(calls), note=note)
    worst = min(numbers, key=lambda o: o.sqnr)
    return Check(len(calls), worst.sqnr, decibels(worst.expected, worst.allowed), note=note)


def noisy_runs(subject: Subject, calls: Sequence[Sequence[Any]]) -> list[list[list[Any]]]:
    """The graph's outputs under several draws of rounding errors."""
    return [subject.reference.run(calls, [noise] * len(calls)) for noise in subject.noises()]


def compared(
    subject: Subject, expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], noisy: Sequence[Any]
) -> list[Output]:
    """Every output of every call beside what the file gave for it."""
    nodes, found = subject.reference.outputs, []
    for call, (wanted, given) in enumerate(zip(expected, actual, strict=True)):
        if len(wanted) != len(given):
            raise _miscompiled(subject, "must return as many outputs as its graph", f"{len(given)} of {len(wanted)}")
        for i, (node, e, a) in enumerate(zip(nodes, wanted, given, strict=True)):
            drawn = [run[call][i] for run in noisy]
            found.append(compared_values(node, e, a, drawn, subject.rounding, subject.slack))
    return found


def _explained(
    subject: Subject, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], outputs: Sequence[Output]
) -> str:
    """Raise, naming the layer where a difference starts; or say why rounding explains it nevertheless."""
    beyond = [o for o in outputs if o.exceeds]
    if all(_is_loose(o) and o.distance <= _CHAOTIC * o.allowed for o in beyond):
        # A network that amplifies rounding this much has no bound on accumulated errors, only on those of each layer.
        fault = faulty_layer(subject, calls, actual)
        if fault is None:
            return "rounding alone changes a quarter of the outputs or more; every layer is within its own rounding"
        raise _faulty(subject, fault, beyond)
    fault = locate(subject, calls, actual)
    if fault is None:
        return "rounding flips decisions of the model: outputs differ by more than it, no layer does"
    raise _faulty(subject, fault, beyond)


def _is_loose(output: Output) -> bool:
    return not output.discrete and decibels(output.expected, output.allowed) < _TELLING


def _layer_by_layer(
    subject: Subject, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], outputs: Sequence[Output]
) -> str:
    """Raise if a layer computes something else than its graph, which the outputs would not show."""
    fault = faulty_layer(subject, calls, actual)
    if fault is not None:
        raise _faulty(subject, fault, [o for o in outputs if not o.discrete])
    return ""


def _faulty(subject: Subject, fault: Fault, outputs: Sequence[Output]) -> MiscompileError:
    error = _miscompiled(subject, fault.rule, fault.value)
    worst = min(outputs, key=lambda o: o.sqnr)
    error.layer, error.module, error.sqnr = fault.layer, fault.module, worst.sqnr
    return error


def _miscompiled(subject: Subject, rule: str, value: str) -> MiscompileError:
    remedy = (
        "Nothing was written: such a file gives wrong numbers. Please report it with the model; until then keep the "
        "layer in another precision with a recipe, or compile without this check (check=False, --no-check)."
    )
    return MiscompileError(f"{subject.name}: method {subject.method!r}", rule, value=value, remedy=remedy)

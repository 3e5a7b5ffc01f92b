"""Self-check of ``compile``: translation validation of a file against the graph it was lowered from."""

# The graph (fake-quantized or float) runs in eager torch, the file in the host runtime, on the same inputs. They round
# differently, so the bound is empirical: the graph runs again several times with every stored integer perturbed by up
# to a step at random, and every float by a few units in the last place (the backend's ``Rounding``). No output may be
# further from the exact run than the furthest of these runs, or than one step of its own. If one is, ``locate``
# compares layer by layer, each computed from the file's inputs to it, where errors have not accumulated; the first
# layer outside its own bound is reported. If there is none, rounding has flipped a decision of the model (an argmax, a
# threshold). Where rounding alone may change a quarter of an output, as in deep untrained networks, outputs carry no
# information: then layers are compared even if the outputs are within the bound. (Checking each compilation instead of
# proving the compiler: Pnueli, Siegel and Singerman, "Translation Validation", TACAS 1998.)

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.api.checked_method import CheckedMethod, Lower, run_file
from edgewright.api.compile_report import Check
from edgewright.api.data import Call
from edgewright.api.deviation import OutputDeviation, compare_values, decibels
from edgewright.api.graph_interpreter import GraphInterpreter
from edgewright.api.locate import Fault, faulty_layer, locate
from edgewright.api.shape_samples import calls_at_bounds
from edgewright.backends.registry import load_backend
from edgewright.backends.table import Rounding
from edgewright.engine.isa import BF16_VARIABLE
from edgewright.errors import EdgewrightError, HalfOverflowError, MiscompileError, MissingError

_MAX_CALLS = 2
_INFORMATIVE = 12.0  # dB: noise of a quarter of an output; with more noise from rounding alone, layers are compared
_CHAOTIC = 2.0  # factor by which an output may exceed the sampled bound where rounding alone changes that much
_BFLOAT16 = 2.0**-8  # relative rounding error of products in bfloat16, which users may enable


def check_program(
    program: Any, sources: Mapping[str, ExportedProgram], cases: Mapping[str, Sequence[Sequence[Call]]], lower: Lower,
    rounding: Rounding, name: str = "program",
) -> Check:  # fmt: skip
    """Compare every method of a finished program with the graph it was lowered from; raise if rounding does not
    explain a difference. ``cases``: for each method, sequences of consecutive calls."""
    result = Check()
    for method, exported in sources.items():
        reference = GraphInterpreter(exported)
        reason = reference.unsupported_reason or ("" if cases.get(method) else "there are no example inputs")
        if reason:
            result = result.merge(Check(skipped=f"{method}: {reason}"))
            continue
        subject = CheckedMethod(name, method, reference, rounding, lower)
        for sequence in cases[method]:
            result = result.merge(_check_sequence(subject, program, [call.leaves() for call in sequence]))
            if result.skipped:
                break
    return result


def check_cases(exported: ExportedProgram, example: Call, calls: Sequence[Call]) -> list[list[Call]]:
    """The inputs of the check: two of the user's inputs, or the example; and the bounds of dynamic shapes."""
    first = list(calls[:_MAX_CALLS]) or [example, *_randomize(example)]
    return [first, *([call] for call in calls_at_bounds(exported, first[-1]).values())]


def _randomize(example: Call) -> list[Call]:
    """The example with random contents where all elements are equal, since most faults do not show on these."""
    leaves, spec = pytree.tree_flatten((example.args, example.kwargs))
    random = torch.Generator().manual_seed(0)
    inputs = [torch.rand(x.shape, generator=random).to(x.dtype) if _is_uniform(x) else x for x in leaves]
    return [Call(*pytree.tree_unflatten(inputs, spec))] if any(map(_is_uniform, leaves)) else []


def _is_uniform(value: Any) -> bool:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1
    return is_float and bool((value == value.reshape(-1)[0]).all())


def rounding_of(backends: Iterable[str]) -> Rounding:
    """The rounding of programs partitioned between these backends and CPU kernels."""
    rounding = Rounding(real=_BFLOAT16) if os.environ.get(BF16_VARIABLE) == "1" else Rounding()
    for name in backends:
        rounding = rounding.merge(load_backend(name).rounding)
    return rounding


def _check_sequence(subject: CheckedMethod, program: Any, calls: Sequence[Sequence[Any]]) -> Check:
    try:
        expected = subject.reference.run(calls)
    except Exception as error:  # raised by torch: an operator without a CPU kernel, for example
        message = str(error).strip().split("\n")[0]
        return Check(skipped=f"{subject.method}: eager torch cannot run it: {type(error).__name__}: {message}")
    try:
        actual = run_file(program, subject.method, calls)
    except MissingError as error:
        return Check(skipped=f"{subject.method}: {error.subject}: {error.rule}")
    outputs = compare_outputs(subject, expected, actual, [])
    if any(o.exceeds for o in outputs):
        outputs = compare_outputs(subject, expected, actual, noisy_runs(subject, calls))
    note = ""
    if any(o.exceeds for o in outputs):
        note = _explain_or_raise(subject, calls, actual, outputs)
    elif any(_is_loose(o) for o in outputs):
        note = _check_layers(subject, calls, actual, outputs)
    numbers = [o for o in outputs if not o.discrete]
    if not numbers:
        return Check(len(calls), note=note)
    worst = min(numbers, key=lambda o: o.sqnr)
    return Check(len(calls), worst.sqnr, decibels(worst.expected, worst.allowed), note=note)


def noisy_runs(subject: CheckedMethod, calls: Sequence[Sequence[Any]]) -> list[list[list[Any]]]:
    """The graph's outputs under several random draws of rounding errors."""
    return [subject.reference.run(calls, [noise] * len(calls)) for noise in subject.noises()]


def compare_outputs(
    subject: CheckedMethod, expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], noisy: Sequence[Any]
) -> list[OutputDeviation]:
    """Compare every output of every call with the file's."""
    nodes, deviations = subject.reference.outputs, []
    for call, (expected_outputs, actual_outputs) in enumerate(zip(expected, actual, strict=True)):
        if len(expected_outputs) != len(actual_outputs):
            raise _miscompile_error(
                subject, "must return as many outputs as its graph", f"{len(actual_outputs)} of {len(expected_outputs)}"
            )
        for i, (node, e, a) in enumerate(zip(nodes, expected_outputs, actual_outputs, strict=True)):
            noisy_outputs = [run[call][i] for run in noisy]
            deviations.append(compare_values(node, e, a, noisy_outputs, subject.rounding, subject.slack))
    return deviations


def _explain_or_raise(
    subject: CheckedMethod,
    calls: Sequence[Sequence[Any]],
    actual: Sequence[Sequence[Any]],
    outputs: Sequence[OutputDeviation],
) -> str:
    """Raise, naming the first differing layer; or return a note why rounding explains the difference."""
    beyond = [o for o in outputs if o.exceeds]
    if all(_is_loose(o) and o.distance <= _CHAOTIC * o.allowed for o in beyond):
        # A network that amplifies rounding this much has no bound on accumulated errors, only on those of each layer.
        try:
            fault = faulty_layer(subject, calls, actual)
        except EdgewrightError:
            fault = locate(subject, calls, actual)  # one layer at a time
        if fault is None:
            return "rounding alone changes a quarter of the outputs or more; every layer is within its own rounding"
        raise _fault_error(subject, fault, beyond)
    fault = locate(subject, calls, actual)
    if fault is None:
        return "rounding flips decisions of the model: outputs differ by more than it, no layer does"
    raise _fault_error(subject, fault, beyond)


def _is_loose(output: OutputDeviation) -> bool:
    return not output.discrete and decibels(output.expected, output.allowed) < _INFORMATIVE


def _check_layers(
    subject: CheckedMethod,
    calls: Sequence[Sequence[Any]],
    actual: Sequence[Sequence[Any]],
    outputs: Sequence[OutputDeviation],
) -> str:
    """Raise if a layer differs from its graph, which the outputs would not show. Returns a note."""
    try:
        fault = faulty_layer(subject, calls, actual)
    except EdgewrightError as error:
        why = f"{error.subject}: {error.rule}"
        return f"rounding alone may change a quarter of the outputs, and layers cannot be compared: {why}"
    if fault is not None:
        raise _fault_error(subject, fault, [o for o in outputs if not o.discrete])
    return ""


def _fault_error(subject: CheckedMethod, fault: Fault, outputs: Sequence[OutputDeviation]) -> EdgewrightError:
    if fault.overflow:
        return _overflow_error(subject, fault)
    error = _miscompile_error(subject, fault.rule, fault.value)
    worst = min(outputs, key=lambda o: o.sqnr)
    error.layer, error.module, error.sqnr = fault.layer, fault.module, worst.sqnr
    return error


def _overflow_error(subject: CheckedMethod, fault: Fault) -> HalfOverflowError:
    remedy = (
        "Nothing was written: the device would return infinity or the largest number instead. Scale the model so that "
        "the layer's results are smaller (fold a factor into its weights, normalize its inputs), quantize it "
        "(quantize='int8' or 16-bit activations), or leave it on the CPU."
    )
    error = HalfOverflowError(
        f"{subject.name}: method {subject.method!r}", fault.rule, value=fault.value, remedy=remedy
    )
    error.layer, error.module = fault.layer, fault.module
    return error


def _miscompile_error(subject: CheckedMethod, rule: str, value: str) -> MiscompileError:
    remedy = (
        "Nothing was written: such a file gives wrong numbers. Please report it with the model; until then keep the "
        "layer in another precision with a recipe, or compile without this check (check=False, --no-check)."
    )
    return MiscompileError(f"{subject.name}: method {subject.method!r}", rule, value=value, remedy=remedy)

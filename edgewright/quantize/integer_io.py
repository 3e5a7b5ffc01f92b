"""Integer inputs and outputs: removes the quantize and dequantize operators at a program's boundary."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument

from edgewright.errors import UsageError
from edgewright.frontend.replace_graph import with_graph

_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default


@dataclass(frozen=True)
class IOQParams:
    """Quantization parameters of an input or output: ``real = scale * (stored - zero_point)``."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int
    dtype: torch.dtype


def integer_io(
    exported: ExportedProgram, inputs: Iterable[int] | None = None, outputs: Iterable[int] | None = None
) -> tuple[ExportedProgram, dict[str, IOQParams]]:
    """A quantized program with integer inputs and outputs, and their parameters by name (``input0``, ``output0``).

    ``inputs`` and ``outputs``: indices of the ones to convert; all by default.
    """
    module = copy.deepcopy(exported.graph_module)
    for old, new in zip(exported.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # copying renames nodes named after builtins
    parameters, renamed = strip_boundary_qdq(module.graph, exported.graph_signature, inputs, outputs)
    module.recompile()
    specs = [
        OutputSpec(s.kind, TensorArgument(renamed[i]), s.target) if i in renamed else s
        for i, s in enumerate(exported.graph_signature.output_specs)
    ]
    signature = ExportGraphSignature(exported.graph_signature.input_specs, specs)
    return with_graph(exported, module, signature), parameters


def strip_boundary_qdq(
    graph: fx.Graph, signature: ExportGraphSignature, inputs: Iterable[int] | None, outputs: Iterable[int] | None
) -> tuple[dict[str, IOQParams], dict[int, str]]:
    """``integer_io`` on a program's graph, in place; also returns the new names of outputs by index in the graph."""
    parameters: dict[str, IOQParams] = {}
    names = list(signature.user_inputs)
    for i in _checked_indices("input", inputs, len(names)):
        parameters[f"input{i}"] = _strip_quantize(graph, str(names[i]), i)
    results = [s for s in signature.output_specs if s.kind == OutputKind.USER_OUTPUT]
    renamed: dict[int, str] = {}
    for i in _checked_indices("output", outputs, len(results)):
        index = signature.output_specs.index(results[i])
        parameters[f"output{i}"], renamed[index] = _strip_dequantize(graph, index, i)
    graph.eliminate_dead_code()
    return parameters, renamed


def strip_all_boundary_qdq(graph: fx.Graph) -> dict[str, IOQParams]:
    """``integer_io`` on a graph without signature, in place: every quantized input and output, in order."""
    parameters: dict[str, IOQParams] = {}
    names = [n.name for n in graph.nodes if n.op == "placeholder" and any(u.target == _QUANTIZE for u in n.users)]
    for i, name in enumerate(names):
        parameters[f"input{i}"] = _strip_quantize(graph, name, i)
    output: Any = graph.output_node()
    indices = [i for i, r in enumerate(output.args[0]) if isinstance(r, fx.Node) and r.target == _DEQUANTIZE]
    for i, index in enumerate(indices):
        parameters[f"output{i}"], _ = _strip_dequantize(graph, index, i)
    if not parameters:
        raise _not_quantized("input", 0, [n for n in graph.nodes if n.op == "placeholder"])
    graph.eliminate_dead_code()
    return parameters


def _checked_indices(side: str, requested: Iterable[int] | None, count: int) -> list[int]:
    indices = list(range(count)) if requested is None else list(requested)
    bad = [i for i in indices if not isinstance(i, int) or not 0 <= i < count]
    if bad:
        raise UsageError(f"{side}s", f"must be indices from 0 to {count - 1}", value=bad)
    return indices


def _strip_quantize(graph: fx.Graph, name: str, index: int) -> IOQParams:
    node = next(n for n in graph.nodes if n.op == "placeholder" and n.name == name)
    readers = list(node.users)
    qparams = {r.args[1:] for r in readers if r.target == _QUANTIZE}
    if len(qparams) != 1 or any(r.target != _QUANTIZE for r in readers):
        raise _not_quantized("input", index, readers)
    value, dtype = node.meta["val"], readers[0].meta["val"].dtype
    for reader in readers:
        reader.replace_all_uses_with(node)
        graph.erase_node(reader)
    node.meta["val"] = value.to(dtype)  # preserves the dim order
    return _parameters(next(iter(qparams)))


def _strip_dequantize(graph: fx.Graph, index: int, number: int) -> tuple[IOQParams, str]:
    node: Any = graph.output_node()
    results = list(node.args[0])
    dequantize = results[index]
    if not isinstance(dequantize, fx.Node) or dequantize.target != _DEQUANTIZE:
        raise _not_quantized("output", number, [dequantize])
    source: Any = dequantize.args[0]
    results[index] = source
    node.args = (tuple(results),)
    return _parameters(dequantize.args[1:]), source.name


def _parameters(args: Any) -> IOQParams:
    scale, zero, low, high, dtype = args
    return IOQParams(float(scale), int(zero), int(low), int(high), dtype)


def _not_quantized(side: str, index: int, nodes: list[Any]) -> UsageError:
    remedy = "Quantize the model first, so that the operator that reads (or computes) it works on integers."
    targets = ", ".join(str(getattr(n, "target", n)) for n in nodes) or "nothing"
    return UsageError(f"{side} {index}", "must be quantized once, for all its readers", value=targets, remedy=remedy)


# ------------------------------------------------------------------------------------------- conversion of the values


def float_io(exported: ExportedProgram) -> tuple[list[int], list[int]]:
    """The indices of the inputs and of the outputs that are floating-point tensors."""
    signature, values = exported.graph_signature, {n.name: n.meta.get("val") for n in exported.graph.nodes}
    inputs = [values.get(str(name)) for name in signature.user_inputs]
    outputs = [values.get(str(name)) for name in signature.user_outputs]
    return _float_indices(inputs), _float_indices(outputs)


def _float_indices(values: Iterable[Any]) -> list[int]:
    return [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.is_floating_point()]


def quantize(value: torch.Tensor, parameters: IOQParams) -> torch.Tensor:
    """The integers that stand for a floating-point tensor."""
    p = parameters
    return torch.ops.quantized_decomposed.quantize_per_tensor(value, p.scale, p.zero_point, p.qmin, p.qmax, p.dtype)  # type: ignore[no-any-return]


def dequantize(value: Any, parameters: IOQParams) -> Any:
    """The numbers that an array or a tensor of integers stands for."""
    real = value.float() if isinstance(value, torch.Tensor) else value.astype("float32")
    return (real - parameters.zero_point) * parameters.scale

"""Checks that preparation preserves semantics: with observers bypassed, a prepared model computes the float results.

Preparation folds batch norms, decomposes operators and makes masks finite, partly in torchao. An error there yields the
scales and weights of a different model, and no later stage can detect it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree
from torchao.quantization.pt2e import FakeQuantizeBase, ObserverBase

from edgewright.errors import AccuracyError
from edgewright.frontend.origin import describe_node, module_path
from edgewright.quantize.fold_batch_norm import is_training

TOLERANCE = 1e-4  # relative to a result's norm; folding rounds weights again, which changes results by about 1e-7
_LAST_BIT = 2.0**-22  # relative size of the perturbation that models rounding
_AMPLIFIED = 8  # tolerated multiple of the effect of rounding alone

Results = list[torch.Tensor]


def float_copy(module: fx.GraphModule) -> fx.GraphModule:
    """A copy that preparation of the original does not affect: torchao replaces weights and nodes in place."""
    graph = copy.deepcopy(module.graph)
    result = fx.GraphModule(module, graph)
    result.graph._codegen = copy.deepcopy(module.graph._codegen)
    result.meta.update(module.meta)
    result.recompile()
    return result


def require_same_results(
    original: fx.GraphModule, prepared: fx.GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> None:
    """Raise ``AccuracyError``, naming the module, unless a prepared model computes the original's results. Observers
    record nothing, and state is restored."""
    inputs = tuple(args), dict(kwargs or {})
    with torch.no_grad(), _restored_state(original, prepared), _bypassed_observers(prepared):
        expected = _results(original, *inputs)
        difference = _difference(expected, _results(prepared, *inputs))
        if difference <= TOLERANCE or difference <= _AMPLIFIED * _sensitivity(original, expected, *inputs):
            return
        node = _first_difference(original, prepared, *inputs)
    path, where = module_path(node), describe_node(node)[1]
    subject = f"module {path!r}" if path else f"node {node.name!r}" if node is not None else "model"
    rule = "must compute the same after preparation for quantization as before"
    remedy = "Preparation changed the model: rewrite this part of it, and report a bug."
    if node is not None and is_training(node):
        remedy = "It is in training mode, and quantized models are for inference: export model.eval()."
    value = f"a relative difference of {difference:.3g}"
    raise AccuracyError(subject, rule, value=value, remedy=f"{remedy} {where}".strip())


def _results(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Results:
    """Copies of a module's results: the next call may reuse their memory."""
    with _restored_state(module):
        tensors = [leaf for leaf in pytree.tree_leaves(module(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
        return [leaf.detach().clone() for leaf in tensors]


def _difference(expected: Results, actual: Results) -> float:
    """The largest relative difference of results, in the Euclidean norm. Elements that are not finite in the original
    are ignored: fully masked rows are zero where torch has NaN."""
    if [e.shape for e in expected] != [a.shape for a in actual]:
        return float("inf")
    return max((_relative_difference(e, a) for e, a in zip(expected, actual, strict=True)), default=0.0)


def _relative_difference(expected: torch.Tensor, actual: torch.Tensor) -> float:
    a, b = expected.to(torch.float64), actual.to(torch.float64)
    finite = a.isfinite()
    size, difference = (float(v[finite].norm()) for v in (a, a - b))
    if difference == 0:
        return 0.0
    if difference != difference:
        return float("inf")
    return difference / size if size else float("inf")


def _sensitivity(module: fx.GraphModule, expected: Results, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The change of the results if the last bits of all inputs and weights change: the effect that rounding alone can
    have on a model that selects between candidates, amplifies errors, or draws random numbers."""
    generator = torch.Generator().manual_seed(0)

    def perturb(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float32).to(value.dtype)
        return value * (1 + _LAST_BIT * noise)

    perturbed = copy.deepcopy(module)
    for tensor in (*perturbed.parameters(), *perturbed.buffers()):
        if tensor.is_floating_point():
            tensor.copy_(perturb(tensor))
    inputs = pytree.tree_map(perturb, (args, kwargs))
    return _difference(expected, _results(perturbed, *inputs))


# ------------------------------------------------------------------------------------- location of the first difference


def _first_difference(
    original: fx.GraphModule, prepared: fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node | None:
    """The first node of the original such that neither its value nor that of any node it reaches is in the prepared
    model. Integers are not compared: an argmax may agree by chance."""
    values, others = _values(original, args, kwargs), list(_values(prepared, args, kwargs).values())
    missing: set[fx.Node] = set()
    for node in reversed(original.graph.nodes):
        if node not in values or any(user in values and user not in missing for user in node.users):
            continue
        if not any(_relative_difference(values[node], v) <= TOLERANCE for v in others if v.shape == values[node].shape):
            missing.add(node)
    ordered = [node for node in original.graph.nodes if node in missing]
    trained = [node for node in ordered if is_training(node)]  # it was folded together with its layer
    return next(iter(trained or ordered), None)


def _values(module: fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[fx.Node, torch.Tensor]:
    """The floating-point results of every operator of a module."""
    values: dict[fx.Node, torch.Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n.op == "call_function" and isinstance(result, torch.Tensor) and result.is_floating_point():
                values[n] = result.detach().clone()
            return result

    with _restored_state(module):
        Recorder(module).run(*pytree.tree_leaves((args, kwargs)), enable_io_processing=False)
    return values


# ------------------------------------------------------------------------------------------------------------- context


@contextlib.contextmanager
def _bypassed_observers(prepared: nn.Module) -> Iterator[None]:
    """Make observers and fake quantizers, also in loop bodies, identities."""
    observers = [m for m in prepared.modules() if isinstance(m, FakeQuantizeBase | ObserverBase)]
    forward: Callable[[Any], Any] = lambda x: x  # noqa: E731  (one object for all)
    for observer in observers:
        observer.__dict__["forward"] = forward
    try:
        yield
    finally:
        for observer in observers:
            del observer.__dict__["forward"]


@contextlib.contextmanager
def _restored_state(*modules: nn.Module) -> Iterator[None]:
    """Restore the buffers of modules on exit."""
    saved = {id(b): (b, b.detach().clone()) for module in modules for b in module.buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, content in saved.values():
                buffer.copy_(content)

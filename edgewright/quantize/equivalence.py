"""The check that preparation changes nothing: without its observers, a prepared model computes what the float one does.

Preparation folds batch norms, decomposes operators and makes masks finite, partly in torchao. What goes wrong there
gives scales and weights of another model, and no later stage can tell.
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

TOLERANCE = 1e-4  # of a result's norm; folding rounds weights anew, which moves a network's results by some 1e-7
_LAST_BIT = 2.0**-22  # relative size of the perturbation that stands for rounding
_AMPLIFIED = 8  # times what rounding alone does to a result

Results = list[torch.Tensor]


def float_copy(module: fx.GraphModule) -> fx.GraphModule:
    """A module that keeps its meaning when the other is prepared: torchao replaces weights and nodes, in place."""
    graph = copy.deepcopy(module.graph)
    made = fx.GraphModule(module, graph)
    made.graph._codegen = copy.deepcopy(module.graph._codegen)
    made.meta.update(module.meta)
    made.recompile()
    return made


def require_same_results(
    original: fx.GraphModule, prepared: fx.GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> None:
    """Raise ``AccuracyError``, naming the module, unless a model that was prepared for calibration computes what the
    original does. Observers see nothing of it, and state is as it was."""
    given = tuple(args), dict(kwargs or {})
    with torch.no_grad(), _kept_state(original, prepared), _bypassed_observers(prepared):
        expected = _results(original, *given)
        difference = _difference(expected, _results(prepared, *given))
        if difference <= TOLERANCE or difference <= _AMPLIFIED * _sensitivity(original, expected, *given):
            return
        node = _first_different(original, prepared, *given)
    path, where = module_path(node), describe_node(node)[1]
    subject = f"module {path!r}" if path else f"node {node.name!r}" if node is not None else "model"
    rule = "must compute the same after preparation for quantization as before"
    remedy = "Preparation changed the model: write this part in another way, and report it."
    if node is not None and is_training(node):
        remedy = "It is in training mode, and quantized models are for inference: export model.eval()."
    value = f"a relative difference of {difference:.3g}"
    raise AccuracyError(subject, rule, value=value, remedy=f"{remedy} {where}".strip())


def _results(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Results:
    """Copies of what a module returns: what it returns next may be written to the same memory."""
    with _kept_state(module):
        found = [leaf for leaf in pytree.tree_leaves(module(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
        return [leaf.detach().clone() for leaf in found]


def _difference(expected: Results, actual: Results) -> float:
    """The largest relative difference of results, in the Euclidean norm. What is not finite in the original is not
    compared: rows that are masked as a whole are zero where torch has NaN."""
    if [e.shape for e in expected] != [a.shape for a in actual]:
        return float("inf")
    return max((_relative(e, a) for e, a in zip(expected, actual, strict=True)), default=0.0)


def _relative(expected: torch.Tensor, actual: torch.Tensor) -> float:
    a, b = expected.to(torch.float64), actual.to(torch.float64)
    finite = a.isfinite()
    size, difference = (float(v[finite].norm()) for v in (a, a - b))
    if difference == 0:
        return 0.0
    if difference != difference:
        return float("inf")
    return difference / size if size else float("inf")


def _sensitivity(module: fx.GraphModule, expected: Results, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """How far results move if every number that goes in moves in its last bits: so far can rounding alone take them,
    where a model chooses between candidates, amplifies, or draws random numbers."""
    draw = torch.Generator().manual_seed(0)

    def nudged(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        noise = torch.randn(value.shape, generator=draw, dtype=torch.float32).to(value.dtype)
        return value * (1 + _LAST_BIT * noise)

    moved = copy.deepcopy(module)
    for tensor in (*moved.parameters(), *moved.buffers()):
        if tensor.is_floating_point():
            tensor.copy_(nudged(tensor))
    given = pytree.tree_map(nudged, (args, kwargs))
    return _difference(expected, _results(moved, *given))


# ---------------------------------------------------------------------------------------------- which module it is


def _first_different(
    original: fx.GraphModule, prepared: fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node | None:
    """The first node of the original whose value is nowhere in the prepared model, nor any that comes of it. Integers
    say little: an argmax may well be the same."""
    values, others = _values(original, args, kwargs), list(_values(prepared, args, kwargs).values())
    lost: set[fx.Node] = set()
    for node in reversed(original.graph.nodes):
        if node not in values or any(user in values and user not in lost for user in node.users):
            continue
        if not any(_relative(values[node], v) <= TOLERANCE for v in others if v.shape == values[node].shape):
            lost.add(node)
    ordered = [node for node in original.graph.nodes if node in lost]
    trained = [node for node in ordered if is_training(node)]  # folded, and its layer with it
    return next(iter(trained or ordered), None)


def _values(module: fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[fx.Node, torch.Tensor]:
    """The real numbers that every operator of a module gives."""
    found: dict[fx.Node, torch.Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n.op == "call_function" and isinstance(result, torch.Tensor) and result.is_floating_point():
                found[n] = result.detach().clone()
            return result

    with _kept_state(module):
        Recorder(module).run(*pytree.tree_leaves((args, kwargs)), enable_io_processing=False)
    return found


# ------------------------------------------------------------------------------------------------------------- context


@contextlib.contextmanager
def _bypassed_observers(prepared: nn.Module) -> Iterator[None]:
    """Let observers, in loop bodies too, pass on what they get: neither seen nor rounded."""
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
def _kept_state(*modules: nn.Module) -> Iterator[None]:
    """Put the state of modules back as it was: running them writes to it."""
    held = {id(b): (b, b.detach().clone()) for module in modules for b in module.buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, content in held.values():
                buffer.copy_(content)

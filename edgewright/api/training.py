"""``train=fn``: quantization-aware training of a model inside ``edgewright.compile``.

The model is exported once more, with a batch of any size where it allows that, and with weights of its own: the user's
model, which results are compared with, is not trained. Fake quantizers start with the ranges of the calibration data.
``fn`` receives the prepared model in training mode, and trains it in place or returns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils import _pytree as pytree

from edgewright.api.data import Call
from edgewright.errors import AccuracyError, EdgewrightError, ExportError, UsageError
from edgewright.frontend.eval_mode import eval_mode
from edgewright.frontend.export import export
from edgewright.quantize.equivalence import float_copy, require_same_results
from edgewright.quantize.pt2e import convert_pt2e

log = logging.getLogger("edgewright.api")
_BATCH = 2  # of the export: the dimension of an example of 1 would be fixed

Train = Callable[[Any], Any]


@dataclass(frozen=True)
class Trainer:
    """``train``: the user's function. ``source``: the model, or its program, whose batch then is the example's."""

    train: Train
    source: nn.Module | ExportedProgram

    def run(self, quantizer: Any, exported: ExportedProgram, calls: Sequence[Call]) -> fx.GraphModule:
        """A model that was prepared, trained and converted. ``calls``: the calibration data, if any."""
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        module = self._own_module(exported)
        original = float_copy(module)
        prepared = allow_exported_model_train_eval(prepare_qat_pt2e(module, quantizer))
        prepared.eval()
        example: Any = exported.example_inputs
        first = calls[0] if calls else Call(*example)
        with torch.no_grad():
            require_same_results(original, prepared, first.args, first.kwargs)
            for call in calls:
                prepared(*call.args, **call.kwargs)
        prepared.train()
        trained = _trained_by(self.train, prepared)
        trained.eval()
        _require_finite(trained)
        return convert_pt2e(trained)

    def _own_module(self, exported: ExportedProgram) -> Any:
        """A module with weights of its own that can be trained."""
        program = self._batched(exported) if isinstance(self.source, nn.Module) else None
        if program is None:
            log.warning("train: the model is prepared for batches of the example's size only")
            program = exported
        module: Any = program.module()
        copies: dict[int, Any] = {}
        for owner in module.modules():
            for name, value in owner._parameters.items():
                if value is not None:
                    owner._parameters[name] = copies.setdefault(
                        id(value), nn.Parameter(value.detach().clone(), requires_grad=value.is_floating_point())
                    )
            for name, value in owner._buffers.items():
                if value is not None:
                    owner._buffers[name] = copies.setdefault(id(value), value.detach().clone())
        return module

    def _batched(self, exported: ExportedProgram) -> ExportedProgram | None:
        """The model exported with a dynamic batch, its first dimension; None if it does not allow one."""
        example: Any = exported.example_inputs
        leaves = [leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor)]
        if not leaves or any(leaf.dim() == 0 or leaf.shape[0] != leaves[0].shape[0] for leaf in leaves):
            return None
        args, kwargs = pytree.tree_map(_repeated, example)
        shapes: Any = ShapesCollection()  # type: ignore[no-untyped-call]
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                shapes[leaf] = {0: Dim.DYNAMIC}
        assert isinstance(self.source, nn.Module)
        try:
            with eval_mode(self.source):
                program = export(self.source, args, kwargs, shapes.dynamic_shapes(self.source, args, kwargs))
        except ExportError as error:
            log.info("train: no dynamic batch: %s", error)
            return None
        return program


def _repeated(value: Any) -> Any:
    """An example of a batch of at least two."""
    if not isinstance(value, torch.Tensor) or value.shape[0] >= _BATCH:
        return value
    return value.repeat(_BATCH, *(1,) * (value.dim() - 1))


def _trained_by(train: Train, prepared: Any) -> Any:
    """The model after the user's function; what it raises is an error that names the function."""
    name = getattr(train, "__name__", type(train).__name__)
    try:
        with torch.enable_grad():
            result = train(prepared)
    except EdgewrightError:
        raise
    except Exception as error:
        raise UsageError(f"train: {name}", f"raised {type(error).__name__}: {error}") from error
    if result is not None and not isinstance(result, fx.GraphModule):
        remedy = "Train the model that it is given, and return that or None."
        raise UsageError(f"train: {name}", "must return the model or None", value=type(result).__name__, remedy=remedy)
    return prepared if result is None else result


def _require_finite(trained: Any) -> None:
    for name, value in (*trained.named_parameters(), *trained.named_buffers()):
        observed = name.endswith((".min_val", ".max_val"))  # infinite until something is observed
        if value.is_floating_point() and not observed and not bool(value.isfinite().all()):
            remedy = "The training diverged: a lower learning rate, or clipped gradients, may prevent it."
            raise AccuracyError(
                f"train: {name}", "must be finite after training", value="infinity or NaN", remedy=remedy
            )

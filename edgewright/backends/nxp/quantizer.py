"""``NeutronQuantizer``: presets for quantizing what Neutron runs. The rows say the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torchao.quantization.pt2e import FakeQuantize, MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from edgewright.backends.nxp.ops import BACKEND
from edgewright.backends.nxp.partitioner import KEPT, checked_target
from edgewright.backends.nxp.target import DEFAULT, NeutronTargetSpec
from edgewright.errors import UsageError
from edgewright.quantize.batching import calibrate, first_call
from edgewright.quantize.histogram import FiniteHistogramObserver
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import EPSILON, symmetric_config
from edgewright.quantize.simplify import simplify_operators

_PRODUCTS = (torch.ops.aten.bmm.default,)


class NeutronQuantizer(TableQuantizer):
    """Static 8-bit quantization, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    Weights of convolutions have a scale for each channel and those of matrix products one; ``per_channel=False``
    gives one to all.

    >>> from edgewright.backends.nxp import NeutronQuantizer
    >>> quantizer = NeutronQuantizer()
    """

    backend = BACKEND
    kept = KEPT
    inputs_too = True

    def __init__(
        self, neutron_target_spec: NeutronTargetSpec | None = None, is_qat: bool = False, per_channel: bool = True
    ) -> None:
        super().__init__()
        for name, flag in (("is_qat", is_qat), ("per_channel", per_channel)):
            if not isinstance(flag, bool):
                raise UsageError(name, "must be True or False", value=flag)
        self.target_spec = checked_target(neutron_target_spec)
        self.is_qat = is_qat
        self.set_global(symmetric_config(per_channel, is_qat))

    @classmethod
    def for_target(cls, target: str | None) -> NeutronQuantizer:
        return cls(checked_target(None, target or DEFAULT))

    def target(self) -> NeutronTargetSpec:
        return self.target_spec

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """As lowering decomposes, and simpler where only single results can be quantized."""
        return simplify_operators(super().transform_for_annotation(model))

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        """As rows say; and operands of products of two computed matrices have no zero point."""
        super().annotate(model)
        for node in model.graph.nodes:
            found = node.meta.get(Q_ANNOTATION_KEY)
            if node.target in _PRODUCTS and found is not None and found._annotated:
                found.input_qspec_map = dict.fromkeys(found.input_qspec_map, self._centred())
        return model

    def _centred(self) -> QuantizationSpec:
        observer: Any = FiniteHistogramObserver.with_args(eps=EPSILON)
        if self.is_qat:
            observer = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=EPSILON)
        return QuantizationSpec(torch.int8, observer, -127, 127, torch.per_tensor_symmetric)


def calibrate_and_quantize(
    model: ExportedProgram | fx.GraphModule,
    calibration_inputs: Iterable[tuple[torch.Tensor, ...]],
    quantizer: NeutronQuantizer,
    is_qat: bool = False,
    train_fn: Callable[[fx.GraphModule], Any] | None = None,
) -> fx.GraphModule:
    """The quantized module of an exported one: calibrated with inputs or, with ``is_qat``, trained by ``train_fn``."""
    module: Any = model.module() if isinstance(model, ExportedProgram) else model
    if is_qat:
        if train_fn is None:
            raise UsageError("train_fn", "must be given for quantization-aware training")
        ready: Any = prepare_qat_pt2e(module, quantizer)
        trained = train_fn(ready)
        ready = ready if trained is None else trained
    else:
        first, calls = first_call(module.graph, calibration_inputs)
        ready = prepare_pt2e(module, quantizer, first)
        calibrate(ready, calls)
    return convert_pt2e(ready)

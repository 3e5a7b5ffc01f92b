"""``NeutronQuantizer`` and its presets; the operator table determines what is quantized."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

import edgewright.quantize  # noqa: F401  (before torchao, which logs when it is imported)

# isort: split
from torchao.quantization.pt2e import FakeQuantize, MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from edgewright.backends.nxp.ops import BACKEND
from edgewright.backends.nxp.partitioner import check_target
from edgewright.backends.nxp.target import DEFAULT, NeutronTargetSpec
from edgewright.errors import UsageError
from edgewright.quantize.batching import calibrate, first_call
from edgewright.quantize.histogram import FiniteHistogramObserver
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import EPSILON, symmetric_config
from edgewright.quantize.simplify import simplify_operators

_MATMULS = (torch.ops.aten.bmm.default,)


class NeutronQuantizer(TableQuantizer):
    """Static int8 quantization, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    Weights of convolutions are quantized per channel and those of matrix products per tensor; with
    ``per_channel=False`` all weights are quantized per tensor.

    >>> from edgewright.backends.nxp import NeutronQuantizer
    >>> quantizer = NeutronQuantizer()
    """

    backend = BACKEND
    inputs_too = True

    def __init__(
        self, neutron_target_spec: NeutronTargetSpec | None = None, is_qat: bool = False, per_channel: bool = True
    ) -> None:
        super().__init__()
        for name, flag in (("is_qat", is_qat), ("per_channel", per_channel)):
            if not isinstance(flag, bool):
                raise UsageError(name, "must be True or False", value=flag)
        self.target_spec = check_target(neutron_target_spec)
        self.is_qat = is_qat
        self.set_global(symmetric_config(per_channel, is_qat))

    @classmethod
    def for_target(cls, target: str | None) -> NeutronQuantizer:
        return cls(check_target(None, target or DEFAULT))

    def target(self) -> NeutronTargetSpec:
        return self.target_spec

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Decompose as lowering does, and simplify operators with several outputs."""
        return simplify_operators(super().transform_for_annotation(model))

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        """Annotate by the operator table; both operands of ``bmm`` are quantized symmetrically."""
        super().annotate(model)
        for node in model.graph.nodes:
            annotation = node.meta.get(Q_ANNOTATION_KEY)
            if node.target in _MATMULS and annotation is not None and annotation._annotated:
                annotation.input_qspec_map = dict.fromkeys(annotation.input_qspec_map, self._symmetric_spec())
        return model

    def _symmetric_spec(self) -> QuantizationSpec:
        observer: Any = FiniteHistogramObserver.with_args(eps=EPSILON)
        if self.is_qat or self._is_qat():
            observer = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=EPSILON)
        return QuantizationSpec(torch.int8, observer, -127, 127, torch.per_tensor_symmetric)


def calibrate_and_quantize(
    model: ExportedProgram | fx.GraphModule,
    calibration_inputs: Iterable[tuple[torch.Tensor, ...]],
    quantizer: NeutronQuantizer,
    is_qat: bool = False,
    train_fn: Callable[[fx.GraphModule], Any] | None = None,
) -> fx.GraphModule:
    """Quantize an exported module: calibrate it with inputs or, with ``is_qat``, train it by ``train_fn``."""
    module: Any = model.module() if isinstance(model, ExportedProgram) else model
    if is_qat:
        if train_fn is None:
            raise UsageError("train_fn", "is required for quantization-aware training")
        prepared: Any = prepare_qat_pt2e(module, quantizer)
        trained = train_fn(prepared)
        prepared = prepared if trained is None else trained
    else:
        first, calls = first_call(module.graph, calibration_inputs)
        prepared = prepare_pt2e(module, quantizer, first)
        calibrate(prepared, calls)
    return convert_pt2e(prepared)

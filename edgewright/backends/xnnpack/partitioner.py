"""``XnnpackPartitioner``: assigns operators to XNNPACK and lowers each partition to a blob."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from edgewright.backends.table import DYNAMIC, FLOAT, STATIC, precision_of
from edgewright.backends.xnnpack.blob import write_blob
from edgewright.backends.xnnpack.blob_writer import to_blob
from edgewright.backends.xnnpack.configs import CONFIGS
from edgewright.backends.xnnpack.lut_chains import split_chains
from edgewright.backends.xnnpack.ops import BACKEND
from edgewright.backends.xnnpack.transposed_squares import separate_operands
from edgewright.backends.xnnpack.unpacked_constants import pass_unpacked_constants
from edgewright.errors import UsageError
from edgewright.formats.layer_table import DelegateLayers
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.hints import not_among
from edgewright.ir.aten.ops import OPS
from edgewright.ir.core.dialect import CORE
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.layer_names import attribute_conversions
from edgewright.ir.verify import verify
from edgewright.lowering.aten_to_core.products import batch_norm_scale_shift
from edgewright.lowering.partition.partitioner import Partitioner
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_batch_norms, fold_constants
from edgewright.lowering.passes.layout import GroupLowering


class ConfigPrecisionType(enum.Enum):
    """Precisions that a partitioner can be restricted to."""

    FP32 = FLOAT
    STATIC_QUANT = STATIC
    DYNAMIC_QUANT = DYNAMIC


_EXTRA_BYTES = 64  # XNNPACK's kernels may read past the end of a tensor (XNN_EXTRA_BYTES)


class XnnpackLowering(GroupLowering):
    """Lowers a group to the core operators that XNNPACK has nodes for."""

    max_concatenated = 5


class XnnpackPartitioner(Partitioner):
    """Delegates every operator that XNNPACK supports.

    ``configs``: operator configs (``LinearConfig``, …) to restrict it to; all if there are none. ``config_precisions``:
    one or several of ``ConfigPrecisionType``. ``per_op_mode``: one delegate per operator. ``verbose``: print which
    operators are delegated, and why the others are not. ``exclude``: ``DontPartition(...)`` and similar filters.
    ``force_non_static_weights_for_f32_linear``: weights of linear layers in floating point are stored with the program
    and passed to the delegate at every call, which packs them every time.
    """

    backend = BACKEND

    def __init__(
        self,
        configs: Iterable[Any] | None = None,
        config_precisions: ConfigPrecisionType | Iterable[ConfigPrecisionType] | None = None,
        per_op_mode: bool = False,
        verbose: bool = False,
        *,
        exclude: Sequence[Any] = (),
        force_non_static_weights_for_f32_linear: bool = False,
    ) -> None:
        super().__init__(exclude, per_op_mode=per_op_mode, verbose=verbose)
        if not isinstance(force_non_static_weights_for_f32_linear, bool):
            option = "force_non_static_weights_for_f32_linear"
            raise UsageError(option, "must be True or False", value=force_non_static_weights_for_f32_linear)
        self.precisions = _precisions(config_precisions)
        self.configs = _config_names(configs)
        self.dynamic_linear_weights = force_non_static_weights_for_f32_linear

    def target(self) -> str:
        """The runtime: older releases lack nodes."""
        return self.runtime

    def rejections(self, op: Op) -> list[str]:
        row = self.backend.rows.get(op.kind)
        if row is not None and self.configs is not None and self.configs.isdisjoint(row.configs):
            return [f"{' or '.join(row.configs)} is not among the requested configs"]
        if row is not None and precision_of(op) not in self.precisions:
            return [f"precision {precision_of(op)} is not among the requested precisions"]
        return super().rejections(op)

    def lower(self, group: Graph) -> LoweredBackendModule:
        group.inputs = [v for v in group.inputs if v.dtype is not None]  # sizes are derived from the tensors
        apply(
            group,
            widen_weights,
            lambda graph: fold_constants(graph, OPS),
            lambda graph: fold_batch_norms(graph, batch_norm_scale_shift),
        )
        device = XnnpackLowering(group, BACKEND.rows).run()
        split_chains(device)
        separate_operands(device)
        verify(device, CORE)
        constants = pass_unpacked_constants(device, self.dynamic_linear_weights)
        blob, named = to_blob(device)
        attribute_conversions(device, "core.convert")
        layers = DelegateLayers([op.origin for op in device.ops])
        options: dict[str, Any] = {"overread": _EXTRA_BYTES, "constants": constants, "layers": layers}
        return LoweredBackendModule(self.backend.id, write_blob(blob), {}, named, **options)


def widen_weights(group: Graph) -> None:
    """Store 4-bit weights as int8, except per-channel weights of a linear layer with an even number of input channels:
    XNNPACK misreads rows of odd length, or reads past their end."""
    for op in group.ops:
        weight = op.args.get("weight")
        if not isinstance(weight, Value) or weight.q is None or weight.q.block:
            continue
        q = weight.q
        odd = weight.bound[-1] % 2 == 1
        if (q.qmin, q.qmax) == (-8, 7) and (op.kind != "linear" or q.axis is None or odd):
            op.args["weight"] = replace(weight, q=replace(q, qmin=-127, qmax=127))


def _precisions(requested: Any) -> set[str]:
    if requested is None:
        return {FLOAT, STATIC, DYNAMIC}
    items = (
        [requested]
        if isinstance(requested, ConfigPrecisionType) or not isinstance(requested, Iterable)
        else list(requested)
    )
    for item in items:
        if not isinstance(item, ConfigPrecisionType):
            raise UsageError("config_precisions", "must hold ConfigPrecisionType", value=item)
    return {item.value for item in items}


def _config_names(configs: Iterable[Any] | None) -> set[str] | None:
    if configs is None:
        return None
    if isinstance(configs, str) or not isinstance(configs, Iterable):
        raise UsageError("configs", "must be a list of operator configs", value=configs)
    names = {c if isinstance(c, str) else getattr(c, "__name__", type(c).__name__) for c in configs}
    unknown = sorted(names - set(CONFIGS))
    if unknown:
        raise not_among("configs", unknown[0], sorted(CONFIGS), rule="must be among")
    return names or None  # as in ExecuTorch, an empty list means all


class XnnpackFloatingPointPartitioner(XnnpackPartitioner):
    """Delegates floating-point operators."""

    def __init__(self, **options: Any) -> None:
        super().__init__(config_precisions=ConfigPrecisionType.FP32, **options)


class XnnpackQuantizedPartitioner(XnnpackPartitioner):
    """Delegates statically quantized operators."""

    def __init__(self, **options: Any) -> None:
        super().__init__(config_precisions=ConfigPrecisionType.STATIC_QUANT, **options)


class XnnpackDynamicallyQuantizedPartitioner(XnnpackPartitioner):
    """Delegates dynamically quantized operators."""

    def __init__(self, **options: Any) -> None:
        super().__init__(config_precisions=ConfigPrecisionType.DYNAMIC_QUANT, **options)

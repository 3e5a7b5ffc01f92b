"""``QnnQuantizer``: presets for quantizing what a Hexagon processor runs. The rows say the rest."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from torch import fx

from edgewright.backends.qualcomm.kept import KEPT
from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.target import (
    QcomChipset,
    QnnTarget,
    chipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.errors import UsageError
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config
from edgewright.quantize.simpler import simpler


class QuantDtype(enum.IntEnum):
    """How activations and weights are held: ``use_16a4w`` has 16 bits for the ones and 4 for the others."""

    use_16a16w = 0
    use_16a8w = 1
    use_16a4w = 2
    use_16a4w_block = 3
    use_8a8w = 4
    use_8a4w = 5


# Bits of activations, and the largest weight.
_SCHEMES = {
    QuantDtype.use_8a8w: (8, 127),
    QuantDtype.use_16a8w: (16, 127),
    QuantDtype.use_16a4w: (16, 7),
    QuantDtype.use_8a4w: (8, 7),
}
_EPSILON = 1e-4  # the range that the smallest scale has


def get_qnn_quantization_config(
    quant_dtype: QuantDtype = QuantDtype.use_8a8w, is_per_channel: bool = True, is_qat: bool = False
) -> QuantizationConfig:
    """A scheme, with a scale for each output channel of weights or one for all."""
    if quant_dtype not in _SCHEMES:
        names = ", ".join(s.name for s in _SCHEMES)
        raise UsageError("quant_dtype", f"must be one of {names}", value=getattr(quant_dtype, "name", quant_dtype))
    bits, most = _SCHEMES[quant_dtype]
    last = (1 << bits) - 1
    epsilon = _EPSILON / last
    ends = ((0, last), (-most, most))
    return symmetric_config(is_per_channel, is_qat, False, *ends, bits=bits, unsigned=True, epsilon=epsilon)


class QnnQuantizer(TableQuantizer):
    """Quantizes for a Hexagon processor, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    >>> from edgewright.backends.qualcomm import QnnQuantizer, QuantDtype
    >>> quantizer = QnnQuantizer(soc_model="SM8650")
    >>> quantizer.set_default_quant_config(QuantDtype.use_16a8w, is_conv_per_channel=True)
    """

    backend = BACKEND
    kept = KEPT
    presets: ClassVar = {
        "int8": get_qnn_quantization_config,
        "a16w8": lambda: get_qnn_quantization_config(QuantDtype.use_16a8w),
        "a16w4": lambda: get_qnn_quantization_config(QuantDtype.use_16a4w),
        "a8w4": lambda: get_qnn_quantization_config(QuantDtype.use_8a4w),
    }

    @classmethod
    def for_target(cls, target: str | None) -> QnnQuantizer:
        made = cls() if target is None else cls(target)
        made.by_operator.clear()  # presets say it for all operators
        return made

    def __init__(self, soc_model: Any = QcomChipset.SM8750) -> None:
        super().__init__()
        htp = generate_htp_compiler_spec(use_fp16=True)
        self._target = QnnTarget.of(generate_qnn_executorch_compiler_spec(chipset(soc_model), htp))
        self._annotations: list[Callable[[fx.GraphModule], None]] = []
        self._discarded: frozenset[str] = frozenset()
        self.set_default_quant_config()

    def target(self) -> QnnTarget:
        return self._target

    def set_default_quant_config(
        self, quant_dtype: QuantDtype = QuantDtype.use_8a8w, is_qat: bool = False, is_conv_per_channel: bool = False,
        is_linear_per_channel: bool = False,
    ) -> None:  # fmt: skip
        """How everything is quantized that no other setting fits."""
        self.set_global(get_qnn_quantization_config(quant_dtype, is_conv_per_channel, is_qat))
        self.set_operator_type("linear", get_qnn_quantization_config(quant_dtype, is_linear_per_channel, is_qat))

    def add_custom_quant_annotations(self, annotations: Sequence[Callable[[fx.GraphModule], None]]) -> None:
        """Functions that annotate a module before the rows do: what they have annotated stays as they say."""
        self._annotations = list(annotations)

    def add_discard_nodes(self, nodes: Iterable[str]) -> None:
        """Names of nodes to leave alone."""
        self._discarded = frozenset(nodes)

    def add_discard_ops(self, ops: Iterable[Any]) -> None:
        """Operators (``torch.ops.aten.add.Tensor``) to leave alone."""
        for op in ops:
            self.set_operator_type(op, None)

    def set_submodule_qconfig_list(
        self, settings: Sequence[tuple[Callable[[fx.Node], bool], QuantizationConfig | None]]
    ) -> None:
        """How nodes are quantized that a function is true of; the first that is holds."""
        for wanted, config in reversed(list(settings)):
            self.set_node_finder(wanted, config)

    def config_of(self, op: Any, row: Any, node: fx.Node) -> QuantizationConfig | None:
        return None if node.name in self._discarded else super().config_of(op, row, node)

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for annotation in self._annotations:
            annotation(model)
        return super().annotate(model)

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """As lowering decomposes, and simpler where only single results can be quantized."""
        return simpler(super().transform_for_annotation(model))

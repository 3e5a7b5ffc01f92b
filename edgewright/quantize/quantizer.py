"""The quantizer every backend's is made of: rows and ports decide, users say where and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import fx
from torchao.quantization.pt2e.quantizer import Quantizer
from typing_extensions import Self

from edgewright.backends.table import DYNAMIC, STATIC, Backend
from edgewright.errors import UsageError
from edgewright.frontend.constant_folding import fold_weights
from edgewright.hints import did_you_mean
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpDef
from edgewright.ir.graph import Op
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.quantize.annotate import Annotator, annotate_ends
from edgewright.quantize.attention_masks import finite_masks
from edgewright.quantize.batch_norm_guard import guard_torchao
from edgewright.quantize.fold_batch_norm import fold_frozen_norms, foldable_norms
from edgewright.quantize.graph_module import rewrite_module
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config

aten = torch.ops.aten

# torchao finds these by name when it folds batch norms; lowering has other names for the same rows. A histogram is
# counted of real numbers: integers of 8 bits next to a bin's edge would fall on the other side.
_WHOLE = (
    aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.conv_transpose1d.default,
    aten.conv_transpose2d.input, aten.conv_transpose3d.input, aten.linear.default, aten.batch_norm.default,
    aten.max_pool2d.default, aten.histc.default,
)  # fmt: skip


class TableQuantizer(Quantizer):  # type: ignore[misc]
    """Quantizes what a backend's rows take. Of several settings that fit, the most specific holds: node, module name,
    module type, operator type, global. A setting of None leaves what it fits alone."""

    backend: Backend
    kept: tuple[Any, ...] = ()  # torch operators that the backend's partitioner leaves whole
    inputs_too: ClassVar[bool] = False  # what only moves or pools the model's inputs is quantized, too
    # Ways to quantize, by the names that users give them; the first is the usual one.
    presets: ClassVar[Mapping[str, Callable[[], QuantizationConfig]]] = {
        "int8": lambda: symmetric_config(is_per_channel=True)
    }

    def __init__(self) -> None:
        super().__init__()
        guard_torchao()
        self.everywhere: QuantizationConfig | None = None
        self.by_name: dict[str, QuantizationConfig | None] = {}
        self.by_type: dict[str, QuantizationConfig | None] = {}
        self.by_operator: dict[str, QuantizationConfig | None] = {}
        self.by_node: list[tuple[Callable[[fx.Node], bool], QuantizationConfig | None]] = []
        self.ends: QuantizationConfig | None = None
        self.others: list[Quantizer] = []
        self.left: dict[str, str] = {}  # after annotation: why layers are not quantized, by node
        self.filter: Callable[[fx.Node], bool] | None = None

    @classmethod
    def for_target(cls, target: str | None) -> Self:
        """A quantizer with its defaults, for a device by its name."""
        return cls()

    def target(self) -> Any:
        """What rules are asked about; None if the backend has one kind of device only."""
        return None

    # --------------------------------------------------------------------------------------------------- settings

    def set_global(self, config: QuantizationConfig | None) -> Self:
        """How everything is quantized that no other setting fits."""
        self.everywhere = _checked(config)
        return self

    def set_module_name(self, name: str, config: QuantizationConfig | None) -> Self:
        """How a submodule (``features.3``) and all within it is quantized."""
        self.by_name[name] = _checked(config)
        return self

    def set_module_type(self, kind: type | str, config: QuantizationConfig | None) -> Self:
        """How modules of a class are quantized."""
        self.by_type[kind if isinstance(kind, str) else kind.__name__] = _checked(config)
        return self

    def set_operator_type(self, kind: Any, config: QuantizationConfig | None) -> Self:
        """How an operator is quantized: ``torch.ops.aten.linear.default``, or its name in the op table."""
        self.by_operator[_operator_name(kind)] = _checked(config)
        return self

    def set_node_name(self, name: str, config: QuantizationConfig | None) -> Self:
        """How one node of the exported graph is quantized."""
        return self.set_node_finder(lambda node: node.name == name, config)

    def set_node_target(self, kind: Any, config: QuantizationConfig | None) -> Self:
        """How nodes that call one operator (``torch.ops.aten.add.Tensor``) are quantized."""
        return self.set_node_finder(lambda node: node.target == kind, config)

    def set_node_finder(self, wanted: Callable[[fx.Node], bool], config: QuantizationConfig | None) -> Self:
        """How nodes that ``wanted`` is true of are quantized. Of several that are, the last one set holds."""
        if not callable(wanted):
            raise UsageError("node finder", "must be a function of a node", value=wanted)
        self.by_node.append((wanted, _checked(config)))
        return self

    def set_io(self, config: QuantizationConfig | None) -> Self:
        """How the model's own inputs and outputs are stored (``uint8``, say), whatever reads or makes them."""
        self.ends = _checked(config)
        return self

    def add_quantizer(self, quantizer: Quantizer) -> Self:
        """Let another quantizer annotate first: what it has taken stays as it says."""
        self.others.append(quantizer)
        return self

    def set_filter_function(self, wanted: Callable[[fx.Node], bool]) -> Self:
        """Only quantize nodes that ``wanted`` is true of."""
        self.filter = wanted
        return self

    # ----------------------------------------------------------------------------------------------- for torchao

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Decompose as lowering does, so that every intermediate value has an observer; batch norms that are never
        trained become part of their layers, masks finite, and weights that are computed of others are computed now,
        unless these are still to be trained."""
        model = model if self._trains() else fold_weights(model)
        made = rewrite_module(model, kernel_set("wheel").takes, frozenset([*_WHOLE, *self.kept]))
        return finite_masks(fold_frozen_norms(made, self._trained_norms(made)))

    def _trained_norms(self, model: fx.GraphModule) -> set[fx.Node]:
        """The batch norms that torchao takes into their layers for as long as the model is trained."""
        if not any(norm.target is aten.batch_norm.default for norm in foldable_norms(model)):
            return set()
        return self._annotator(model).trained_norms()

    def _annotator(self, model: fx.GraphModule) -> Annotator:
        return Annotator(model, self.backend, self.config_of, self.target(), self.inputs_too)

    def _trains(self) -> bool:
        settings = (self.everywhere, self.ends, *self.by_name.values(), *self.by_type.values())
        nodes = (config for _, config in self.by_node)
        return any(c is not None and c.is_qat for c in (*settings, *self.by_operator.values(), *nodes))

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for other in self.others:
            other.annotate(model)
        if self.ends is not None:
            annotate_ends(model, self.ends)
        annotator = self._annotator(model)
        annotator.run()
        self.left = annotator.left
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Rows were asked already."""

    def config_of(self, op: Op, row: OpDef, node: fx.Node) -> QuantizationConfig | None:
        """The setting that fits an operator best."""
        if self.filter is not None and not self.filter(node):
            return None
        for wanted, config in reversed(self.by_node):
            if wanted(node):
                return config
        path = op.origin.module
        inside = [n for n in self.by_name if path == n or path.startswith(n + ".")]
        if inside:
            return self.by_name[max(inside, key=len)]
        for kind in reversed(op.origin.classes):
            if kind in self.by_type:
                return self.by_type[kind]
        for name in (op.kind, row.name, *row.aten):
            if name in self.by_operator:
                return self.by_operator[name]
        return self.everywhere

    @classmethod
    def get_supported_operators(cls) -> list[str]:
        """The operators that are quantized, by their names in the op table."""
        rows = cls.backend.rows.values()
        return sorted(r.op for r in rows if r.op in OPS and {STATIC, DYNAMIC} & set(r.precisions))


def _checked(config: Any) -> QuantizationConfig | None:
    if config is not None and not isinstance(config, QuantizationConfig):
        remedy = "Make one with get_symmetric_quantization_config(), or pass None to leave the operators alone."
        raise UsageError("quantization config", "must be a QuantizationConfig or None", value=type(config).__name__,
                         remedy=remedy)  # fmt: skip
    return config


def _operator_name(kind: Any) -> str:
    """How an operator is known: by overload, or by its name in the table for a packet of overloads."""
    name = str(kind)
    if isinstance(kind, torch._ops.OpOverload) or name in OPS:
        return name
    found = [row.name for row in OPS.values() if any(n.startswith(f"{name}.") for n in row.aten)]
    if not found:
        raise UsageError(f"operator {name!r}", "is not in the op table", remedy=did_you_mean(name, OPS))
    return found[0]

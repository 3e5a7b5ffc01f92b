"""Base class of the backends' PT2E quantizers: the op table decides what can be quantized, users configure where and
how."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import fx
from torchao.quantization.pt2e.quantizer import Quantizer
from typing_extensions import Self

from edgewright.backends.table import DYNAMIC, STATIC, Backend
from edgewright.errors import UsageError
from edgewright.frontend.affine import affine_operators
from edgewright.frontend.constant_folding import fold_weights
from edgewright.frontend.reduce_rank import reduce_rank
from edgewright.hints import did_you_mean
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpDef
from edgewright.ir.graph import Op
from edgewright.lowering.kernel_resolution import composites, kernel_set
from edgewright.quantize.annotate import Annotator, annotate_float_io, annotate_io
from edgewright.quantize.attention_masks import finite_masks
from edgewright.quantize.batch_norm_guard import guard_torchao
from edgewright.quantize.fold_batch_norm import fold_frozen_norms, foldable_norms
from edgewright.quantize.free_batch import free_batch
from edgewright.quantize.graph_module import rewrite_module
from edgewright.quantize.measured_spans import measure_spans
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config

aten = torch.ops.aten

# Not decomposed before annotation. torchao matches these when it folds batch norms. ``histc`` stays in float: 8-bit
# elements next to a bin's edge would be counted in the neighboring bin.
_NO_DECOMPOSE = (
    aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.conv_transpose1d.default,
    aten.conv_transpose2d.input, aten.conv_transpose3d.input, aten.linear.default, aten.batch_norm.default,
    aten.max_pool2d.default, aten.histc.default,
)  # fmt: skip


class TableQuantizer(Quantizer):  # type: ignore[misc]
    """Quantizes the operators of a backend's table. The most specific setting applies: node, module name, module type,
    operator type, global. A setting of None leaves the matching operators in floating point."""

    backend: Backend
    inputs_too: ClassVar[bool] = False  # quantize data movement and pooling of the model's inputs as well
    mixes_signs: ClassVar[bool] = True  # signed and unsigned activations may be in one model
    # Quantization schemes by the names that users pass; the first is the default.
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
        self.io_config: QuantizationConfig | None = None
        self.integer_io = False  # quantize inputs and outputs that only operators in floating point read or compute
        self.others: list[Quantizer] = []
        self.unquantized: dict[str, str] = {}  # after annotation, by node: why a layer is not quantized
        self.filter: Callable[[fx.Node], bool] | None = None
        self.kernels = kernel_set("wheel")
        self.examples: Sequence[Sequence[Any]] = ()  # calibration inputs, flattened: they decide what shares a scale

    @classmethod
    def for_target(cls, target: str | None) -> Self:
        """A quantizer with default settings for a named device."""
        return cls()

    def target(self) -> Any:
        """The device that the backend's rules check; None if the backend has one kind of device only."""
        return None

    # --------------------------------------------------------------------------------------------------- settings

    def set_global(self, quantization_config: QuantizationConfig | None) -> Self:
        """Configure all operators that no other setting matches."""
        self.everywhere = _require_config(quantization_config)
        return self

    def set_module_name(self, module_name: str, quantization_config: QuantizationConfig | None) -> Self:
        """Configure a submodule (``features.3``) and everything inside it."""
        self.by_name[module_name] = _require_config(quantization_config)
        return self

    def set_module_type(self, module_type: type | str, quantization_config: QuantizationConfig | None) -> Self:
        """Configure the modules of a class."""
        name = module_type if isinstance(module_type, str) else module_type.__name__
        self.by_type[name] = _require_config(quantization_config)
        return self

    def set_operator_type(self, operator_type: Any, quantization_config: QuantizationConfig | None) -> Self:
        """Configure an operator: ``torch.ops.aten.linear.default``, or its name in the op table."""
        self.by_operator[_operator_name(operator_type)] = _require_config(quantization_config)
        return self

    def set_object_type(self, object_type: Any, quantization_config: QuantizationConfig | None) -> Self:
        """Configure a class of modules (``torch.nn.Linear``), or a function (``torch.nn.functional.linear``,
        ``operator.add``) or operator."""
        if isinstance(object_type, type):
            return self.set_module_type(object_type, quantization_config)
        is_operator = isinstance(object_type, str | torch._ops.OpOverload | torch._ops.OpOverloadPacket)
        if not is_operator and not callable(object_type):
            rule = "must be a class of modules, a function or an operator"
            raise UsageError("set_object_type", rule, value=object_type)
        return self.set_operator_type(object_type if is_operator else object_type.__name__, quantization_config)

    def set_node_name(self, node_name: str, quantization_config: QuantizationConfig | None) -> Self:
        """Configure one node of the exported graph."""
        return self.set_node_finder(lambda node: node.name == node_name, quantization_config)

    def set_node_target(self, node_target: Any, quantization_config: QuantizationConfig | None) -> Self:
        """Configure the nodes that call one operator (``torch.ops.aten.add.Tensor``)."""
        return self.set_node_finder(lambda node: node.target == node_target, quantization_config)

    def set_node_finder(self, node_finder: Any, quantization_config: Any) -> Self:
        """Configure the nodes that match: a predicate over nodes, or an object whose ``find_nodes(model)`` returns
        them. If several match, the last one set applies. The two arguments may be in either order, as ExecuTorch's are
        the other way round."""
        if isinstance(node_finder, QuantizationConfig) or (node_finder is None and quantization_config is not None):
            node_finder, quantization_config = quantization_config, node_finder
        find = getattr(node_finder, "find_nodes", None)
        if not callable(node_finder) and not callable(find):
            rule = "must be a function of a node, or have a method find_nodes"
            raise UsageError("node finder", rule, value=node_finder)
        matches = _found_by(find) if callable(find) else node_finder
        self.by_node.append((matches, _require_config(quantization_config)))
        return self

    def set_io(self, quantization_config: QuantizationConfig | None) -> Self:
        """Configure the model's inputs and outputs (``uint8``, for example), independent of what reads or computes
        them."""
        self.io_config = _require_config(quantization_config)
        return self

    def add_quantizer(self, quantizer: Quantizer) -> Self:
        """Let another quantizer annotate first; its annotations have precedence."""
        self.others.append(quantizer)
        return self

    def set_filter_function(self, filter_fn: Callable[[fx.Node], bool]) -> Self:
        """Only quantize nodes that match a predicate."""
        self.filter = filter_fn
        return self

    def set_runtime(self, runtime: str | Sequence[str]) -> Self:
        """The runtime that the model is lowered for, as in ``EdgeCompileConfig(runtime=...)``. What has no kernel there
        is decomposed before observers are inserted, so that the parts are quantized."""
        self.kernels = kernel_set(runtime)
        return self

    # ------------------------------------------------------------------------------------------ torchao's interface

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Decompose as lowering does, so that every intermediate value has an observer; fold constants (not weights if
        the model is to be trained), fold frozen batch norms, and make attention masks finite."""
        trained, composite = self._is_qat(), composites(self.backend).union(_NO_DECOMPOSE, affine_operators())
        rewritten = rewrite_module(fold_weights(model, trained=trained), self.kernels.supports, composite)
        fold_weights(rewritten, trained=trained)  # what is written in place, such as a mask, is functional now
        if self.backend.max_rank is not None:
            reduce_rank(rewritten, self.backend.max_rank)
        return free_batch(finite_masks(fold_frozen_norms(rewritten, self._qat_batch_norms(rewritten))))

    def _qat_batch_norms(self, model: fx.GraphModule) -> set[fx.Node]:
        """The batch norms that torchao fuses into their layers during training."""
        if not any(norm.target is aten.batch_norm.default for norm in foldable_norms(model)):
            return set()
        return self._annotator(model).trained_norms()

    def _annotator(self, model: fx.GraphModule) -> Annotator:
        measure = partial(measure_spans, model, self.examples) if self.examples else None
        return Annotator(model, self.backend, self.config_of, self.target(), self.inputs_too, measure)

    def _is_qat(self) -> bool:
        settings = (self.everywhere, self.io_config, *self.by_name.values(), *self.by_type.values())
        nodes = (config for _, config in self.by_node)
        return any(c is not None and c.is_qat for c in (*settings, *self.by_operator.values(), *nodes))

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for other in self.others:
            other.annotate(model)
        if self.io_config is not None:
            annotate_io(model, self.io_config)
        annotator = self._annotator(model)
        annotator.run()
        self.unquantized = annotator.unquantized
        if self.integer_io and self.everywhere is not None and not self.everywhere.is_dynamic:
            annotate_float_io(model, self.everywhere)
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to do: annotation checks the backend's rules."""

    def config_of(self, op: Op, row: OpDef, node: fx.Node) -> QuantizationConfig | None:
        """The most specific setting for an operator."""
        if self.filter is not None and not self.filter(node):
            return None
        for matches, config in reversed(self.by_node):
            if matches(node):
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
        """The names, in the op table, of the operators that can be quantized."""
        rows = cls.backend.rows.values()
        return sorted(r.op for r in rows if r.op in OPS and {STATIC, DYNAMIC} & set(r.precisions))


def _require_config(config: Any) -> QuantizationConfig | None:
    if config is not None and not isinstance(config, QuantizationConfig):
        remedy = "Create one with get_symmetric_quantization_config(), or pass None to leave the operators in float."
        raise UsageError("quantization config", "must be a QuantizationConfig or None", value=type(config).__name__,
                         remedy=remedy)  # fmt: skip
    return config


def _found_by(find_nodes: Callable[[Any], Iterable[fx.Node]]) -> Callable[[fx.Node], bool]:
    """A predicate: true for the nodes that a finder returns for the module of the node."""
    found: dict[tuple[int, int], set[fx.Node]] = {}  # of the last module, as nodes are asked one by one

    def matches(node: fx.Node) -> bool:
        key = id(node.graph), len(node.graph.nodes)
        if key not in found:
            found.clear()
            found[key] = set(find_nodes(node.graph.owning_module))
        return node in found[key]

    return matches


def _operator_name(kind: Any) -> str:
    """The key of an operator's setting: the overload, or the op table's name for a packet of overloads."""
    name = str(kind)
    if isinstance(kind, torch._ops.OpOverload) or name in OPS:
        return name
    names = [row.name for row in OPS.values() if any(n.startswith(f"{name}.") for n in row.aten)]
    if not names:
        raise UsageError(f"operator {name!r}", "is not in the op table", remedy=did_you_mean(name, OPS))
    return names[0]

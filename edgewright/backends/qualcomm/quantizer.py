"""``QnnQuantizer`` and its presets; the operator table determines what is quantized."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import fx

from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.schemes import ModuleQConfig, QuantDtype, get_qnn_quantization_config
from edgewright.backends.qualcomm.target import (
    BLOCK_MULTIPLE,
    BLOCKWISE_ARCH,
    INT16_WEIGHTS_ARCH,
    QcomChipset,
    QnnTarget,
    chipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.errors import UsageError
from edgewright.hints import did_you_mean
from edgewright.ir.ports import Weight
from edgewright.quantize.block_scales import Block, in_blocks
from edgewright.quantize.fold_batch_norm import fold_norms
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import QuantizationConfig
from edgewright.quantize.simplify import simplify_operators
from edgewright.quantize.state import functionalize_state_writes

log = logging.getLogger("edgewright.qualcomm")


def get_submodule_type_predicate(module_type_str: str) -> Callable[[fx.Node], bool]:
    """A predicate that is true for nodes in a module whose class name contains the text."""
    return lambda node: any(module_type_str in str(kind) for _, kind in node.meta.get("nn_module_stack", {}).values())


def get_submodule_name_predicate(module_name_str: str) -> Callable[[fx.Node], bool]:
    """A predicate that is true for nodes in a module whose path contains the text."""
    return lambda node: any(module_name_str in path for path, _ in node.meta.get("nn_module_stack", {}).values())


class QnnQuantizer(TableQuantizer):
    """Quantizes for a Hexagon processor, through ``prepare_pt2e`` or ``prepare_qat_pt2e`` of torchao.

    >>> from edgewright.backends.qualcomm import QnnQuantizer, QuantDtype
    >>> quantizer = QnnQuantizer(soc_model="SM8650")
    >>> quantizer.set_default_quant_config(QuantDtype.use_16a8w, is_conv_per_channel=True)
    """

    backend = BACKEND
    presets: ClassVar = {
        "int8": get_qnn_quantization_config,
        "a16w8": lambda: get_qnn_quantization_config(QuantDtype.use_16a8w),
        "a16w16": lambda: get_qnn_quantization_config(QuantDtype.use_16a16w),
        "a16w4": lambda: get_qnn_quantization_config(QuantDtype.use_16a4w),
        "a8w4": lambda: get_qnn_quantization_config(QuantDtype.use_8a4w),
    }

    @classmethod
    def for_target(cls, target: str | None) -> QnnQuantizer:
        result = cls() if target is None else cls(target)
        result.by_operator.clear()  # presets apply to all operators
        return result

    def __init__(self, soc_model: Any = QcomChipset.SM8750) -> None:
        super().__init__()
        htp = generate_htp_compiler_spec(use_fp16=True)
        self._target = QnnTarget.of(generate_qnn_executorch_compiler_spec(chipset(soc_model), htp))
        self._annotations: list[Callable[[fx.GraphModule], None]] = []
        self._discarded: frozenset[str] = frozenset()
        self._blocks: dict[str, Block] = {}
        self._blocks_used: set[str] = set()  # names of ``block_size_map`` that matched
        self._discards_used: set[str] = set()  # discarded names that matched
        self._default = ModuleQConfig()
        self._submodules: list[tuple[Callable[[fx.Node], bool], ModuleQConfig | QuantizationConfig | None]] = []
        self.set_default_quant_config()

    def target(self) -> QnnTarget:
        return self._target

    def set_default_quant_config(
        self, quant_dtype: QuantDtype = QuantDtype.use_8a8w, is_qat: bool = False, is_conv_per_channel: bool = False,
        is_linear_per_channel: bool = False, is_embedding_per_channel: bool = False, act_observer: Any = None,
        act_symmetric: bool = False, eps: float | None = None,
    ) -> None:  # fmt: skip
        """Set the default scheme."""
        result = ModuleQConfig(
            quant_dtype, is_qat, is_conv_per_channel, is_linear_per_channel, is_embedding_per_channel, act_observer,
            act_symmetric, eps,
        )  # fmt: skip
        self._default = result
        self.set_global(result.config(linear=False))
        self.set_operator_type("linear", result.config(linear=True))

    def set_block_size_map(self, block_size_map: Mapping[str, Sequence[int]]) -> None:
        """Block sizes of weights by node name: ``{"conv2d": (1, 32, 1, 1)}``. Only for the scheme
        ``use_16a4w_block``."""
        items = dict(block_size_map) if isinstance(block_size_map, Mapping) else {"": None}
        for name, block in items.items():
            if not isinstance(name, str) or not isinstance(block, list | tuple):
                rule = 'must hold blocks by the names of nodes: {"conv2d": (1, 32, 1, 1)}'
                raise UsageError("block_size_map", rule, value=block_size_map)
        self._blocks = {name: tuple(block) for name, block in items.items()}

    def add_custom_quant_annotations(
        self, custom_quant_annotations: Sequence[Callable[[fx.GraphModule], None]]
    ) -> None:
        """Functions that annotate a module first; their annotations take precedence over the operator table."""
        if not isinstance(custom_quant_annotations, list | tuple) or not all(map(callable, custom_quant_annotations)):
            raise UsageError("custom_quant_annotations", "must be functions of a graph module, in a list",
                             value=custom_quant_annotations)  # fmt: skip
        self._annotations = list(custom_quant_annotations)

    def add_discard_nodes(self, nodes: Iterable[str]) -> None:
        """Names of nodes that are not quantized, including the nodes they are decomposed to."""
        items = [nodes] if isinstance(nodes, str) or not isinstance(nodes, Iterable) else list(nodes)
        if isinstance(nodes, str) or not all(isinstance(name, str) for name in items):
            raise UsageError("discard_nodes", "must be names of nodes, in a list", value=nodes)
        self._discarded = frozenset(items)

    def add_discard_ops(self, ops: Iterable[Any]) -> None:
        """Operators (``torch.ops.aten.add.Tensor``) that are not quantized."""
        if isinstance(ops, str) or not isinstance(ops, Iterable):
            raise UsageError("discard_ops", "must be operators, in a list", value=ops)
        for op in ops:
            self.set_operator_type(op, None)

    def set_submodule_qconfig_list(
        self, submodule_qconfig_list: Sequence[tuple[Callable[[fx.Node], bool], Any]]
    ) -> None:
        """Configurations by predicate over nodes (a ``ModuleQConfig``, or None for no quantization); the first match
        applies."""
        for pair in submodule_qconfig_list:
            predicate, config = pair if isinstance(pair, tuple) and len(pair) == 2 else (None, None)
            if not callable(predicate) or not isinstance(config, ModuleQConfig | QuantizationConfig | None):
                rule = "must hold pairs of a function of a node and a ModuleQConfig"
                raise UsageError("submodule_qconfig_list", rule, value=pair)
        self._submodules = list(submodule_qconfig_list)

    def config_of(self, op: Any, row: Any, node: fx.Node) -> QuantizationConfig | None:
        names = {node.name, *op.origin.exported_nodes} & self._discarded
        if names:
            self._discards_used |= names
            return None
        config = super().config_of(op, row, node)
        scheme: QuantDtype | None = self._default.quant_dtype
        for predicate, setting in self._submodules:
            if predicate(node):
                if isinstance(setting, ModuleQConfig):
                    scheme, config = setting.quant_dtype, setting.config(row.name == "linear")
                else:
                    scheme, config = None, setting
                break
        self._check_weights(config, row, node)
        return self._with_blocks(config, scheme, op, node)

    def _check_weights(self, config: QuantizationConfig | None, row: Any, node: fx.Node) -> None:
        """Raise if the SoC does not support 16-bit weights: otherwise all such operators would run on the CPU."""
        has_weights = any(isinstance(port, Weight) for port in row.ports.values())
        wide = config is not None and has_weights and getattr(config.weight, "dtype", None) == torch.int16
        if wide and row.name in BACKEND.rows and self._target.htp.arch < INT16_WEIGHTS_ARCH:
            remedy = "Use use_16a8w, or leave the node to the CPU with add_discard_nodes."
            raise UsageError(
                f"{row.name} {node.name!r} in use_16a16w", self._arch_message(INT16_WEIGHTS_ARCH), remedy=remedy
            )

    def _arch_message(self, arch: int) -> str:
        return f"needs Hexagon v{arch}, and {self._target.soc.name} has v{self._target.htp.arch}"

    def _with_blocks(
        self, config: QuantizationConfig | None, scheme: QuantDtype | None, op: Any, node: fx.Node
    ) -> QuantizationConfig | None:
        if node.name not in self._blocks or config is None:
            return config
        self._blocks_used.add(node.name)
        if scheme != QuantDtype.use_16a4w_block:
            raise UsageError(f"block_size_map[{node.name!r}]", "must be of a node of the scheme use_16a4w_block",
                             value=None if scheme is None else scheme.name)  # fmt: skip
        if self._target.htp.arch < BLOCKWISE_ARCH:
            remedy = "Use use_16a4w, without blocks."
            raise UsageError(f"block_size_map[{node.name!r}]", self._arch_message(BLOCKWISE_ARCH), remedy=remedy)
        weight = op.args.get("weight")
        if weight is None or op.args.get("groups", 1) != 1 or "transpose" in op.kind:
            raise UsageError(f"block_size_map[{node.name!r}]", "must be of a linear layer or a plain convolution",
                             value=op.kind)  # fmt: skip
        result = in_blocks(config, self._blocks[node.name], node.name, weight.bound)
        if (
            result.block[1] % BLOCK_MULTIPLE and result.block[1] != weight.bound[1]
        ):  # a single block is per-channel quantization
            rule = f"must be of a multiple of {BLOCK_MULTIPLE} input channels, or of all: the HTP has no others"
            raise UsageError(f"block_size_map[{node.name!r}]", rule, value=result.block)
        return result

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for annotation in self._annotations:
            annotation(model)
        self._blocks_used.clear()
        self._discards_used.clear()
        result = super().annotate(model)
        self._warn_discarded(model)
        unmatched = sorted(set(self._blocks) - self._blocks_used)
        if unmatched:
            calls = [n.name for n in model.graph.nodes if n.op == "call_function"]
            names = [name for name in calls if "conv" in name or "linear" in name]
            raise UsageError("block_size_map", "must name nodes that are quantized", value=", ".join(unmatched),
                             remedy=f"There are {', '.join(names[:8])}.")  # fmt: skip
        return result

    def _warn_discarded(self, model: fx.GraphModule) -> None:
        """Warn about names that match no node."""
        names_present = [name for n in model.graph.nodes for name in (n.name, *n.meta.get("source_nodes", ()))]
        for name in sorted(self._discarded - self._discards_used - set(names_present)):
            hint = did_you_mean(name, [n.name for n in model.graph.nodes if n.op == "call_function"])
            log.warning("discard_nodes: no node is called %r%s", name, f". {hint}" if hint else "")

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Decompose as lowering does, write state functionally, and simplify operators with several results."""
        result = functionalize_state_writes(super().transform_for_annotation(model))
        return simplify_operators(fold_norms(result, self._blocks) if self._blocks else result)

"""``QnnQuantizer``: presets for quantizing what a Hexagon processor runs. The rows say the rest."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import fx
from torchao.quantization.pt2e import FakeQuantize

from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.partitioner import KEPT
from edgewright.backends.qualcomm.target import (
    BLOCK,
    QcomChipset,
    QnnTarget,
    chipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.errors import UsageError
from edgewright.quantize.blocks import Block, in_blocks
from edgewright.quantize.norms import fold_norms
from edgewright.quantize.quantizer import TableQuantizer
from edgewright.quantize.recipes import QuantizationConfig, symmetric_config, weight_spec
from edgewright.quantize.simpler import simpler
from edgewright.quantize.state import functional_writes


class QuantDtype(enum.IntEnum):
    """How activations and weights are held: ``use_16a4w`` has 16 bits for the ones and 4 for the others."""

    use_16a16w = 0
    use_16a8w = 1
    use_16a4w = 2
    use_16a4w_block = 3
    use_8a8w = 4
    use_8a4w = 5
    use_fp16a8w = 6  # this and the next are ExecuTorch's; see ``_OTHERS``
    use_16a2w = 7


# Bits of activations, and the largest weight.
_SCHEMES = {
    QuantDtype.use_8a8w: (8, 127),
    QuantDtype.use_16a16w: (16, 32767),
    QuantDtype.use_16a8w: (16, 127),
    QuantDtype.use_16a4w: (16, 7),
    QuantDtype.use_16a4w_block: (16, 7),  # and in blocks, those of ``set_block_size_map``
    QuantDtype.use_8a4w: (8, 7),
}
# What ExecuTorch has besides, and why it is refused.
_OTHERS = {
    QuantDtype.use_fp16a8w: "real numbers beside integer weights have no operator on the HTP",
    QuantDtype.use_16a2w: "weights of 2 bits are not known to be right on the HTP",
}
_EPSILON = 1e-4  # the range that the smallest scale has


def get_qnn_quantization_config(
    quant_dtype: QuantDtype = QuantDtype.use_8a8w, is_per_channel: bool = True, is_qat: bool = False,
    act_observer: Any = None, eps: float | None = None, act_symmetric: bool = False,
) -> QuantizationConfig:  # fmt: skip
    """A scheme, with a scale for each output channel of weights or one for all. ``act_observer``: who watches
    activations while they are calibrated; ``eps``: the smallest scale; ``act_symmetric``: zero lies in the middle of
    activations, but of those whose range is known."""
    if quant_dtype not in _SCHEMES:
        names = ", ".join(s.name for s in _SCHEMES)
        raise UsageError("quant_dtype", f"must be one of {names}", value=getattr(quant_dtype, "name", quant_dtype),
                         remedy=_OTHERS.get(quant_dtype, ""))  # fmt: skip
    bits, most = _SCHEMES[quant_dtype]
    last = (1 << bits) - 1
    epsilon = _EPSILON / last if eps is None else eps
    byte = min(most, 127)
    ends = ((0, last), (-byte, byte))
    made = symmetric_config(is_per_channel, is_qat, False, *ends, bits=bits, unsigned=True, epsilon=epsilon)
    if act_observer is not None:
        observer = act_observer.with_args(eps=epsilon)
        if is_qat:
            observer = FakeQuantize.with_args(observer=act_observer, eps=epsilon)
        made = replace(made, activation=replace(made.activation, observer_or_fake_quant_ctr=observer))
    if act_symmetric:
        made = replace(made, activation=replace(made.activation, qscheme=torch.per_tensor_symmetric))
    if most > byte:
        specs = {name: weight_spec(axis, is_qat, (-most, most), epsilon) for name, axis in (("one", None), ("by", 0))}
        made = replace(made, weight=specs["by" if is_per_channel else "one"], weight_per_tensor=specs["one"])
    return made


@dataclass
class ModuleQConfig:
    """How the nodes of a submodule are quantized."""

    quant_dtype: QuantDtype = QuantDtype.use_8a8w
    is_qat: bool = False
    is_conv_per_channel: bool = False
    is_linear_per_channel: bool = False
    is_embedding_per_channel: bool = False
    act_observer: Any = None
    act_symmetric: bool = False
    eps: float | None = None

    def __post_init__(self) -> None:
        if self.is_embedding_per_channel:
            rule = "must be False: what an embedding gives has one scale on the HTP, and so has its table"
            raise UsageError("is_embedding_per_channel", rule, value=True, remedy="Leave it out, or take use_16a8w.")

    def config(self, linear: bool) -> QuantizationConfig:
        """Of linear layers, or of all else."""
        by_channel = self.is_linear_per_channel if linear else self.is_conv_per_channel
        watched = (self.act_observer, self.eps, self.act_symmetric)
        return get_qnn_quantization_config(self.quant_dtype, by_channel, self.is_qat, *watched)


def get_submodule_type_predicate(module_type_str: str) -> Callable[[fx.Node], bool]:
    """True of nodes inside a module whose class has this text in its name."""
    return lambda node: any(module_type_str in str(kind) for _, kind in node.meta.get("nn_module_stack", {}).values())


def get_submodule_name_predicate(module_name_str: str) -> Callable[[fx.Node], bool]:
    """True of nodes inside a module that has this text in its path."""
    return lambda node: any(module_name_str in path for path, _ in node.meta.get("nn_module_stack", {}).values())


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
        "a16w16": lambda: get_qnn_quantization_config(QuantDtype.use_16a16w),
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
        self._blocks: dict[str, Block] = {}
        self._found: set[str] = set()  # of the nodes that are to be in blocks
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
        """How everything is quantized that no other setting fits."""
        made = ModuleQConfig(
            quant_dtype, is_qat, is_conv_per_channel, is_linear_per_channel, is_embedding_per_channel, act_observer,
            act_symmetric, eps,
        )  # fmt: skip
        self._default = made
        self.set_global(made.config(linear=False))
        self.set_operator_type("linear", made.config(linear=True))

    def set_block_size_map(self, block_size_map: Mapping[str, Sequence[int]]) -> None:
        """How large the blocks of weights are, by the names of nodes: ``{"conv2d": (1, 32, 1, 1)}``. Of the scheme
        ``use_16a4w_block`` only."""
        self._blocks = {str(name): tuple(block) for name, block in block_size_map.items()}

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
        self, submodule_qconfig_list: Sequence[tuple[Callable[[fx.Node], bool], Any]]
    ) -> None:
        """How nodes are quantized that a function is true of (a ``ModuleQConfig``, or None to leave them alone); the
        first that is holds."""
        for pair in submodule_qconfig_list:
            wanted, config = pair if isinstance(pair, tuple) and len(pair) == 2 else (None, None)
            if not callable(wanted) or not isinstance(config, ModuleQConfig | QuantizationConfig | None):
                rule = "must hold pairs of a function of a node and a ModuleQConfig"
                raise UsageError("submodule_qconfig_list", rule, value=pair)
        self._submodules = list(submodule_qconfig_list)

    def config_of(self, op: Any, row: Any, node: fx.Node) -> QuantizationConfig | None:
        if node.name in self._discarded:
            return None
        config = super().config_of(op, row, node)
        scheme: QuantDtype | None = self._default.quant_dtype
        for wanted, given in self._submodules:
            if wanted(node):
                scheme = getattr(given, "quant_dtype", None)
                config = given.config(row.name == "linear") if isinstance(given, ModuleQConfig) else given
                break
        return self._in_blocks(config, scheme, op, node)

    def _in_blocks(
        self, config: QuantizationConfig | None, scheme: QuantDtype | None, op: Any, node: fx.Node
    ) -> QuantizationConfig | None:
        if node.name not in self._blocks or config is None:
            return config
        self._found.add(node.name)
        if scheme != QuantDtype.use_16a4w_block:
            raise UsageError(f"block_size_map[{node.name!r}]", "must be of a node of the scheme use_16a4w_block",
                             value=getattr(scheme, "name", scheme))  # fmt: skip
        weight = op.args.get("weight")
        if weight is None or op.args.get("groups", 1) != 1 or "transpose" in op.kind:
            raise UsageError(f"block_size_map[{node.name!r}]", "must be of a linear layer or a plain convolution",
                             value=op.kind)  # fmt: skip
        made = in_blocks(config, self._blocks[node.name], node.name, weight.bound)
        if made.block[1] % BLOCK and made.block[1] != weight.bound[1]:  # one for all is a scale for each channel
            rule = f"must be of a multiple of {BLOCK} input channels, or of all: the HTP has no others"
            raise UsageError(f"block_size_map[{node.name!r}]", rule, value=made.block)
        return made

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for annotation in self._annotations:
            annotation(model)
        self._found.clear()
        made = super().annotate(model)
        lost = sorted(set(self._blocks) - self._found)
        if lost:
            calls = [n.name for n in model.graph.nodes if n.op == "call_function"]
            names = [name for name in calls if "conv" in name or "linear" in name]
            raise UsageError("block_size_map", "must name nodes that are quantized", value=", ".join(lost),
                             remedy=f"There are {', '.join(names[:8])}.")  # fmt: skip
        return made

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """As lowering decomposes, simpler where only single results can be quantized, and state written as rows do."""
        made = functional_writes(super().transform_for_annotation(model))
        return simpler(fold_norms(made, self._blocks) if self._blocks else made)

"""torchao's ``prepare_pt2e`` and ``convert_pt2e``, with batch norms kept from it where it does wrong or is slow.

``prepare_pt2e`` makes every batch norm behind a convolution part of it, also where others read the convolution too, or
its weights; and ``convert_pt2e`` looks for what training leaves behind wherever it sees a batch norm. Such norms go by
other names meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import FakeQuantizeBase
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

aten = torch.ops.aten
_TURNED = (aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
_LAYERS = (*_TURNED, *(getattr(getattr(aten, f"conv{rank}d"), name) for rank in (1, 2, 3)
                       for name in ("default", "padding")), aten.linear.default)  # fmt: skip


def prepared(module: fx.GraphModule, quantizer: Quantizer) -> fx.GraphModule:
    """A model with observers, to be calibrated. The quantizer is one of ours: it gives batch norms their names back."""
    readers = Counter(node.args[1] for node in module.graph.nodes if node.target in _LAYERS)
    _hide([norm for norm in _norms(module.graph) if not _is_part(norm, readers)])
    made: fx.GraphModule = prepare_pt2e(module, quantizer)
    return made


def converted(calibrated: fx.GraphModule) -> fx.GraphModule:
    """A calibrated or trained model as one that quantizes and dequantizes."""
    trained = any(isinstance(module, FakeQuantizeBase) for module in calibrated.modules())
    _hide([] if trained else _norms(calibrated.graph))
    made: fx.GraphModule = convert_pt2e(calibrated)
    return show_norms(made)


def show_norms(module: fx.GraphModule) -> fx.GraphModule:
    """Give batch norms their names back."""
    hidden = [node for node in module.graph.nodes if node.target in _NAMES]
    for node in hidden:
        node.target = _NAMES[node.target]
    if hidden:
        module.recompile()
    return module


def _norms(graph: fx.Graph) -> list[fx.Node]:
    names = tuple(_NAMES.values())
    return [node for node in graph.nodes if node.target in names]


def _hide(norms: Iterable[fx.Node]) -> None:
    others = {norm: name for name, norm in _NAMES.items()}
    for node in norms:
        node.target = others[node.target]


def _is_part(norm: fx.Node, readers: Counter[Any]) -> bool:
    """False if a batch norm is behind a layer that cannot take it in: others read it or its weights, the weights are
    computed, or their channels are not those of the result."""
    layer: Any = norm.args[0]
    if layer.target not in _LAYERS:
        return True
    groups = [*layer.args[6:], layer.kwargs.get("groups", 1)][0] if layer.target in _TURNED else 1
    stored = all(node.op == "get_attr" for node in layer.args[1:3] if node is not None)
    return stored and len(layer.users) == 1 and readers[layer.args[1]] == 1 and groups == 1


def _norm(*args: Any) -> Any:
    return aten.batch_norm.default(*args)


def _frozen_norm(*args: Any) -> Any:
    return aten._native_batch_norm_legit_no_training.default(*args)


_NAMES: dict[Any, Any] = {
    _norm: aten.batch_norm.default,
    _frozen_norm: aten._native_batch_norm_legit_no_training.default,
}

"""Rewrites in-place operators on buffers to a computation and ``copy_``, the only write that torchao recognizes.

torchao folds constants, and considers every buffer without a ``copy_`` constant: ``seen.add_(1)`` would be computed
once, at compile time. The equivalent ``seen.copy_(seen + 1)`` is preserved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def functionalize_buffer_writes(module: fx.GraphModule) -> fx.GraphModule:
    """Replace in-place operators on buffers by a functional operator and a copy."""
    for node in list(module.graph.nodes):
        functional = _functional_variant(node) if node.op == "call_function" else None
        if functional is None:
            continue
        state: Any = node.args[0]
        with module.graph.inserting_before(node):
            result = module.graph.call_function(functional, node.args, node.kwargs)
            copy = module.graph.call_function(aten.copy_.default, (state, result))
        result.meta, copy.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(copy)
        module.graph.erase_node(node)
    module.recompile()
    return module


def _functional_variant(node: fx.Node) -> Any:
    """The functional variant of a node's operator, if the node writes to a buffer in place."""
    target: Any = node.target
    first = node.args[0] if node.args else None
    writes = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    if not writes or target is aten.copy_.default or not isinstance(first, fx.Node) or first.op != "get_attr":
        return None
    name = target._schema.name.partition("::")[2]
    packet = getattr(aten, name[:-1], None) if name.endswith("_") else None
    return getattr(packet, target._overloadname, None) if packet is not None else None

"""Writes to a model's state, in the form that torchao knows.

torchao folds what it takes for constants, and takes every buffer for one that nothing copies to: ``seen.add_(1)`` would
be computed once, for ever. ``seen.copy_(seen + 1)`` means the same and stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def spell_out_writes(module: fx.GraphModule) -> fx.GraphModule:
    """Operators that write to buffers in place become a computation and a copy."""
    for node in list(module.graph.nodes):
        plain = _plain(node) if node.op == "call_function" else None
        if plain is None:
            continue
        state: Any = node.args[0]
        with module.graph.inserting_before(node):
            made = module.graph.call_function(plain, node.args, node.kwargs)
            written = module.graph.call_function(aten.copy_.default, (state, made))
        made.meta, written.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(written)
        module.graph.erase_node(node)
    module.recompile()
    return module


def _plain(node: fx.Node) -> Any:
    """The operator without its effect, if a node writes to a buffer with one that has such a twin."""
    target: Any = node.target
    first = node.args[0] if node.args else None
    writes = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    if not writes or target is aten.copy_.default or not isinstance(first, fx.Node) or first.op != "get_attr":
        return None
    name = target._schema.name.partition("::")[2]
    packet = getattr(aten, name[:-1], None) if name.endswith("_") else None
    return getattr(packet, target._overloadname, None) if packet is not None else None

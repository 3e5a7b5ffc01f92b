"""Control flow: ``cond``, ``map``, ``scan`` and ``while_loop`` through the front end."""

from __future__ import annotations

from typing import Any


def lower_higher_order(rewriter: Any, exported: Any, node: Any, args: Any) -> Any:
    raise rewriter.unsupported(node.target, "is control flow that has no lowering")


def import_branches(importer: Any, op: Any, node: Any) -> None:
    return None

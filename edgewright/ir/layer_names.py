"""Names of layers as people read them: the modules of the user's model that operators come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgewright.ir.graph import Graph, Op, Origin, Value


def layer_of(origin: Origin) -> str:
    """The module that an operator comes from; the node, if the model computes it outside of any module; or ''."""
    return origin.module or origin.node


def layer_name(op: Op) -> str:
    """The layer of an operator, or the operator itself if its origin is not known."""
    return layer_of(op.origin) or op.name


def summarize_layers(origins: Iterable[Origin]) -> str:
    """One name for operators that run as one: their module, or what distinguishes their modules in braces.

    Modules that contain another of them are left out, and so are operators outside of any module.

    >>> def layers(*modules):
    ...     return summarize_layers(Origin(module=m) for m in modules)
    >>> layers("features.1.conv.2", "features.1")
    'features.1.conv.2'
    >>> layers("layers.0.mlp.0", "layers.0.mlp.1"), layers("a.0", "a.1.x", "a.2")
    ('layers.0.mlp.{0, 1}', 'a.{0 … 2}')
    >>> layers("stem", "head"), summarize_layers([Origin(node="mean")]), layers()
    ('stem, head', 'mean', '')
    """
    listed = list(dict.fromkeys(origins))
    modules = list(dict.fromkeys(o.module for o in listed if o.module))
    if not modules:
        return _join(list(dict.fromkeys(o.node for o in listed if o.node)))
    parents = {path[:at] for path in modules for at, letter in enumerate(path) if letter == "."}
    return _shorten([path for path in modules if path not in parents])


def fill_origins(graph: Graph) -> None:
    """Give operators that a translation inserted the origin of what reads their result, or else of what they read."""
    if not any(layer_of(op.origin) for op in graph.ops):
        return
    readers: dict[Value, Origin] = {}
    for op in reversed(graph.ops):
        if not layer_of(op.origin):
            op.origin = next((readers[v] for v in op.outputs if v in readers), op.origin)
        if layer_of(op.origin):
            readers.update(dict.fromkeys(op.inputs(), op.origin))
    makers: dict[Value, Origin] = {}
    for op in graph.ops:
        if not layer_of(op.origin):
            op.origin = next((makers[v] for v in op.inputs() if v in makers), op.origin)
        if layer_of(op.origin):
            makers.update((v, op.origin) for v in op.outputs if v is not None)


def attribute_conversions(graph: Graph, kind: str) -> None:
    """Give operators of this kind that quantization added between layers the origin of their neighbors."""
    added = {op: op.origin for op in graph.ops if op.kind == kind and not op.origin.module}
    for op in added:
        op.origin = Origin()
    fill_origins(graph)
    for op, origin in added.items():
        op.origin = op.origin if layer_of(op.origin) else origin


def _shorten(paths: Sequence[str]) -> str:
    if len(paths) == 1:
        return paths[0]
    parts = [path.split(".") for path in paths]
    shared = next((i for i, column in enumerate(zip(*parts, strict=False)) if len(set(column)) > 1), 0)
    rest = _join([".".join(path[shared:]) for path in parts])
    return f"{'.'.join(parts[0][:shared])}.{{{rest}}}" if shared else rest


def _join(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"

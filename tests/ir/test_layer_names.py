"""Names of layers: of what a translation inserted, and of what runs as one."""

from __future__ import annotations

import numpy as np

from edgewright.ir.graph import Graph, Op, Origin, Value
from edgewright.ir.layer_names import attribute_conversions, fill_origins, layer_name, summarize_layers


def chain(*steps: tuple[str, Origin]) -> Graph:
    values = [Value(f"v{i}", np.dtype(np.float32), (1,)) for i in range(len(steps) + 1)]
    ops = [Op(kind, {"self": values[i]}, [values[i + 1]], origin) for i, (kind, origin) in enumerate(steps)]
    return Graph("g", [values[0]], [values[-1]], ops)


def layers(graph: Graph) -> list[str]:
    return [op.origin.module or op.origin.node for op in graph.ops]


def test_inserted_operators_belong_to_their_reader_or_else_to_what_they_read() -> None:
    conv, head = Origin(module="conv"), Origin(module="head")
    none = Origin()
    graph = chain(("a", none), ("b", none), ("c", conv), ("d", none), ("e", head), ("f", none), ("g", none))
    fill_origins(graph)
    assert layers(graph) == ["conv", "conv", "conv", "head", "head", "head", "head"]
    unnamed = chain(("a", none), ("b", none))
    fill_origins(unnamed)
    assert layers(unnamed) == ["", ""]


def test_conversions_between_layers_belong_to_layers() -> None:
    node = Origin(node="quantize_per_tensor_4")
    graph = chain(("core.convert", node), ("core.linear", Origin(module="fc")), ("core.convert", node), ("x", node))
    attribute_conversions(graph, "core.convert")
    assert layers(graph) == ["fc", "fc", "quantize_per_tensor_4", "quantize_per_tensor_4"]
    alone = chain(("core.convert", node))
    attribute_conversions(alone, "core.convert")
    assert layers(alone) == ["quantize_per_tensor_4"]


def test_a_name_for_operators_that_run_as_one() -> None:
    def summary(*modules: str) -> str:
        return summarize_layers([Origin(module=m) if m[0] != "%" else Origin(node=m[1:]) for m in modules])

    assert summary("a.b", "a.b") == "a.b"
    assert summary("a.b.c", "a.b", "a", "%add") == "a.b.c", "containers and nodes outside of modules say less"
    assert summary("a.b.0", "a.b.1", "a.c") == "a.{b.0 … c}"
    assert summary("ab.0", "a.0") == "ab.0, a.0"
    assert summary("%mean", "%add") == "mean, add"
    assert summary("%a", "%b", "%c") == "a … c"


def test_an_operator_without_an_origin_is_named_by_what_it_does() -> None:
    (op,) = chain(("core.conv2d", Origin())).ops
    assert layer_name(op) == "conv2d"

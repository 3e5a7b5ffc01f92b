"""Groups of operators: convex, without cycles, complete. On any graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.ir.graph import Graph, Op, Value
from edgewright.lowering.partition.group import duplicate_into_groups, extract, group_ops
from tests.support.examples import given_examples

FLOAT = np.dtype(np.float32)


def chain(wiring: list[list[int]]) -> Graph:
    """A graph whose operator ``i`` reads the results of ``wiring[i]``; -1 is the graph's input."""
    source = Value("x", FLOAT, (2,), (0,))
    graph = Graph("g", [source])
    for i, reads in enumerate(wiring):
        inputs = [source if r < 0 else graph.ops[r].outputs[0] for r in reads]
        graph.ops.append(Op("relu", {"tensors": inputs}, [Value(f"v{i}", FLOAT, (2,), (0,))]))
    graph.outputs = [graph.ops[-1].outputs[0]]
    return graph


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, set[int]]:
    count = draw(st.integers(1, 24))
    wiring = [draw(st.lists(st.integers(-1, i - 1), min_size=1, max_size=3)) for i in range(count)]
    graph = chain(wiring)
    taken = draw(st.sets(st.integers(0, count - 1)))
    return graph, {id(graph.ops[i]) for i in taken}


def acyclic(graph: Graph, groups: list[list[Op]]) -> bool:
    """True if the graph can be run with every group as one call."""
    unit = {id(op): ("group", i) for i, ops in enumerate(groups) for op in ops}
    made_in = {id(o): unit.get(id(op), ("op", id(op))) for op in graph.ops for o in op.outputs}
    needs: dict[object, set[object]] = {}
    for op in graph.ops:
        own = unit.get(id(op), ("op", id(op)))
        needs.setdefault(own, set()).update(made_in[id(v)] for v in op.inputs() if id(v) in made_in)
        needs[own].discard(own)
    while needs:
        ready = [u for u, before in needs.items() if not before]
        if not ready:
            return False
        for u in ready:
            del needs[u]
        for before in needs.values():
            before.difference_update(ready)
    return True


@given_examples(graphs(), few=80, many=1000)
def test_everything_taken_is_in_one_group_and_nothing_goes_in_circles(made: tuple[Graph, set[int]]) -> None:
    graph, taken = made
    groups = group_ops(graph, lambda op: id(op) in taken)
    assert sorted(id(op) for ops in groups for op in ops) == sorted(taken)
    assert all(groups)
    assert acyclic(graph, groups)


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_a_group_reads_and_gives_what_crosses_its_edge(made: tuple[Graph, set[int]]) -> None:
    graph, taken = made
    for ops in group_ops(graph, lambda op: id(op) in taken):
        part = extract(graph, ops, "part")
        inside = {id(o) for op in ops for o in op.outputs}
        outside = [op for op in graph.ops if op not in ops]
        read = {id(v) for op in outside for v in op.inputs()} | {id(v) for v in graph.outputs}
        assert {id(v) for v in part.outputs} == inside & read
        assert {id(v) for v in part.inputs} == {id(v) for op in ops for v in op.inputs()} - inside


@settings(max_examples=50, deadline=None)
@given(graphs())
def test_single_makes_a_group_of_every_operator(made: tuple[Graph, set[int]]) -> None:
    graph, taken = made
    groups = group_ops(graph, lambda op: id(op) in taken, single=True)
    assert [len(ops) for ops in groups] == [1] * len(taken)


def test_a_refused_operator_between_two_taken_ones_parts_them() -> None:
    graph = chain([[-1], [0], [0, 1]])  # a → b → c and a → c, b refused
    groups = group_ops(graph, lambda op: op is not graph.ops[1])
    assert [[graph.ops.index(op) for op in ops] for ops in groups] == [[0], [2]]


def test_what_does_not_depend_on_the_refused_stays_together() -> None:
    graph = chain([[-1], [0], [0], [2], [1, 3]])  # b refused, beside a → c → d; e reads both
    groups = group_ops(graph, lambda op: op is not graph.ops[1])
    assert [[graph.ops.index(op) for op in ops] for ops in groups] == [[0, 2, 3], [4]]


def test_every_group_has_its_own_copy_of_what_is_private() -> None:
    """0 makes, 1 is private; 2 and 3 read it in two groups, 4 in none."""
    graph = chain([[-1], [0], [1], [1], [1], [2, 3, 4]])
    made, private, first, second, outside, last = graph.ops
    groups = [[made, private, first], [second]]
    copies = duplicate_into_groups(graph, groups, {private})
    (of_first,), (of_second,), (of_outside,) = (op.args["tensors"] for op in (first, second, outside))
    assert len({of_first, of_second, of_outside, private.outputs[0]}) == 4
    makers = {op.outputs[0]: op for op in graph.ops}
    assert private not in graph.ops
    assert copies == dict.fromkeys((makers[of_first], makers[of_second], makers[of_outside]), private)
    assert groups == [[made, makers[of_first], first], [makers[of_second], second]]
    assert all(copy.args == private.args for copy in copies)
    assert extract(graph, groups[0], "g").outputs == [made.outputs[0], first.outputs[0]]
    assert last.args["tensors"] == [first.outputs[0], second.outputs[0], outside.outputs[0]]


def test_a_group_that_reads_nothing_private_has_none_of_it() -> None:
    graph = chain([[-1], [0], [1]])
    made, private, outside = graph.ops
    groups = [[made], [private]]
    copies = duplicate_into_groups(graph, groups, {private})
    assert groups == [[made]]
    assert [op.outputs[0] for op in copies] == outside.args["tensors"]

"""What translations are written with: a graph's operators, replaced one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from edgewright.ir.graph import Graph, Op, Value


class GraphRewrite:
    """A graph under translation. ``ops`` are the new ones; ``value`` gives what now stands for an old value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ops: list[Op] = []
        self.readers: dict[Value, list[Op]] = {}
        self.makers = {v: op for op in graph.ops for v in op.outputs if v is not None}
        for op in graph.ops:
            for value in dict.fromkeys(op.inputs()):
                self.readers.setdefault(value, []).append(op)
        self.outputs = set(graph.outputs)
        self.done: set[Op] = set()  # operators that are part of another's translation
        self.values: dict[Value, Value] = {}

    def value(self, old: Value) -> Value:
        return self.values.get(old, old)

    def only_reader(self, value: Value) -> Op | None:
        """The operator that is alone in reading a value that nobody outside sees."""
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.outputs else None

    def emit(self, kind: str, source: Op, out: Value, /, **args: Any) -> None:
        self.ops.append(Op(kind, self._given(args), [self.value(out)], source.origin))

    def keep(self, op: Op) -> None:
        """An operator as it is, on the new values."""
        outputs = [None if v is None else self.value(v) for v in op.outputs]
        self.ops.append(Op(op.kind, self._given(op.args), outputs, op.origin, op.graphs))

    def _given(self, args: Any) -> Any:
        if isinstance(args, dict):
            return {name: self._given(a) for name, a in args.items()}
        if isinstance(args, list | tuple):
            return type(args)(self._given(a) for a in args)
        return self.value(args) if isinstance(args, Value) else args

    def finish(self) -> Graph:
        """The new graph, without what nobody reads any more."""
        ends = [[self.value(v) for v in side] for side in (self.graph.inputs, self.graph.outputs)]
        wanted, kept = set(ends[1]), []
        for op in reversed(self.ops):
            if any(v in wanted for v in op.outputs):
                kept.append(op)
                wanted |= set(op.inputs())
        return Graph(self.graph.name, ends[0], ends[1], kept[::-1])


R = TypeVar("R", bound=GraphRewrite)
Rule = Callable[[R, Op], bool]  # False if it has no way for this one


class RuleTable(Generic[R]):
    """A dialect's translations, by the names of its operators: ``@rule("CONV_2D")`` above each."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._known: dict[str, Rule[R]] = {}

    def __call__(self, *names: str) -> Callable[[Rule[R]], Rule[R]]:
        def register(made: Rule[R]) -> Rule[R]:
            for name in names:
                self._known[self._prefix + name] = made
            return made

        return register

    def apply(self, made: R, op: Op, otherwise: Rule[R] | None = None) -> None:
        """Translate an operator, or keep it as it is."""
        chosen = self._known.get(op.kind, otherwise)
        if op not in made.done and (chosen is None or not chosen(made, op)):
            made.keep(op)

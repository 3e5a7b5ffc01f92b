"""Infrastructure of dialect translations: rewrite a graph operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from edgewright.ir.graph import Graph, Op, Value


class GraphRewrite:
    """A graph being translated. ``ops`` holds the new operators; ``value`` maps an old value to its replacement."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ops: list[Op] = []
        self.readers: dict[Value, list[Op]] = {}
        self.makers = {v: op for op in graph.ops for v in op.outputs if v is not None}
        for op in graph.ops:
            for value in dict.fromkeys(op.inputs()):
                self.readers.setdefault(value, []).append(op)
        self.outputs = set(graph.outputs)
        self.done: set[Op] = set()  # operators that another's translation already covers
        self.values: dict[Value, Value] = {}

    def value(self, old: Value) -> Value:
        return self.values.get(old, old)

    def only_reader(self, value: Value) -> Op | None:
        """The single reader of a value that is not a graph output, or None."""
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.outputs else None

    def emit(self, kind: str, source: Op, out: Value, /, **args: Any) -> None:
        """Append an operator with remapped operands."""
        self.ops.append(Op(kind, self._remap(args), [self.value(out)], source.origin))

    def keep(self, op: Op) -> None:
        """Append an operator unchanged, with remapped operands."""
        outputs = [None if v is None else self.value(v) for v in op.outputs]
        self.ops.append(Op(op.kind, self._remap(op.args), outputs, op.origin, op.graphs))

    def _remap(self, args: Any) -> Any:
        if isinstance(args, dict):
            return {name: self._remap(a) for name, a in args.items()}
        if isinstance(args, list | tuple):
            return type(args)(self._remap(a) for a in args)
        return self.value(args) if isinstance(args, Value) else args

    def finish(self) -> Graph:
        """The new graph, without dead operators."""
        io = [[self.value(v) for v in side] for side in (self.graph.inputs, self.graph.outputs)]
        live, live_ops = set(io[1]), []
        for op in reversed(self.ops):
            if any(v in live for v in op.outputs):
                live_ops.append(op)
                live |= set(op.inputs())
        return Graph(self.graph.name, io[0], io[1], live_ops[::-1])


R = TypeVar("R", bound=GraphRewrite)
Rule = Callable[[R, Op], bool]  # False if the rule does not support the operator


class RuleTable(Generic[R]):
    """Translation rules of a dialect by operator name; ``@rule("CONV_2D")`` registers one."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._rules: dict[str, Rule[R]] = {}

    def __call__(self, *names: str) -> Callable[[Rule[R]], Rule[R]]:
        def register(function: Rule[R]) -> Rule[R]:
            for name in names:
                self._rules[self._prefix + name] = function
            return function

        return register

    def apply(self, rewrite: R, op: Op, default: Rule[R] | None = None) -> None:
        """Translate an operator, or keep it if no rule supports it."""
        rule = self._rules.get(op.kind, default)
        if op not in rewrite.done and (rule is None or not rule(rewrite, op)):
            rewrite.keep(op)

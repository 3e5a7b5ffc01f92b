"""A small emitter of LLVM's text: values know their types, modules know their declarations.

>>> module = Module()
>>> f = module.function("twice", [("i64", "n")], returns="i64", exported=True)
>>> f.give(f.add(f.arg("n"), f.arg("n")))
>>> print(module.text())
define i64 @twice(i64 %n) nounwind {
entry:
  %v1 = add i64 %n, %n
  ret i64 %v1
}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from edgewright.errors import LimitError

PTR = "ptr"
I64 = "i64"
MOST_INSTRUCTIONS = 1 << 16  # of one function: the largest kernels of real networks have some thousands


class CodeSizeError(LimitError):
    """A graph would need more machine code than is compiled in reasonable time and memory; the reference runs it."""


class Reg(str):
    """A value's name, or a constant; and its type."""

    type: str

    def __new__(cls, name: str, kind: str) -> Reg:
        made = super().__new__(cls, name)
        made.type = kind
        return made


def vec(count: int, kind: str) -> str:
    """The type of ``count`` elements: one element is itself."""
    return f"<{count} x {kind}>" if count > 1 else kind


def element(kind: str) -> str:
    return kind.split(" x ")[1][:-1] if kind.startswith("<") else kind


def count(kind: str) -> int:
    return int(kind[1:].split(" x ")[0]) if kind.startswith("<") else 1


def number(value: int | float, kind: str) -> Reg:
    """A constant; a vector of it if ``kind`` is a vector."""
    single = element(kind)
    if single in ("float", "double"):
        text = f"0x{np.float64(np.float32(value) if single == 'float' else value).view(np.uint64):016X}"
    else:
        text = str(int(value))
    if count(kind) > 1:
        text = "zeroinitializer" if value == 0 and not np.signbit(value) else f"splat ({single} {text})"
    return Reg(text, kind)


@lru_cache(1024)
def _mask(places: tuple[int, ...]) -> str:
    """Where a shuffle takes elements from; the same few make up much of the text."""
    return ", ".join(f"i32 {p}" if p >= 0 else "i32 poison" for p in places)


Operand = Reg | int


class Function:
    """One function, written from top to bottom."""

    def __init__(self, module: Module, name: str, params: Sequence[tuple[str, str]], returns: str, exported: bool):
        self.module, self.name, self.returns = module, name, returns
        self.params = {n: Reg("%" + n, t) for t, n in params}
        linkage, attributes = ("", "nounwind") if exported else ("internal ", "noinline nounwind")
        listed = ", ".join(f"{t} %{n}" for t, n in params)
        self.head = f"define {linkage}{returns} @{name}({listed}) {attributes} {{"
        self.lines = ["entry:"]
        self._block = "entry"
        self._names = 0

    def text(self) -> str:
        return "\n".join((self.head, *self.lines, "}"))

    def arg(self, name: str) -> Reg:
        return self.params[name]

    # --------------------------------------------------------------------------------------------------- values

    def _name(self, prefix: str) -> str:
        self._names += 1
        if self._names > MOST_INSTRUCTIONS:
            raise CodeSizeError(f"kernel {self.name}", f"may have {MOST_INSTRUCTIONS} instructions")
        return f"{prefix}{self._names}"

    def let(self, kind: str, expression: str) -> Reg:
        name = Reg(self._name("%v"), kind)
        self.lines.append(f"  {name} = {expression}")
        return name

    def do(self, statement: str) -> None:
        self.lines.append(f"  {statement}")

    def give(self, value: Reg | None = None) -> None:
        self.do("ret void" if value is None else f"ret {value.type} {value}")

    def op(self, name: str, a: Reg, b: Operand) -> Reg:
        other = b if isinstance(b, Reg) else number(b, a.type)
        return self.let(a.type, f"{name} {a.type} {a}, {other}")

    def add(self, a: Reg, b: Operand) -> Reg:
        return a if b == 0 and not isinstance(b, Reg) else self.op("add", a, b)

    def mul(self, a: Reg, b: Operand) -> Reg:
        return a if b == 1 and not isinstance(b, Reg) else self.op("mul", a, b)

    def compare(self, how: str, a: Reg, b: Operand) -> Reg:
        other = b if isinstance(b, Reg) else number(b, a.type)
        name = "fcmp" if element(a.type) in ("float", "double") else "icmp"
        return self.let(vec(count(a.type), "i1"), f"{name} {how} {a.type} {a}, {other}")

    def select(self, condition: Reg, yes: Reg, no: Reg) -> Reg:
        return self.let(yes.type, f"select {condition.type} {condition}, {yes.type} {yes}, {no.type} {no}")

    def cast(self, name: str, a: Reg, kind: str) -> Reg:
        return a if a.type == kind else self.let(kind, f"{name} {a.type} {a} to {kind}")

    def bits(self, a: Reg, kind: str) -> Reg:
        return self.cast("bitcast", a, kind)

    def splat(self, a: Reg, lanes: int) -> Reg:
        if lanes == 1:
            return a
        kind = vec(lanes, a.type)
        first = self.let(kind, f"insertelement {kind} poison, {a.type} {a}, i32 0")
        return self.let(kind, f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, a: Reg, b: Reg, places: Sequence[int]) -> Reg:
        kind = vec(len(places), element(a.type))
        if a.type == element(a.type):  # LLVM has no shuffle of scalars, which stand for vectors of one lane here
            return self._collect((a, b), places, kind)
        shuffled = f"shufflevector {a.type} {a}, {a.type} {b}, <{len(places)} x i32> <{_mask(tuple(places))}>"
        if len(places) > 1:
            return self.let(kind, shuffled)
        return self.let(kind, f"extractelement {a.type} {a}, i32 {places[0]}")

    def _collect(self, scalars: tuple[Reg, Reg], mask: Sequence[int], kind: str) -> Reg:
        """A vector of two scalars, each as often as the shuffle mask says; -1 leaves a lane undefined."""
        if len(mask) == 1:
            return scalars[mask[0]]
        made = Reg("poison", kind)
        for lane, index in enumerate(mask):
            if index >= 0:
                scalar = scalars[index]
                made = self.let(kind, f"insertelement {kind} {made}, {scalar.type} {scalar}, i32 {lane}")
        return made

    def call(self, name: str, returns: str, *args: Reg) -> Reg:
        """A call of an intrinsic or outside function, which is declared by the way."""
        self.module.declare(f"declare {returns} @{name}({', '.join(a.type for a in args)})")
        expression = f"call {returns} @{name}({', '.join(f'{a.type} {a}' for a in args)})"
        if returns != "void":
            return self.let(returns, expression)
        self.do(expression)
        return Reg("", "void")

    def run(self, function: Function | Reg, *args: Reg) -> None:
        """A call of a function of this module, or of one in a register."""
        target = function if isinstance(function, Reg) else f"@{function.name}"
        self.do(f"call void {target}({', '.join(f'{a.type} {a}' for a in args)})")

    # --------------------------------------------------------------------------------------------------- memory

    def at(self, pointer: Reg, offset: Operand) -> Reg:
        if not isinstance(offset, Reg):
            if offset == 0:
                return pointer
            offset = number(offset, I64)
        return self.let(PTR, f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, kind: str, pointer: Reg, offset: Operand = 0, align: int = 1) -> Reg:
        return self.let(kind, f"load {kind}, ptr {self.at(pointer, offset)}, align {align}")

    def store(self, value: Reg, pointer: Reg, offset: Operand = 0, align: int = 1) -> None:
        self.do(f"store {value.type} {value}, ptr {self.at(pointer, offset)}, align {align}")

    def store_first(self, value: Reg, used: int, pointer: Reg, offset: int = 0) -> None:
        """The first ``used`` elements of a vector, in pieces that are powers of two; nothing else is written."""
        if used == count(value.type):
            self.store(value, pointer, offset)
            return
        size = {"i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8}[element(value.type)]
        done = 0
        while done < used:
            piece = 1 << (used - done).bit_length() - 1
            self.store(self.shuffle(value, value, range(done, done + piece)), pointer, offset + done * size)
            done += piece

    def slot(self, kind: str, index: int) -> Reg:
        """An argument of a step."""
        return self.load(kind, self.arg("args"), 8 * index, 8)

    # --------------------------------------------------------------------------------------------------- control

    def _start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._block = label

    def repeat(
        self, times: Operand, carried: Sequence[Reg], body: Callable[[Reg, list[Reg]], Sequence[Reg]], step: int = 1
    ) -> list[Reg]:
        """At least once: ``body(i, values)`` gives the values of the next round. Returns the last ones."""
        limit = times if isinstance(times, Reg) else number(times, I64)
        before, head, done = self._block, self._name("head"), self._name("done")
        self.do(f"br label %{head}")
        self._start(head)
        place = len(self.lines)
        index = Reg(self._name("%i"), I64)
        values = [Reg(self._name("%p"), c.type) for c in carried]
        after = list(body(index, values))
        following = self.let(I64, f"add nuw nsw i64 {index}, {step}")
        more = self.compare("ult", following, limit)
        latch = self._block
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        phis = [f"  {index} = phi i64 [0, %{before}], [{following}, %{latch}]"]
        for value, first, later in zip(values, carried, after, strict=True):
            phis.append(f"  {value} = phi {value.type} [{first}, %{before}], [{later}, %{latch}]")
        self.lines[place:place] = phis
        self._start(done)
        return after

    def span(self, begin: Reg, end: Reg, body: Callable[[Reg], None], step: int = 1) -> None:
        """``body(i)`` for i from ``begin`` while less than ``end``: perhaps never."""

        def run() -> None:
            length = self.op("sub", end, begin)

            def once(i: Reg, _: list[Reg]) -> list[Reg]:
                body(self.add(begin, i))
                return []

            self.repeat(length, [], once, step)

        self.when(self.compare("slt", begin, end), run)

    def when(self, condition: Reg, body: Callable[[], None]) -> None:
        inside, after = self._name("then"), self._name("after")
        self.do(f"br i1 {condition}, label %{inside}, label %{after}")
        self._start(inside)
        body()
        self.do(f"br label %{after}")
        self._start(after)

    def maybe(self, condition: Reg, values: Sequence[Reg], body: Callable[[], Sequence[Reg]]) -> list[Reg]:
        """What ``body`` makes of ``values`` if the condition holds, else those."""
        before, inside, after = self._block, self._name("then"), self._name("after")
        self.do(f"br i1 {condition}, label %{inside}, label %{after}")
        self._start(inside)
        made = list(body())
        last = self._block
        self.do(f"br label %{after}")
        self._start(after)
        pairs = zip(values, made, strict=True)
        return [self.let(old.type, f"phi {old.type} [{old}, %{before}], [{new}, %{last}]") for old, new in pairs]


class Module:
    """Functions, constants and declarations: the text of one object file."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self._declared: dict[str, None] = {}

    def declare(self, line: str) -> None:
        self._declared[line] = None

    def table(self, name: str, values: Sequence[int], kind: str = "i64") -> Reg:
        listed = ", ".join(f"{kind} {v}" for v in values)
        self.declare(f"@{name} = internal constant [{len(values)} x {kind}] [{listed}], align 64")
        return Reg(f"@{name}", PTR)

    def function(
        self, name: str, params: Sequence[tuple[str, str]], returns: str = "void", exported: bool = False
    ) -> Function:
        made = Function(self, name, params, returns, exported)
        self.functions[name] = made
        return made

    def kernel(self, name: str) -> Function:
        """The function the driver calls for units ``begin`` to ``end`` of a step."""
        return self.function(name, [(PTR, "args"), (I64, "begin"), (I64, "end"), (PTR, "scratch")], exported=True)

    def text(self) -> str:
        return "\n".join((*sorted(self._declared), *(f.text() for f in self.functions.values())))

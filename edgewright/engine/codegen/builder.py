"""A builder of textual LLVM IR: registers carry their types, modules collect the declarations they need.

>>> module = Module()
>>> f = module.function("twice", [("i64", "n")], returns="i64", exported=True)
>>> f.ret(f.add(f.arg("n"), f.arg("n")))
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

from edgewright.engine.host_arch import ARCHITECTURES_32, machine_name
from edgewright.errors import LimitError

PTR = "ptr"
I64 = "i64"
MAX_INSTRUCTIONS = 1 << 16  # per function; the largest kernels of real networks have a few thousand


class CodeSizeError(LimitError):
    """A graph needs more machine code than compiles in reasonable time and memory; the reference runs it instead."""


class Reg(str):
    """An SSA value or a constant: its text, with its LLVM type as an attribute."""

    type: str

    def __new__(cls, name: str, kind: str) -> Reg:
        reg = super().__new__(cls, name)
        reg.type = kind
        return reg


def vec(lanes: int, kind: str) -> str:
    """The vector type of ``lanes`` elements; the scalar type itself for one lane."""
    return f"<{lanes} x {kind}>" if lanes > 1 else kind


def element_type(kind: str) -> str:
    return kind.split(" x ")[1][:-1] if kind.startswith("<") else kind


def lane_count(kind: str) -> int:
    return int(kind[1:].split(" x ")[0]) if kind.startswith("<") else 1


def const(value: int | float, kind: str) -> Reg:
    """A constant of type ``kind``; a splat if that is a vector type."""
    single = element_type(kind)
    if single in ("float", "double"):
        text = f"0x{np.float64(np.float32(value) if single == 'float' else value).view(np.uint64):016X}"
    else:
        text = str(int(value))
    if lane_count(kind) > 1:
        text = "zeroinitializer" if value == 0 and not np.signbit(value) else f"splat ({single} {text})"
    return Reg(text, kind)


@lru_cache(1024)
def _shuffle_mask(indices: tuple[int, ...]) -> str:
    """The text of a shuffle mask. Cached, because few distinct masks make up much of a kernel's text."""
    return ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in indices)


Operand = Reg | int


class Function:
    """One function, emitted from top to bottom into the current basic block."""

    def __init__(
        self, module: Module, name: str, params: Sequence[tuple[str, str]], returns: str, exported: bool, inline: bool
    ) -> None:
        self.module, self.name, self.returns = module, name, returns
        self.params = {n: Reg("%" + n, t) for t, n in params}
        # LLVM inlines what is called once, which makes code smaller, if it may
        inline = inline and module.arch in ARCHITECTURES_32
        linkage, attributes = (
            ("", "nounwind") if exported else ("internal ", f"{'' if inline else 'noinline '}nounwind")
        )
        if module.arch in ARCHITECTURES_32:  # their code is optimized: loops must not become calls of memmove
            attributes += ' "no-builtin-memmove"'
        listed = ", ".join(f"{t} %{n}" for t, n in params)
        self.head = f"define {linkage}{returns} @{name}({listed}) {attributes} {{"
        self.lines = ["entry:"]
        self._block = "entry"
        self._names = 0
        self.counter = "i32" if module.arch in ARCHITECTURES_32 else I64  # of loops; indices are 64 bits everywhere

    def text(self) -> str:
        return "\n".join((self.head, *self.lines, "}"))

    def arg(self, name: str) -> Reg:
        return self.params[name]

    # --------------------------------------------------------------------------------------------------- values

    def _name(self, prefix: str) -> str:
        self._names += 1
        if self._names > MAX_INSTRUCTIONS:
            raise CodeSizeError(f"kernel {self.name}", f"may have {MAX_INSTRUCTIONS} instructions")
        return f"{prefix}{self._names}"

    def emit(self, kind: str, expression: str) -> Reg:
        """Emit an instruction that yields a value of type ``kind``."""
        name = Reg(self._name("%v"), kind)
        self.lines.append(f"  {name} = {expression}")
        return name

    def emit_void(self, statement: str) -> None:
        """Emit an instruction without a result."""
        self.lines.append(f"  {statement}")

    def ret(self, value: Reg | None = None) -> None:
        self.emit_void("ret void" if value is None else f"ret {value.type} {value}")

    def op(self, name: str, a: Reg, b: Operand) -> Reg:
        """A binary instruction; an integer operand becomes a constant of the other operand's type."""
        other = b if isinstance(b, Reg) else const(b, a.type)
        return self.emit(a.type, f"{name} {a.type} {a}, {other}")

    def add(self, a: Reg, b: Operand) -> Reg:
        return a if b == 0 and not isinstance(b, Reg) else self.op("add", a, b)

    def mul(self, a: Reg, b: Operand) -> Reg:
        return a if b == 1 and not isinstance(b, Reg) else self.op("mul", a, b)

    def compare(self, predicate: str, a: Reg, b: Operand) -> Reg:
        other = b if isinstance(b, Reg) else const(b, a.type)
        name = "fcmp" if element_type(a.type) in ("float", "double") else "icmp"
        return self.emit(vec(lane_count(a.type), "i1"), f"{name} {predicate} {a.type} {a}, {other}")

    def select(self, condition: Reg, on_true: Reg, on_false: Reg) -> Reg:
        return self.emit(
            on_true.type, f"select {condition.type} {condition}, {on_true.type} {on_true}, {on_false.type} {on_false}"
        )

    def cast(self, name: str, a: Reg, kind: str) -> Reg:
        return a if a.type == kind else self.emit(kind, f"{name} {a.type} {a} to {kind}")

    def bitcast(self, a: Reg, kind: str) -> Reg:
        return self.cast("bitcast", a, kind)

    def splat(self, a: Reg, lanes: int) -> Reg:
        if lanes == 1:
            return a
        kind = vec(lanes, a.type)
        first = self.emit(kind, f"insertelement {kind} poison, {a.type} {a}, i32 0")
        return self.emit(kind, f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, a: Reg, b: Reg, mask: Sequence[int]) -> Reg:
        kind = vec(len(mask), element_type(a.type))
        if a.type == element_type(a.type):  # LLVM cannot shuffle scalars, which stand for one-lane vectors here
            return self._shuffle_scalars((a, b), mask, kind)
        shuffled = f"shufflevector {a.type} {a}, {a.type} {b}, <{len(mask)} x i32> <{_shuffle_mask(tuple(mask))}>"
        if len(mask) > 1:
            return self.emit(kind, shuffled)
        return self.emit(kind, f"extractelement {a.type} {a}, i32 {mask[0]}")

    def _shuffle_scalars(self, scalars: tuple[Reg, Reg], mask: Sequence[int], kind: str) -> Reg:
        """A vector built from two scalars by a shuffle mask; -1 leaves a lane undefined."""
        if len(mask) == 1:
            return scalars[mask[0]]
        result = Reg("poison", kind)
        for lane, index in enumerate(mask):
            if index >= 0:
                scalar = scalars[index]
                result = self.emit(kind, f"insertelement {kind} {result}, {scalar.type} {scalar}, i32 {lane}")
        return result

    def call(self, name: str, returns: str, *args: Reg) -> Reg:
        """Call an intrinsic or external function, and declare it in the module."""
        self.module.declare(f"declare {returns} @{name}({', '.join(a.type for a in args)})")
        expression = f"call {returns} @{name}({', '.join(f'{a.type} {a}' for a in args)})"
        if returns != "void":
            return self.emit(returns, expression)
        self.emit_void(expression)
        return Reg("", "void")

    def call_void(self, function: Function | Reg, *args: Reg) -> None:
        """Call a function of this module, or a function pointer, without a result."""
        target = function if isinstance(function, Reg) else f"@{function.name}"
        self.emit_void(f"call void {target}({', '.join(f'{a.type} {a}' for a in args)})")

    # --------------------------------------------------------------------------------------------------- memory

    def gep(self, pointer: Reg, offset: Operand) -> Reg:
        """``pointer`` plus ``offset`` bytes."""
        if not isinstance(offset, Reg):
            if offset == 0:
                return pointer
            offset = const(offset, I64)
        return self.emit(PTR, f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, kind: str, pointer: Reg, offset: Operand = 0, align: int = 1) -> Reg:
        return self.emit(kind, f"load {kind}, ptr {self.gep(pointer, offset)}, align {align}")

    def store(self, value: Reg, pointer: Reg, offset: Operand = 0, align: int = 1) -> None:
        self.emit_void(f"store {value.type} {value}, ptr {self.gep(pointer, offset)}, align {align}")

    def store_first(self, value: Reg, used: int, pointer: Reg, offset: int = 0) -> None:
        """Store only the first ``used`` elements of a vector, in power-of-two pieces."""
        if used == lane_count(value.type):
            self.store(value, pointer, offset)
            return
        size = {"i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8}[element_type(value.type)]
        done = 0
        while done < used:
            piece = 1 << (used - done).bit_length() - 1
            self.store(self.shuffle(value, value, range(done, done + piece)), pointer, offset + done * size)
            done += piece

    def load_arg(self, kind: str, index: int) -> Reg:
        """Load an argument of the step from the kernel's argument array."""
        return self.load(kind, self.arg("args"), 8 * index, 8)

    # --------------------------------------------------------------------------------------------------- control

    def _start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._block = label

    def loop(
        self, times: Operand, carried: Sequence[Reg], body: Callable[[Reg, list[Reg]], Sequence[Reg]], step: int = 1
    ) -> list[Reg]:
        """A loop that runs at least once. ``body(i, values)`` returns the loop-carried values of the next iteration.

        Returns the values after the last iteration. The phi nodes are inserted when the body is known.
        """
        limit = self.cast("trunc", times, self.counter) if isinstance(times, Reg) else const(times, self.counter)
        before, head, done = self._block, self._name("head"), self._name("done")
        self.emit_void(f"br label %{head}")
        self._start(head)
        phi_line = len(self.lines)
        count = Reg(self._name("%i"), self.counter)
        index = count if self.counter == I64 else self.emit(I64, f"zext {count.type} {count} to i64")
        values = [Reg(self._name("%p"), c.type) for c in carried]
        after = list(body(index, values))
        next_index = self.emit(count.type, f"add nuw nsw {count.type} {count}, {step}")
        more = self.compare("ult", next_index, limit)
        latch = self._block
        self.emit_void(f"br i1 {more}, label %{head}, label %{done}")
        phis = [f"  {count} = phi {count.type} [0, %{before}], [{next_index}, %{latch}]"]
        for value, first, later in zip(values, carried, after, strict=True):
            phis.append(f"  {value} = phi {value.type} [{first}, %{before}], [{later}, %{latch}]")
        self.lines[phi_line:phi_line] = phis
        self._start(done)
        return after

    def for_range(self, begin: Reg, end: Reg, body: Callable[[Reg], None], step: int = 1) -> None:
        """``body(i)`` for i in [begin, end), which may be empty."""

        def non_empty() -> None:
            length = self.op("sub", end, begin)

            def once(i: Reg, _: list[Reg]) -> list[Reg]:
                body(self.add(begin, i))
                return []

            self.loop(length, [], once, step)

        self.if_then(self.compare("slt", begin, end), non_empty)

    def if_then(self, condition: Reg, body: Callable[[], None]) -> None:
        inside, after = self._name("then"), self._name("after")
        self.emit_void(f"br i1 {condition}, label %{inside}, label %{after}")
        self._start(inside)
        body()
        self.emit_void(f"br label %{after}")
        self._start(after)

    def return_if(self, condition: Reg, result: Reg) -> None:
        """Return ``result`` if the condition holds."""
        inside, after = self._name("then"), self._name("after")
        self.emit_void(f"br i1 {condition}, label %{inside}, label %{after}")
        self._start(inside)
        self.ret(result)
        self._start(after)

    def if_then_phi(self, condition: Reg, values: Sequence[Reg], body: Callable[[], Sequence[Reg]]) -> list[Reg]:
        """The values ``body`` returns if the condition holds, else ``values``: a phi for each."""
        before, inside, after = self._block, self._name("then"), self._name("after")
        self.emit_void(f"br i1 {condition}, label %{inside}, label %{after}")
        self._start(inside)
        updated = list(body())
        last = self._block
        self.emit_void(f"br label %{after}")
        self._start(after)
        pairs = zip(values, updated, strict=True)
        return [self.emit(old.type, f"phi {old.type} [{old}, %{before}], [{new}, %{last}]") for old, new in pairs]


class Module:
    """Functions, constants and declarations: the text of one object file. ``arch``: what its code is for, by default
    this machine. ``dsp``: see ``ISA``."""

    def __init__(self, arch: str | None = None, dsp: bool = False) -> None:
        self.arch, self.dsp = arch or machine_name(), dsp
        self.functions: dict[str, Function] = {}
        self._declared: dict[str, None] = {}

    def declare(self, line: str) -> None:
        self._declared[line] = None

    def constant_array(self, name: str, values: Sequence[int], kind: str = "i64") -> Reg:
        listed = ", ".join(f"{kind} {v}" for v in values)
        self.declare(f"@{name} = internal constant [{len(values)} x {kind}] [{listed}], align 64")
        return Reg(f"@{name}", PTR)

    def function(
        self, name: str, params: Sequence[tuple[str, str]], returns: str = "void", exported: bool = False,
        inline: bool = True,
    ) -> Function:  # fmt: skip
        """``inline``: whether the code of microcontrollers may have the function inside its caller."""
        f = Function(self, name, params, returns, exported, inline)
        self.functions[name] = f
        return f

    def kernel(self, name: str) -> Function:
        """The function the driver calls for work units [begin, end) of a step."""
        return self.function(name, [(PTR, "args"), (I64, "begin"), (I64, "end"), (PTR, "scratch")], exported=True)

    def text(self) -> str:
        return "\n".join((*sorted(self._declared), *(f.text() for f in self.functions.values())))

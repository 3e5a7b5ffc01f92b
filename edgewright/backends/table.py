"""A backend is a table of rows over the op table. This module says what a row is; it imports no torch.

A rule is a sentence and a function. The sentence is the log line, the error and the line in the generated page, so
they cannot drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.core.quant_params import LARGEST, SMALLEST
from edgewright.ir.graph import Dim, Graph, Op, Value
from edgewright.ir.ports import Port

OK = None  # what a rule's function gives when the rule holds


@dataclass(frozen=True)
class Rule:
    """A requirement: ``why(op, target)`` gives the offending detail, or None if it holds."""

    text: str
    why: Callable[[Op, Any], object]


@dataclass(frozen=True)
class Refusal:
    """A rule that an operator broke, and the detail."""

    rule: str
    detail: object

    def __str__(self) -> str:
        return self.rule if self.detail is True else f"{self.rule}; got {self.detail}"


FLOAT, STATIC, DYNAMIC = "fp32", "static_quant", "dynamic_quant"
PRECISIONS = {
    FLOAT: "floating point",
    STATIC: "integers, with scales found by calibration or training",
    DYNAMIC: "activations become integers row by row as the program runs",
}


@dataclass(frozen=True)
class OpSpec:
    """An operator, for one backend: what it accepts, how it is quantized, what it becomes.

    ``lower`` is given the backend's lowering and the operator. ``precisions``: how its data may be held. ``absorbs``:
    operators that may be fused onto its result. ``ports`` override the op table's. ``config`` names the row for users.
    ``legalize`` rewrites an operator that was taken into others of the table, or gives None; no value that it makes
    may need a scale that calibration would have to find. ``numbers``: operands that are integers otherwise may be
    plain numbers, which the lowering quantizes.
    """

    op: str
    lower: Callable[[Any, Op], None]
    rules: tuple[Rule, ...] = ()
    precisions: tuple[str, ...] = (FLOAT,)
    absorbs: tuple[str, ...] = ()
    ports: Mapping[str, Port] = field(default_factory=dict)
    config: str = ""
    legalize: Callable[[Op, Any], list[Op] | None] | None = None
    numbers: bool = False

    @property
    def configs(self) -> tuple[str, ...]:
        """The names users know the row by: ``config`` may hold several, with spaces between."""
        return tuple(self.config.split())


def _only_constants(op: Op, target: Any) -> object:
    operands = list(op.inputs())
    return True if operands and all(v.constant for v in operands) else OK


# Small results of constants are constants by now. A vendor's graph has no operators on constants alone: its formats and
# compilers differ in what they make of one.
VARIES = Rule("an operand must depend on the model's inputs: what does not is stored, or computed on the CPU if that "
              "takes less memory", _only_constants)  # fmt: skip


def _immoderate(op: Op, target: Any) -> object:
    held = [v for v in (*op.inputs(), *(o for o in op.outputs if o is not None)) if v.q is not None]
    for value in held:
        if value.q is not None and value.q.dynamic is None:
            scales = np.atleast_1d(np.asarray(value.q.scale, np.float64))
            wrong = scales[(scales < SMALLEST) | (scales > LARGEST)]
            if wrong.size:
                return f"a scale of {wrong[0]:g}"
    number = op.args.get("other")
    wide = held and isinstance(number, float) and math.isfinite(number) and not abs(number) <= LARGEST
    return f"{number:g} beside a quantized operand" if wide else OK


MODERATE = Rule(f"scales must be from {SMALLEST:g} to {LARGEST:g}, and numbers beside quantized operands not larger",
                _immoderate)  # fmt: skip


class OperatorConfig:
    """Names a row, or several, in ``configs=[...]`` of a partitioner."""

    operators: tuple[str, ...] = ()


Emit = Callable[[Graph], tuple[bytes, Mapping[str, Buffer]]]


@dataclass(frozen=True)
class Rounding:
    """How far a device's result may be from the exact one, for one operator: integers of up to 8 and of 16 bits by so
    many quantization steps, real numbers by a fraction of their tensor's largest magnitude. ``compile`` checks its
    files within what these errors can add up to."""

    int8: int = 1
    int16: int = 1
    real: float = 2.0**-19  # sums in single precision, in another order

    def steps(self, bits: int) -> int:
        return self.int8 if bits <= 8 else self.int16

    def joined(self, other: Rounding) -> Rounding:
        """What holds where some operators are computed by one device and some by another."""
        return Rounding(max(self.int8, other.int8), max(self.int16, other.int16), max(self.real, other.real))


class Backend:
    """Rows by operator. ``id`` is what files call the delegate; ``emit`` makes a group into a blob and its data.
    ``title`` and ``summary`` are for people; ``rounding``: how exact results are."""

    def __init__(
        self, name: str, rows: Iterable[OpSpec], rules: Iterable[Rule] = (), *, id: str = "", emit: Emit | None = None,
        title: str = "", summary: str = "", meanings: Mapping[str, str] | None = None,
        absent: Mapping[str, str] | None = None, rounding: Rounding | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.rounding = rounding or Rounding()
        self.rows = {row.op: row for row in rows}
        given = tuple(rules)
        self.rules = (*(rule for rule in (VARIES, MODERATE) if rule not in given), *given)  # for every operator
        self.id = id or name
        self.emit = emit
        self.title = title or name
        self.summary = summary
        self.absent = dict(absent or {})  # what others have a row for, and why there is none here
        self.meanings = {**PRECISIONS, **(meanings or {})}  # of the precisions, where they are others here

    def configs(self) -> dict[str, type[OperatorConfig]]:
        """A class for every config name of the rows, by name."""
        operators: dict[str, list[str]] = {}
        for row in self.rows.values():
            for name in row.configs:
                operators.setdefault(name, []).append(row.op)
        return {n: type(n, (OperatorConfig,), {"operators": tuple(ops)}) for n, ops in sorted(operators.items())}

    def refusals(self, op: Op, target: Any = None) -> list[Refusal]:
        """Every rule that ``op`` breaks; none means it is taken."""
        row = self.rows.get(op.kind)
        if row is None:
            return [Refusal(f"{self.name} has no row for {op.kind}", True)]
        found = []
        precision = precision_of(op)
        if precision not in row.precisions:
            found.append(Refusal(f"precision must be {' or '.join(row.precisions)}", precision))
        for rule in (*self.rules, *row.rules):
            detail = rule.why(op, target)
            if detail is not None:
                found.append(Refusal(rule.text, detail))
        return found


def precision_of(op: Op) -> str:
    """How an operator's data is held: by its activations, not its weights."""
    held = [v for v in (*op.inputs(), *(o for o in op.outputs if o is not None)) if v.q is not None and not v.constant]
    if any(v.q is not None and v.q.dynamic for v in held):
        return DYNAMIC
    return STATIC if held else FLOAT


# -------------------------------------------------------------------------------------------------- common rules


def tensor(op: Op, name: str) -> Value | None:
    value = op.args.get(name)
    return value if isinstance(value, Value) else None


def tensors(op: Op) -> list[Value]:
    return [v for v in (*op.inputs(), *(o for o in op.outputs if o is not None)) if v.dtype is not None]


def constant(*names: str) -> Rule:
    """These operands must be constants (or absent)."""

    def why(op: Op, target: Any) -> object:
        loose = [n for n in names if (v := tensor(op, n)) is not None and not v.constant]
        return ", ".join(loose) if loose else OK

    return Rule(f"{' and '.join(names)} must be constant", why)


def rank_in(name: str, *ranks: int) -> Rule:
    def why(op: Op, target: Any) -> object:
        value = tensor(op, name)
        if value is None:
            return "no tensor"
        return OK if len(value.shape) in ranks else len(value.shape)

    return Rule(f"rank of {name} must be {' or '.join(map(str, ranks))}", why)


def dtypes_in(*names: str) -> Rule:
    """Every tensor that is not quantized must be of one of these types."""

    def why(op: Op, target: Any) -> object:
        bad = sorted({str(v.dtype) for v in tensors(op) if v.q is None and str(v.dtype) not in names})
        return ", ".join(bad) if bad else OK

    return Rule(f"element type must be {' or '.join(names)}", why)


def one_dtype() -> Rule:
    def why(op: Op, target: Any) -> object:
        found = sorted({str(v.dtype) for v in tensors(op) if v.q is None and not v.constant})
        return ", ".join(found) if len(found) > 1 else OK

    return Rule("all operands must have one element type", why)


def argument_is(name: str, *wanted: Any) -> Rule:
    """A plain argument must have one of these values."""
    shown = " or ".join(map(str, wanted))

    def why(op: Op, target: Any) -> object:
        value = op.args.get(name)
        if name not in op.args or any(value == w for w in wanted):
            return OK
        return "nothing" if value is None else value

    return Rule(f"{name} must be {shown}", why)


def static_shape() -> Rule:
    def why(op: Op, target: Any) -> object:
        dynamic = [v.name for v in tensors(op) if v.dynamic]
        return ", ".join(dynamic) if dynamic else OK

    return Rule("shapes must be static", why)


def not_empty() -> Rule:
    def why(op: Op, target: Any) -> object:
        empty = [v.name for v in tensors(op) if 0 in [s for s in v.shape if not isinstance(s, Dim)]]
        return ", ".join(empty) if empty else OK

    return Rule("tensors must not be empty", why)


def max_rank(limit: int) -> Rule:
    def why(op: Op, target: Any) -> object:
        most = max((len(v.shape) for v in tensors(op)), default=0)
        return most if most > limit else OK

    return Rule(f"rank must be at most {limit}", why)


# --------------------------------------------------------------------------------------- arguments, as all read them


def pool_arguments(op: Op) -> tuple[list[int], list[int], list[int], list[int]]:
    """Window, step, padding (top, bottom, left, right) and dilation of a pool."""

    def pair(name: str, default: list[int]) -> list[int]:
        given = list(op.args.get(name) or default)
        return given * 2 if len(given) == 1 else given

    kernel = pair("kernel_size", [1])
    stride = pair("stride", kernel)
    height, width = pair("padding", [0])
    return kernel, stride, [height, height, width, width], pair("dilation", [1])


def over(op: Op) -> list[int]:
    """The dimensions an operator reduces."""
    dims, rank = op.args.get("dim"), len(op.args["self"].shape)
    listed = list(range(rank)) if dims is None or dims == [] else dims if isinstance(dims, list) else [dims]
    return sorted(d % rank for d in listed) if rank else []


def spread(op: Op, name: str, fill: int) -> list[int]:
    """A convolution's strides and the like, one for each dimension; a sequence is an image one pixel high."""
    given, dims = list(op.args.get(name) or [fill]), len(op.args["weight"].shape) - 2
    given = given * dims if len(given) == 1 else given
    return [fill, *given] if dims == 1 else given


def kernel_of(op: Op) -> list[int]:
    """The size of a convolution's window, by the same rule."""
    found = list(op.args["weight"].bound[2:])
    return [1, *found] if len(found) == 1 else found


def pads_of(op: Op) -> list[tuple[int, int]]:
    """A convolution's padding, before and after; ``same`` keeps the size, with the odd one at the end."""
    given = op.args["padding"]
    if not isinstance(given, str):
        return [(p, p) for p in spread(op, "padding", 0)]
    steps = zip(kernel_of(op), spread(op, "dilation", 1), strict=True)
    whole = [d * (k - 1) if given == "same" else 0 for k, d in steps]
    return [(n // 2, n - n // 2) for n in whole]

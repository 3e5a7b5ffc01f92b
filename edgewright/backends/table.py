"""Backend tables: the operators a backend supports, one ``OpSpec`` per operator of the op table. Imports no torch.

A rule is a sentence and a check function. The sentence is the log line, the error message and the line of the
generated documentation, so these cannot diverge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.backends.info import BackendInfo
from edgewright.formats.flatbuffer import Buffer
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.ir.core.quant_params import MAX_SCALE, MIN_SCALE
from edgewright.ir.graph import Dim, Graph, Op, Value
from edgewright.ir.ports import Port

OK = None  # returned by a rule's check function if the rule holds


@dataclass(frozen=True)
class Rule:
    """A requirement: ``check(op, target)`` returns the offending detail, or None if the requirement holds."""

    text: str
    check: Callable[[Op, Any], object]


@dataclass(frozen=True)
class Rejection:
    """A rule that an operator violates, and the offending detail."""

    rule: str
    detail: object

    def __str__(self) -> str:
        return self.rule if self.detail is True else f"{self.rule}; got {self.detail}"


# Operators that folding quantization creates. They have no row in the op table.
CONVERSIONS = (QUANTIZE, DEQUANTIZE, CONVERT, REQUANTIZE) = ("quantize", "dequantize", "convert", "requantize")
_TRIVIAL = (OpClass.RESHAPE, OpClass.TRANSPOSE, OpClass.BROADCAST, OpClass.CREATION)

FLOAT, STATIC, DYNAMIC = "fp32", "static_quant", "dynamic_quant"
PRECISION_RULE = "precision must be"  # first words of the rule that every row has
STATIC_SHAPE_RULE = "shapes must be static"
PRECISIONS = {
    FLOAT: "floating point",
    STATIC: "integers, with scales from calibration or quantization-aware training",
    DYNAMIC: "activations are quantized at run time, with one scale per row",
}


@dataclass(frozen=True)
class OpSpec:
    """One operator of one backend: its constraints, its precisions and its lowering.

    ``lower`` is called with the backend's lowering context and the operator. ``precisions``: supported data types of
    activations. ``absorbs``: operators that can be fused into its epilogue. ``ports`` override those of the op table.
    ``config``: the name users select the row by. ``legalize`` rewrites a supported operator into other operators of the
    table, or returns None; no value it creates may need a calibrated scale. ``numbers``: operands of a quantized
    operator may be plain scalars, which the lowering quantizes. ``trivial``: a group of such operators alone is not
    worth a delegate; by default views of a tensor, constants and conversions between types. ``no_decompose``: keep the
    operator as it was exported, also if the op table does not say that it is composite.
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
    trivial: bool | None = None
    no_decompose: bool = False

    @property
    def is_trivial(self) -> bool:
        if self.trivial is not None:
            return self.trivial
        return OPS[self.op].op_class in _TRIVIAL if self.op in OPS else self.op in CONVERSIONS

    @property
    def configs(self) -> tuple[str, ...]:
        """Names users select the row by; ``config`` may contain several, separated by spaces."""
        return tuple(self.config.split())


def _only_constants(op: Op, target: Any) -> object:
    operands = list(op.inputs())
    return True if operands and all(v.constant for v in operands) else OK


# Constant folding has run by now and left only results too large to store. Vendor formats and compilers disagree about
# operators whose operands are all constant, so none reaches a delegate.
NOT_CONSTANT = Rule("at least one operand must depend on the model's inputs: constant expressions are folded, or "
                    "computed on the CPU if that takes less memory", _only_constants)  # fmt: skip


def _scale_out_of_range(op: Op, target: Any) -> object:
    quantized = [v for v in (*op.inputs(), *(o for o in op.outputs if o is not None)) if v.q is not None]
    for value in quantized:
        if value.q is not None and value.q.dynamic is None:
            scales = np.atleast_1d(np.asarray(value.q.scale, np.float64))
            invalid = scales[(scales < MIN_SCALE) | (scales > MAX_SCALE)]
            if invalid.size:
                return f"a scale of {invalid[0]:g}"
    scalar = op.args.get("other")
    too_large = quantized and isinstance(scalar, float) and math.isfinite(scalar) and not abs(scalar) <= MAX_SCALE
    return f"scalar {scalar:g}" if too_large else OK


SCALE_RANGE = Rule(f"scales must be from {MIN_SCALE:g} to {MAX_SCALE:g}, and scalar operands of quantized operators "
                   "not larger", _scale_out_of_range)  # fmt: skip


CONTROL_FLOW = "branches and loops run on the CPU: a delegate is a graph without control flow"


class OperatorConfig:
    """Base of the classes that select one or several rows in ``configs=[...]`` of a partitioner."""

    operators: tuple[str, ...] = ()


Emit = Callable[[Graph], tuple[bytes, Mapping[str, Buffer]] | tuple[bytes, Mapping[str, Buffer], bytes]]


@dataclass(frozen=True)
class Rounding:
    """Error bound of one operator on the device: quantization steps for integers of up to 8 bits and of 16 bits, a
    fraction of the tensor's largest magnitude for floating point. ``compile`` accumulates these bounds over the graph
    when it verifies a program."""

    int8: int = 1
    int16: int = 1
    real: float = 2.0**-19  # float32 sums in a different order

    def steps(self, bits: int) -> int:
        return self.int8 if bits <= 8 else self.int16

    def merge(self, other: Rounding) -> Rounding:
        """The bound of a program whose operators are divided between two devices."""
        return Rounding(max(self.int8, other.int8), max(self.int16, other.int16), max(self.real, other.real))


class Backend:
    """The operator table of a backend. ``emit`` compiles a partition to a blob, its named data and, if the host cannot
    run the blob, its host twin. ``rounding``: error bound of results. ``absent``: operators that other backends
    support, and why this one does not. ``equal_widths``: activations of an operator must all have the same number of
    bits, so the quantizer inserts conversions."""

    def __init__(
        self, info: BackendInfo, rows: Iterable[OpSpec], rules: Iterable[Rule] = (), *, emit: Emit | None = None,
        precision_notes: Mapping[str, str] | None = None, absent: Mapping[str, str] | None = None,
        rounding: Rounding | None = None, equal_widths: bool = False,
    ) -> None:  # fmt: skip
        self.info, self.name, self.id = info, info.name, info.id
        self.rounding = rounding or Rounding()
        self.equal_widths = equal_widths
        self.rows = {row.op: row for row in rows}
        own_rules = tuple(rules)
        self.rules = (*(rule for rule in (NOT_CONSTANT, SCALE_RANGE) if rule not in own_rules), *own_rules)
        self.emit = emit
        self.absent = dict(absent or {})
        self.precision_notes = {**PRECISIONS, **(precision_notes or {})}  # descriptions of the precisions

    @property
    def max_rank(self) -> int | None:
        """The number of dimensions that tensors may have, if there is a rule."""
        return min((rule.limit for rule in self.rules if isinstance(rule, MaxRank)), default=None)

    def configs(self) -> dict[str, type[OperatorConfig]]:
        """One ``OperatorConfig`` class for each config name of the rows."""
        operators: dict[str, list[str]] = {}
        for row in self.rows.values():
            for name in row.configs:
                operators.setdefault(name, []).append(row.op)
        return {n: type(n, (OperatorConfig,), {"operators": tuple(ops)}) for n, ops in sorted(operators.items())}

    def rejections(self, op: Op, target: Any = None) -> list[Rejection]:
        """Every rule that ``op`` violates; an empty list means that it is supported."""
        row = self.rows.get(op.kind)
        if op.graphs and row is None:
            return [Rejection(CONTROL_FLOW, True)]
        if row is None and op.kind in ("quantize", "dequantize"):
            return [Rejection(_CONVERSION, True)]
        if row is None:
            return [Rejection(f"{self.name} has no row for {op.kind}", True)]
        rejections = []
        precision = precision_of(op)
        if precision not in row.precisions:
            rejections.append(Rejection(f"{PRECISION_RULE} {' or '.join(row.precisions)}", precision))
        for rule in (*self.rules, *row.rules):
            detail = rule.check(op, target)
            if detail is not None:
                rejections.append(Rejection(rule.text, detail))
        # The first is what summaries show. Quantizers leave dynamic shapes in floating point, so these are the reason.
        return sorted(rejections, key=lambda rejection: rejection.rule != STATIC_SHAPE_RULE)


_CONVERSION = (
    "conversion between floating point and integers, which is the CPU's; of inputs and outputs, --integer-io "
    "(integer_io=True) leaves it to the caller"
)


def precision_of(op: Op) -> str:
    """The precision of an operator, determined by its activations and not by its weights."""
    quantized = [
        v for v in (*op.inputs(), *(o for o in op.outputs if o is not None)) if v.q is not None and not v.constant
    ]
    if any(v.q is not None and v.q.dynamic for v in quantized):
        return DYNAMIC
    return STATIC if quantized else FLOAT


# -------------------------------------------------------------------------------------------------- common rules


def tensor_arg(op: Op, name: str) -> Value | None:
    value = op.args.get(name)
    return value if isinstance(value, Value) else None


def tensors(op: Op) -> list[Value]:
    return [v for v in (*op.inputs(), *(o for o in op.outputs if o is not None)) if v.dtype is not None]


def constant(*names: str) -> Rule:
    """The named operands must be constant or absent."""

    def check(op: Op, target: Any) -> object:
        loose = [n for n in names if (v := tensor_arg(op, n)) is not None and not v.constant]
        return ", ".join(loose) if loose else OK

    return Rule(f"{' and '.join(names)} must be constant", check)


def rank_in(name: str, *ranks: int) -> Rule:
    def check(op: Op, target: Any) -> object:
        value = tensor_arg(op, name)
        if value is None:
            return "no tensor"
        return OK if len(value.shape) in ranks else len(value.shape)

    return Rule(f"rank of {name} must be {' or '.join(map(str, ranks))}", check)


def dtypes_in(*names: str) -> Rule:
    """Every tensor that is not quantized must have one of these element types."""

    def check(op: Op, target: Any) -> object:
        bad = sorted({str(v.dtype) for v in tensors(op) if v.q is None and str(v.dtype) not in names})
        return ", ".join(bad) if bad else OK

    return Rule(f"element type must be {' or '.join(names)}", check)


def one_dtype() -> Rule:
    def check(op: Op, target: Any) -> object:
        dtypes = sorted({str(v.dtype) for v in tensors(op) if v.q is None and not v.constant})
        return ", ".join(dtypes) if len(dtypes) > 1 else OK

    return Rule("all operands must have the same element type", check)


def argument_is(name: str, *values: Any) -> Rule:
    """A non-tensor argument must have one of these values."""
    text = " or ".join(map(str, values))

    def check(op: Op, target: Any) -> object:
        value = op.args.get(name)
        if name not in op.args or any(value == w for w in values):
            return OK
        return "None" if value is None else value

    return Rule(f"{name} must be {text}", check)


def static_shape() -> Rule:
    def check(op: Op, target: Any) -> object:
        dynamic = [v.name for v in tensors(op) if v.dynamic]
        return ", ".join(dynamic) if dynamic else OK

    return Rule(STATIC_SHAPE_RULE, check)


def not_empty() -> Rule:
    def check(op: Op, target: Any) -> object:
        empty = [v.name for v in tensors(op) if 0 in [s for s in v.shape if not isinstance(s, Dim)]]
        return ", ".join(empty) if empty else OK

    return Rule("tensors must not be empty", check)


@dataclass(frozen=True)
class MaxRank(Rule):
    """A limit of the number of dimensions, known to rewrites that reduce it."""

    limit: int = 0


def max_rank(limit: int) -> Rule:
    def check(op: Op, target: Any) -> object:
        largest_rank = max((len(v.shape) for v in tensors(op)), default=0)
        return largest_rank if largest_rank > limit else OK

    return MaxRank(f"rank must be at most {limit}", check, limit)


# -------------------------------------------------------------------------------------------------- argument decoding


def pool_params(op: Op) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel size, stride, padding (top, bottom, left, right) and dilation of a 2-D pool."""

    def pair(name: str, default: list[int]) -> list[int]:
        values = list(op.args.get(name) or default)
        return values * 2 if len(values) == 1 else values

    kernel = pair("kernel_size", [1])
    stride = pair("stride", kernel)
    height, width = pair("padding", [0])
    return kernel, stride, [height, height, width, width], pair("dilation", [1])


def reduced_dims(op: Op) -> list[int]:
    """The dimensions that a reduction reduces, non-negative and sorted."""
    dims, rank = op.args.get("dim"), len(op.args["self"].shape)
    listed = list(range(rank)) if dims is None or dims == [] else dims if isinstance(dims, list) else [dims]
    return sorted(d % rank for d in listed) if rank else []


def conv_argument(op: Op, name: str, default: int) -> list[int]:
    """A convolution's stride, padding or dilation for each spatial dimension; a 1-D convolution becomes 2-D of height
    1."""
    values, dims = list(op.args.get(name) or [default]), len(op.args["weight"].shape) - 2
    values = values * dims if len(values) == 1 else values
    return [default, *values] if dims == 1 else values


def conv_kernel(op: Op) -> list[int]:
    """A convolution's kernel size; 1-D becomes 2-D of height 1."""
    kernel = list(op.args["weight"].bound[2:])
    return [1, *kernel] if len(kernel) == 1 else kernel


def conv_padding(op: Op) -> list[tuple[int, int]]:
    """A convolution's padding, before and after each spatial dimension; ``same`` puts the odd element at the end."""
    padding = op.args["padding"]
    if not isinstance(padding, str):
        return [(p, p) for p in conv_argument(op, "padding", 0)]
    taps = zip(conv_kernel(op), conv_argument(op, "dilation", 1), strict=True)
    totals = [d * (k - 1) if padding == "same" else 0 for k, d in taps]
    return [(n // 2, n - n // 2) for n in totals]

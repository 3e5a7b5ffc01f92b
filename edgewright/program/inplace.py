"""Results written over an operand that nobody reads again, where the runtime's kernel allows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewright.formats import schema
from edgewright.formats.operator_signatures import OPERATORS, Kind, Signature

if TYPE_CHECKING:
    from edgewright.program.memory import Block
    from edgewright.program.storage import Place

_UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil clamp cos cosh elu erf exp expm1 floor gelu hardtanh "
    "leaky_relu log log10 log1p log2 logical_not logit neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan "
    "tanh trunc"
)
_BINARY = (
    "add.out add.Scalar_out sub.out sub.Scalar_out mul.out mul.Scalar_out div.out div.Scalar_out div.out_mode "
    "div.Scalar_mode_out maximum.out minimum.out pow.Tensor_Scalar_out rsub.Scalar_out atan2.out fmod.Tensor_out "
    "fmod.Scalar_out remainder.Tensor_out remainder.Scalar_out where.self_out"
)

# Kernels that read an element of these operands for the last time before they write the result's element at the
# same place: a test runs each of them in the stock runtime with operand and result in the same memory.
IN_PLACE: dict[str, tuple[str, ...]] = {
    **{f"aten::{name}.out": ("self",) for name in _UNARY.split()},
    **{f"aten::{name}": ("self", "other") for name in _BINARY.split()},
    "aten::pow.Tensor_Tensor_out": ("self", "exponent"),
    "aten::native_layer_norm.out": ("input",),
    "aten::_native_batch_norm_legit_no_training.out": ("input",),
}
IN_PLACE = {key: names for key, names in IN_PLACE.items() if key in OPERATORS}


@dataclass(frozen=True)
class Calls:
    """What sharing needs to know of a method; places by value index."""

    values: Sequence[Any]
    instructions: Sequence[Any]
    operators: Sequence[str]
    places: Mapping[int, Place]


def share_in_place(calls: Calls, fixed: Collection[Block]) -> None:
    """Join blocks: a result takes over the block of an operand that its instruction reads last.

    ``fixed`` holds the ids of blocks that stay what they are: those of state.
    """
    users: dict[Block, list[Place]] = {}
    for place in calls.places.values():
        users.setdefault(place.block, []).append(place)
    for at, call in enumerate(calls.instructions):
        key = calls.operators[call.op_index] if isinstance(call, schema.KernelCall) else ""
        if key not in IN_PLACE:
            continue
        out = call.args[len(OPERATORS[key].inputs)]
        for source in _candidates(OPERATORS[key], call):
            if _may_take(calls, out, source, at) and calls.places[source].block not in fixed:
                _join(users, calls.places[source].block, calls.places[out].block)
                break


def _candidates(signature: Signature, call: schema.KernelCall) -> list[int]:
    names = IN_PLACE[signature.key]
    pairs = zip(signature.inputs, call.args, strict=False)
    return [index for argument, index in pairs if argument.kind is Kind.TENSOR and argument.name in names]


def _may_take(calls: Calls, out: int, source: int, at: int) -> bool:
    """True if the result looks just like the operand, starts here, and the operand ends here."""
    made, read = calls.places.get(out), calls.places.get(source)
    if made is None or read is None or made.block is read.block or not (made.planned and read.planned):
        return False
    a, b = calls.values[out], calls.values[source]
    return (
        made.block.start == at == read.block.end
        and made.block.size == read.block.size
        and a.shape_dynamism == b.shape_dynamism == schema.Dynamism.STATIC
        and (a.scalar_type, tuple(a.sizes), tuple(a.dim_order)) == (b.scalar_type, tuple(b.sizes), tuple(b.dim_order))
    )


def _join(users: dict[Block, list[Place]], kept: Block, gone: Block) -> None:
    kept.end = gone.end
    for place in users.pop(gone):
        place.block = kept
        users[kept].append(place)

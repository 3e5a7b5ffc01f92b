"""A kernel call's way into a segment: what the file alone decides is computed now, all else by the rows."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from edgewright.errors import EdgewrightError
from edgewright.ir.graph import Array
from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import OTHERWISE, ROWS, Args
from edgewright.runtime.registry import all_kernels
from edgewright.runtime.tensor import TensorSlot

log = logging.getLogger("edgewright.runtime")

_MOST = 1 << 20  # elements that are computed when a program is loaded
_SHAPED = ("aten::full_like.out", "aten::fill.Scalar_out")  # of a tensor's shape, whatever it holds
_CREATED = {f"aten::{name}" for name in ("full.out", "ones.out", "zeros.out", "arange.out", "arange.start_out",
                                         "scalar_tensor.out", "empty.out")}  # fmt: skip
_CREATED |= {*_SHAPED, "dim_order_ops::_empty_dim_order.out"}
_BROKEN = (EdgewrightError, ValueError, LookupError, ArithmeticError, TypeError)  # the call itself says what is wrong
# Operators along dimensions: of a single number, as of a list of one.
_LISTED = {f"aten::{name}" for name in (
    "argmax.out", "argmin.out", "max.dim_max", "min.dim_min", "topk.values", "cumsum.out", "any.out", "any.dims_out",
    "any.all_out", "prod.out", "prod.int_out", "max.unary_out", "min.unary_out", "amax.out", "amin.out", "mean.out",
    "sum.IntList_out", "_softmax.out", "_log_softmax.out", "gather.out", "scatter.src_out", "scatter.value_out",
    "scatter_add.out", "index_select.out", "var.out", "var.correction_out", "var_mean.correction_out", "repeat.out",
    "transpose_copy.int_out", "flip.out", "roll.out", "constant_pad_nd.out",
)}  # fmt: skip


def has_way(key: str) -> bool:
    """Whether there is any way for calls of a kernel."""
    return key in ROWS or key in OTHERWISE or key in _CREATED


def take(m: Maker, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """Add a call to a segment; False if no row has it, or its numbers fit no tensor: whoever runs it says so then."""
    try:
        if args["key"] in _LISTED and any(not slot.bound for slot in _slots(args)):
            return _take_listed(m, args, outs)
        return _fold(m, args, outs) or _rows(m, args, outs)
    except (ValueError, LookupError, ArithmeticError) as error:
        log.debug("%s stays with numpy: %s", args["key"], error)
        return False


def _rows(m: Maker, args: Args, outs: Sequence[TensorSlot]) -> bool:
    rows = ([ROWS[args["key"]]] if args["key"] in ROWS else []) + OTHERWISE.get(args["key"], [])
    return any(row(m, args, outs) for row in rows)


def _slots(args: Args) -> Iterator[TensorSlot]:
    for given in args.values():
        yield from (g for g in (given if isinstance(given, list) else [given]) if isinstance(g, TensorSlot))


def _fold(m: Maker, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """What only the file's own tensors are in is a constant."""
    key, slots = args["key"], list(_slots(args))
    if not (slots or key in _CREATED) or any(o.dynamic or o.dtype.kind not in "fiub" for o in outs):
        return False
    shaped = key in _SHAPED
    if not shaped and any(m.constant(slot) is None for slot in slots):
        return False
    if any(not s.bound and s.dynamic for s in slots) or sum(math.prod(s.bound) for s in (*slots, *outs)) > _MOST:
        return False
    kernel = all_kernels()[key]
    if not kernel.pure or kernel.signature is None or 0 in [n for o in outs for n in o.bound]:
        return False
    made = [TensorSlot(o.scalar_type, o.bound, tuple(range(len(o.bound)))) for o in outs]
    given = [_contents(m, args[a.name], shaped) for a in kernel.signature.inputs]
    try:
        with np.errstate(all="ignore"):
            kernel(given, made)
    except _BROKEN:
        return False
    if any(slot.array is None for slot in made):
        return False
    for out, slot in zip(outs, made, strict=True):
        assert slot.array is not None
        m.bind(out, new(out.bound, np.array(slot.array, order="C")), pixels=False)
    return True


def _contents(m: Maker, given: Any, shaped: bool) -> Any:
    if isinstance(given, list):
        return [_contents(m, g, shaped) for g in given]
    if not isinstance(given, TensorSlot):
        return given
    held: Array | None = np.broadcast_to(np.zeros((), given.dtype), given.bound) if shaped else m.constant(given)
    return held


def _take_listed(m: Maker, args: Args, outs: Sequence[TensorSlot]) -> bool:
    """With lists of one in the place of single numbers."""
    if not m.known(*_slots(args), *outs):
        return False
    listed = {name: _listed(m, given) for name, given in args.items()}
    made = [o if o.bound else TensorSlot(o.scalar_type, (1,), (0,)) for o in outs]
    if not (_fold(m, listed, made) or _rows(m, listed, made)):
        return False
    for out, slot in zip(outs, made, strict=True):
        if slot is not out:
            m.add("view", out, {"self": m.planes(slot), "size": []})
    return True


def _listed(m: Maker, given: Any) -> Any:
    if not isinstance(given, TensorSlot) or given.bound:
        return given
    slot, held = TensorSlot(given.scalar_type, (1,), (0,)), m.planes(given)
    if held.data is not None:
        m.bind(slot, new((1,), held.data.reshape(1)), pixels=False)
    else:
        m.add("view", slot, {"self": held, "size": [1]})
    return slot

"""Control flow: ``cond``, ``map``, ``scan`` and ``while_loop`` as jumps, moves and copies.

Tensors are never moved, only copied: a move makes two names of one memory, and keeps doing so in the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgewright.errors import UnsupportedOperatorError
from edgewright.formats import schema
from edgewright.formats.operator_signatures import OPERATORS, Kind
from edgewright.ir.graph import Dim, Graph, Op, Value
from edgewright.program.emit import RESHAPES, Emitter


def emit_cond(emitter: Emitter, op: Op) -> None:
    """Both branches leave their results in the same values."""
    for out in op.outputs:
        emitter.argument(out, Kind.ANY)
    skip = _jump(emitter, op.args["pred"], op)
    _branch(emitter, op, op.graphs["true"])
    leave = _jump(emitter, False, op)
    _land(emitter, skip)
    _branch(emitter, op, op.graphs["false"])
    _land(emitter, leave)


def _branch(emitter: Emitter, op: Op, graph: Graph) -> None:
    """Operators write a branch's results straight to where they belong, if they can."""
    direct: set[Value] = set()
    made = {v for made_by in graph.ops if made_by.kind not in RESHAPES for v in made_by.outputs}
    for out, result in zip(op.outputs, graph.outputs, strict=True):
        if out is not None and result in made - direct and _fits(result, out):
            emitter.rename(result, out)
            direct.add(result)
    emitter.body(graph)
    filled: set[Value] = set()
    for out, result in zip(op.outputs, graph.outputs, strict=True):
        if out is not None and (result not in direct or result in filled):
            _assign(emitter, out, result, op)
        filled.add(result)


def _fits(value: Value, out: Value) -> bool:
    alike = (value.kind, value.dtype, value.dim_order) == (out.kind, out.dtype, out.dim_order)
    return alike and all(a <= b for a, b in zip(value.bound, out.bound, strict=True))


def emit_while_loop(emitter: Emitter, op: Op) -> None:
    """The loop's outputs hold what it carries, from the start."""
    for out, initial in zip(op.outputs, op.args["initial"], strict=True):
        _assign(emitter, out, initial, op)
    start = len(emitter.instructions)
    condition, body = op.graphs["condition"], op.graphs["body"]
    emitter.body(condition)
    leave = _jump(emitter, condition.outputs[0], op)
    emitter.body(body)
    _carry(emitter, op.outputs, body.outputs, op)
    back = _jump(emitter, False, op, start)
    emitter.storage.loops.append((start, back))
    _land(emitter, leave)


def emit_scan(emitter: Emitter, op: Op) -> None:
    """``map`` and ``scan``: one round for every slice of ``xs``, whose results are stacked."""
    carried, stacked = op.outputs[: len(op.args["initial"])], op.outputs[len(op.args["initial"]) :]
    xs = [_contiguous(emitter, x, op) for x in op.args["xs"]]
    for out, initial in zip(carried, op.args["initial"], strict=True):
        _assign(emitter, out, initial, op)
    stacks = [_stack(emitter, out) for out in stacked]
    length = xs[0].shape[0]
    count: Any = length
    if isinstance(length, Dim):
        count = Value("length", kind="int")
        emitter.op(Op("aten.sym_size.int", {"self": xs[0], "dim": 0}, [count], op.origin))
    guard = _guard(emitter, op, count, stacks) if _least(length) == 0 else None
    if length != 0:
        _rounds(emitter, op, xs, carried, stacks, count)
    if guard is not None:
        _land(emitter, guard)
    for out, stack in zip(stacked, stacks, strict=True):
        if out is not None and stack is not out:
            _assign(emitter, out, stack, op)


def _rounds(
    emitter: Emitter, op: Op, xs: list[Value], carried: Sequence[Any], stacks: Sequence[Any], count: Any
) -> None:
    body = op.graphs["body"]
    at, done = Value("at", kind="int"), Value("done", kind="bool")
    _assign(emitter, at, 0, op)  # not its serialized value: runtimes keep numbers between calls
    start = len(emitter.instructions)
    for x, piece in zip(xs, body.inputs, strict=True):
        emitter.op(Op("aten.select_copy.int", {"self": x, "dim": 0, "index": at}, [piece], op.origin))
    emitter.body(body)
    for stack, result in zip(stacks, body.outputs[len(carried) :], strict=True):
        if stack is not None:
            piece = _contiguous(emitter, result, op)
            if piece.dynamic:
                _fit(emitter, op, stack, piece, at)
            _call(emitter, op, "executorch_prim::et_copy_index.tensor", [stack, piece, at])
    _carry(emitter, carried, body.outputs[: len(carried)], op)
    _call(emitter, op, "executorch_prim::add.Scalar", [at, 1, at])
    _call(emitter, op, "executorch_prim::eq.Scalar", [at, count, done])
    emitter.storage.loops.append((start, _jump(emitter, done, op, start)))


def _fit(emitter: Emitter, op: Op, stack: Value, piece: Value, at: Value) -> None:
    """Give a stack the sizes of the slices it is to gather, in the first round: only its first dimension grows."""
    first = Value("first", kind="bool")
    sizes: list[Any] = [1, *piece.shape]
    _call(emitter, op, "executorch_prim::eq.Scalar", [at, 0, first])
    later = _jump(emitter, first, op)
    for dim, size in enumerate(piece.shape):
        if isinstance(size, Dim):
            sizes[dim + 1] = made = Value("size", kind="int")
            emitter.op(Op("aten.sym_size.int", {"self": piece, "dim": dim}, [made], op.origin))
    _call(emitter, op, "aten::empty.out", [sizes, None, stack, stack])
    _land(emitter, later)


def _guard(emitter: Emitter, op: Op, count: Any, stacks: Sequence[Value | None]) -> int | None:
    """Skip the loop if there is nothing to do; its results are then empty."""
    if count == 0:
        return None
    for stack in stacks:
        if stack is not None:
            size = [count, *stack.bound[1:]]
            _call(emitter, op, "aten::empty.out", [size, None, stack, stack])
    some = Value("some", kind="bool")
    _call(emitter, op, "executorch_prim::gt.Scalar", [count, 0, some])
    return _jump(emitter, some, op)


def _least(size: Any) -> int:
    return size.min if isinstance(size, Dim) else int(size)


def _stack(emitter: Emitter, out: Value | None) -> Value | None:
    """Where slices are gathered: planned memory that grows slice by slice."""
    if out is None:
        return None
    index = emitter.argument(out, Kind.TENSOR)
    if not emitter.storage.planned(out):  # the memory a caller brings cannot grow
        out = Value(f"{out.name}_stack", out.dtype, out.shape, out.dim_order)
        index = emitter.argument(out, Kind.TENSOR)
    emitter.values.items[index].shape_dynamism = int(schema.Dynamism.DYNAMIC_BOUND)
    return out


# ------------------------------------------------------------------------------------------------------ pieces


def _carry(emitter: Emitter, targets: Sequence[Any], sources: Sequence[Any], op: Op) -> None:
    """Assign all at once: what is both read and written goes through a value of its own."""
    staged = []
    for target, source in zip(targets, sources, strict=True):
        if source is target or target is None:
            continue
        if any(t is source or _shared(emitter, t, source) for t in targets):
            held = Value(f"{target.name}_next", target.dtype, target.shape, target.dim_order, kind=target.kind)
            _assign(emitter, held, source, op)
            source = held
        staged.append((target, source))
    for target, source in staged:
        _assign(emitter, target, source, op)


def _shared(emitter: Emitter, target: Any, source: Any) -> bool:
    tensors = isinstance(target, Value) and isinstance(source, Value)
    return tensors and emitter.storage.same(target, source)


def _assign(emitter: Emitter, target: Value | None, source: Any, op: Op) -> None:
    """Copy a tensor, or set a number."""
    assert target is not None
    if target.dtype is None:
        move = schema.MoveCall(move_from=emitter.argument(source, Kind.ANY), move_to=emitter.argument(target, Kind.ANY))
        emitter.instruction(move, op)
        return
    emitter.op(Op("aten.clone.default", {"self": source, "memory_format": None}, [target], op.origin))


def _contiguous(emitter: Emitter, value: Value, op: Op) -> Value:
    order = tuple(range(len(value.shape)))
    if value.dim_order == order:
        return value
    copy = Value(f"{value.name}_contiguous", value.dtype, value.shape, order)
    _assign(emitter, copy, value, op)
    return copy


def _call(emitter: Emitter, op: Op, key: str, args: Sequence[Any]) -> None:
    if key not in emitter.options.kernels.keys:
        where = f" in module {op.origin.module!r}" if op.origin.module else ""
        rule = f"needs {key}, which the {emitter.options.kernels.name!r} runtime does not have"
        raise UnsupportedOperatorError(f"{op.kind}{where}", rule, remedy=op.origin.line)
    emitter.call(OPERATORS[key], [emitter.argument(a, Kind.ANY) for a in args], [], op)


def _jump(emitter: Emitter, unless: Any, op: Op, to: int = 0) -> int:
    """Jump if ``unless`` is false; the instruction's index, for a destination that is not known yet."""
    condition = emitter.argument(unless, Kind.ANY)
    return emitter.instruction(schema.JumpFalseCall(cond_value_index=condition, destination_instruction=to), op)


def _land(emitter: Emitter, jump: int) -> None:
    """Let a jump lead here."""
    emitter.instructions[jump].destination_instruction = len(emitter.instructions)


CONTROL: dict[str, Callable[[Emitter, Op], None]] = {
    "cond": emit_cond,
    "map_impl": emit_scan,
    "scan": emit_scan,
    "while_loop": emit_while_loop,
}

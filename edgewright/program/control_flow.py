"""Emission of control flow: ``cond``, ``map``, ``scan`` and ``while_loop`` as jumps, moves and copies.

Tensors are copied, never moved: a move aliases two values, and the alias would persist into the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgewright.errors import UnsupportedOperatorError
from edgewright.formats import schema
from edgewright.formats.operator_signatures import OPERATORS, Kind
from edgewright.ir.graph import Dim, Graph, Op, Value
from edgewright.program.plan_builder import RESHAPES, PlanBuilder


def emit_cond(emitter: PlanBuilder, op: Op) -> None:
    """Both branches write their results to the same values."""
    for out in op.outputs:
        emitter.argument(out, Kind.ANY)
    skip = _emit_jump(emitter, op.args["pred"], op)
    _emit_branch(emitter, op, op.graphs["true"])
    leave = _emit_jump(emitter, False, op)
    _patch_jump(emitter, skip)
    _emit_branch(emitter, op, op.graphs["false"])
    _patch_jump(emitter, leave)


def _emit_branch(emitter: PlanBuilder, op: Op, graph: Graph) -> None:
    """Emit a branch; its operators write the results in place where possible."""
    direct: set[Value] = set()
    defined = {v for producer in graph.ops if producer.kind not in RESHAPES for v in producer.outputs}
    for out, result in zip(op.outputs, graph.outputs, strict=True):
        if out is not None and result in defined - direct and _is_assignable(result, out):
            emitter.alias_to(result, out)
            direct.add(result)
    emitter.body(graph)
    filled: set[Value] = set()
    for out, result in zip(op.outputs, graph.outputs, strict=True):
        if out is not None and (result not in direct or result in filled):
            _assign(emitter, out, result, op)
        filled.add(result)


def _is_assignable(value: Value, out: Value) -> bool:
    same_type = (value.kind, value.dtype, value.dim_order) == (out.kind, out.dtype, out.dim_order)
    return same_type and all(a <= b for a, b in zip(value.bound, out.bound, strict=True))


def emit_while_loop(emitter: PlanBuilder, op: Op) -> None:
    """The loop's outputs are its carried values, from the start."""
    for out, initial in zip(op.outputs, op.args["initial"], strict=True):
        _assign(emitter, out, initial, op)
    start = len(emitter.instructions)
    condition, body = op.graphs["condition"], op.graphs["body"]
    emitter.body(condition)
    leave = _emit_jump(emitter, condition.outputs[0], op)
    emitter.body(body)
    _carry(emitter, op.outputs, body.outputs, op)
    back = _emit_jump(emitter, False, op, start)
    emitter.storage.loops.append((start, back))
    _patch_jump(emitter, leave)


def emit_scan(emitter: PlanBuilder, op: Op) -> None:
    """``map`` and ``scan``: one iteration per slice of ``xs``; the results are stacked."""
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
    guard = _skip_if_empty(emitter, op, count, stacks) if _min_size(length) == 0 else None
    if length != 0:
        _emit_loop(emitter, op, xs, carried, stacks, count)
    if guard is not None:
        _patch_jump(emitter, guard)
    for out, stack in zip(stacked, stacks, strict=True):
        if out is not None and stack is not out:
            _assign(emitter, out, stack, op)


def _emit_loop(
    emitter: PlanBuilder, op: Op, xs: list[Value], carried: Sequence[Any], stacks: Sequence[Any], count: Any
) -> None:
    body = op.graphs["body"]
    iteration, done = Value("at", kind="int"), Value("done", kind="bool")
    _assign(emitter, iteration, 0, op)  # not its serialized value: runtimes keep scalars between calls
    start = len(emitter.instructions)
    for x, piece in zip(xs, body.inputs, strict=True):
        emitter.op(Op("aten.select_copy.int", {"self": x, "dim": 0, "index": iteration}, [piece], op.origin))
    emitter.body(body)
    for stack, result in zip(stacks, body.outputs[len(carried) :], strict=True):
        if stack is not None:
            piece = _contiguous(emitter, result, op)
            if piece.dynamic:
                _resize_stack(emitter, op, stack, piece, iteration)
            _emit_call(emitter, op, "executorch_prim::et_copy_index.tensor", [stack, piece, iteration])
    _carry(emitter, carried, body.outputs[: len(carried)], op)
    _emit_call(emitter, op, "executorch_prim::add.Scalar", [iteration, 1, iteration])
    _emit_call(emitter, op, "executorch_prim::eq.Scalar", [iteration, count, done])
    emitter.storage.loops.append((start, _emit_jump(emitter, done, op, start)))


def _resize_stack(emitter: PlanBuilder, op: Op, stack: Value, piece: Value, iteration: Value) -> None:
    """Resize a stack to the sizes of its slices in the first iteration: later only its first dimension grows."""
    first = Value("first", kind="bool")
    sizes: list[Any] = [1, *piece.shape]
    _emit_call(emitter, op, "executorch_prim::eq.Scalar", [iteration, 0, first])
    later = _emit_jump(emitter, first, op)
    for dim, size in enumerate(piece.shape):
        if isinstance(size, Dim):
            sizes[dim + 1] = extent = Value("size", kind="int")
            emitter.op(Op("aten.sym_size.int", {"self": piece, "dim": dim}, [extent], op.origin))
    _emit_call(emitter, op, "aten::empty.out", [sizes, None, stack, stack])
    _patch_jump(emitter, later)


def _skip_if_empty(emitter: PlanBuilder, op: Op, count: Any, stacks: Sequence[Value | None]) -> int | None:
    """Skip the loop if there are no iterations; its results are then empty."""
    if count == 0:
        return None
    for stack in stacks:
        if stack is not None:
            size = [count, *stack.bound[1:]]
            _emit_call(emitter, op, "aten::empty.out", [size, None, stack, stack])
    some = Value("some", kind="bool")
    _emit_call(emitter, op, "executorch_prim::gt.Scalar", [count, 0, some])
    return _emit_jump(emitter, some, op)


def _min_size(size: Any) -> int:
    return size.min if isinstance(size, Dim) else int(size)


def _stack(emitter: PlanBuilder, out: Value | None) -> Value | None:
    """The tensor that collects slices: planned memory that grows slice by slice."""
    if out is None:
        return None
    index = emitter.argument(out, Kind.TENSOR)
    if not emitter.storage.planned(out):  # the caller's memory cannot grow
        out = Value(f"{out.name}_stack", out.dtype, out.shape, out.dim_order)
        index = emitter.argument(out, Kind.TENSOR)
    emitter.values.items[index].shape_dynamism = int(schema.Dynamism.DYNAMIC_BOUND)
    return out


# ----------------------------------------------------------------------------------------------------- helpers


def _carry(emitter: PlanBuilder, targets: Sequence[Any], sources: Sequence[Any], op: Op) -> None:
    """Assign in parallel: a value that is both read and written goes through a temporary."""
    staged = []
    for target, source in zip(targets, sources, strict=True):
        if source is target or target is None:
            continue
        if any(t is source or _shares_memory(emitter, t, source) for t in targets):
            temporary = Value(f"{target.name}_next", target.dtype, target.shape, target.dim_order, kind=target.kind)
            _assign(emitter, temporary, source, op)
            source = temporary
        staged.append((target, source))
    for target, source in staged:
        _assign(emitter, target, source, op)


def _shares_memory(emitter: PlanBuilder, target: Any, source: Any) -> bool:
    tensors = isinstance(target, Value) and isinstance(source, Value)
    return tensors and emitter.storage.share_block(target, source)


def _assign(emitter: PlanBuilder, target: Value | None, source: Any, op: Op) -> None:
    """Copy a tensor, or move a scalar."""
    assert target is not None
    if target.dtype is None:
        move = schema.MoveCall(move_from=emitter.argument(source, Kind.ANY), move_to=emitter.argument(target, Kind.ANY))
        emitter.instruction(move, op)
        return
    emitter.op(Op("aten.clone.default", {"self": source, "memory_format": None}, [target], op.origin))


def _contiguous(emitter: PlanBuilder, value: Value, op: Op) -> Value:
    order = tuple(range(len(value.shape)))
    if value.dim_order == order:
        return value
    copy = Value(f"{value.name}_contiguous", value.dtype, value.shape, order)
    _assign(emitter, copy, value, op)
    return copy


def _emit_call(emitter: PlanBuilder, op: Op, key: str, args: Sequence[Any]) -> None:
    if key not in emitter.options.kernels.keys:
        where = f" in module {op.origin.module!r}" if op.origin.module else ""
        rule = f"needs {key}, which the {emitter.options.kernels.name!r} runtime does not have"
        raise UnsupportedOperatorError(f"{op.kind}{where}", rule, remedy=op.origin.line)
    emitter.call(OPERATORS[key], [emitter.argument(a, Kind.ANY) for a in args], [], op)


def _emit_jump(emitter: PlanBuilder, unless: Any, op: Op, to: int = 0) -> int:
    """Emit a jump taken if ``unless`` is false; returns its index, for a destination that is patched later."""
    condition = emitter.argument(unless, Kind.ANY)
    return emitter.instruction(schema.JumpFalseCall(cond_value_index=condition, destination_instruction=to), op)


def _patch_jump(emitter: PlanBuilder, jump: int) -> None:
    """Patch a jump to the next instruction."""
    emitter.instructions[jump].destination_instruction = len(emitter.instructions)


CONTROL_FLOW: dict[str, Callable[[PlanBuilder, Op], None]] = {
    "cond": emit_cond,
    "map_impl": emit_scan,
    "scan": emit_scan,
    "while_loop": emit_while_loop,
}

"""Programs that are well formed and mean harm: sizes, loops, aliases and arguments that no compiler writes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgewright.errors import EdgewrightError, ExecutionError, FormatError, LimitError
from edgewright.formats import schema
from edgewright.formats.pte_writer import write_program
from edgewright.runtime import Runtime
from tests.support import hostile
from tests.support.build import PlanBuilder, arrays_of, one_call

HUGE, FAR = 2**40, 2**62
ROW = np.ones(4, np.float32)
SQUARE = np.ones((2, 2), np.float32)
IMAGE = np.ones((1, 2, 4, 4), np.float32)
KERNEL = np.ones((2, 2, 3, 3), np.float32)
NO_BATCH = np.ones((0, 2, 4, 4), np.float32)
INDEX = np.array([0, 9], np.int64)


def execute(program: schema.Program, inputs: list[Any] | None = None) -> list[Any]:
    """Write, load and run a program under small limits; it may take no more memory than they say."""
    tracemalloc.start()
    try:
        loaded = Runtime.get().load_program(write_program(program), limits=hostile.LIMITS)
        return loaded.load_method().execute(inputs or [])
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 300 << 20


def conv(x: np.ndarray, stride: int, padding: int, dilation: int, transposed: bool = False) -> tuple[str, list[Any]]:
    numbers = [[stride] * 2, [padding] * 2, [dilation] * 2]
    return "aten::convolution.out", [x, KERNEL, None, *numbers, transposed, [0, 0], 1]


# What is asked for does not fit the planned result of shape [4]; the sizes must be found out before they are made.
TOO_LARGE: list[tuple[str, list[Any]]] = [
    ("aten::full.out", [[HUGE], 1.0]),
    ("aten::full.out", [[FAR, FAR, FAR], 1.0]),
    ("aten::full.out", [[-1], 1.0]),
    ("aten::zeros.out", [[2**31, 2**31]]),
    ("aten::rand.out", [[HUGE]]),
    ("aten::arange.out", [HUGE]),
    ("aten::arange.start_out", [0.0, 1e300, 1e-300]),
    ("aten::arange.start_out", [0, HUGE, 1]),
    ("aten::arange.start_out", [0, 4, 0]),
    ("aten::repeat.out", [ROW, [HUGE]]),
    ("aten::repeat.out", [ROW, [FAR, FAR]]),
    ("aten::expand_copy.out", [ROW[:1], [HUGE], False]),
    ("aten::constant_pad_nd.out", [ROW, [HUGE, HUGE], 0.0]),
    ("aten::constant_pad_nd.out", [ROW, [-HUGE, 0], 0.0]),
    ("aten::reflection_pad1d.out", [SQUARE, [HUGE, HUGE]]),
    ("aten::replication_pad1d.out", [SQUARE, [HUGE, HUGE]]),
    ("aten::view_copy.out", [ROW, [HUGE, -1]]),
    ("aten::view_copy.out", [ROW, [0, -1]]),
    ("aten::as_strided_copy.out", [ROW, [4], [1], 1]),
    ("aten::as_strided_copy.out", [ROW, [4], [FAR], 0]),
    ("aten::as_strided_copy.out", [ROW, [4], [-1], 3]),
    ("aten::as_strided_copy.out", [ROW, [4], [0], FAR]),
    ("aten::unfold_copy.out", [ROW, 0, FAR, 1]),
    ("aten::pixel_shuffle.out", [IMAGE, FAR]),
    ("aten::upsample_nearest2d.vec_out", [IMAGE, [2**20, 2**20], None]),
    ("aten::upsample_bilinear2d.vec_out", [IMAGE, None, False, [1e300, 1e300]]),
    ("aten::_upsample_bilinear2d_aa.out", [IMAGE, [2**20, 2**20], False, None, None]),
    ("aten::_adaptive_avg_pool2d.out", [IMAGE, [2**30, 2**30]]),
    ("aten::avg_pool2d.out", [IMAGE, [1, 1], [1, 1], [HUGE, HUGE], False, True, None]),
    ("aten::embedding.out", [SQUARE, INDEX, -1, False, False]),
    ("aten::index_select.out", [ROW, 0, INDEX]),
    ("aten::gather.out", [ROW, 0, INDEX, False]),
    ("aten::index.Tensor_out", [ROW, [INDEX]]),
    ("aten::repeat_interleave.Tensor_out", [np.array([HUGE, FAR]), None]),
    ("aten::cumsum.out", [ROW, 1, None]),
    ("aten::cumsum.out", [ROW, -FAR, None]),
    ("aten::sum.IntList_out", [ROW, [7], False, None]),
    ("aten::select_copy.int_out", [ROW, 0, FAR]),
    ("aten::slice_copy.Tensor_out", [ROW, 0, 0, 4, 0]),
    ("aten::permute_copy.out", [SQUARE, [0, 0]]),
    ("aten::cat.out", [[], 0]),
    ("aten::mm.out", [SQUARE, IMAGE]),
    ("aten::native_layer_norm.out", [SQUARE, [FAR], None, None, 1e-5]),
    conv(IMAGE, 1, 2**30, 1),
    conv(IMAGE, 2**31, 2**30, 2**31),
    conv(IMAGE, 1, 0, 2**31),
    conv(IMAGE, 0, 0, 1),
    conv(IMAGE, 2**31, 0, 1, transposed=True),
    conv(IMAGE, 1, 0, 2**31, transposed=True),
]  # fmt: skip


@pytest.mark.parametrize(("key", "args"), TOO_LARGE, ids=[f"{i}-{key}" for i, (key, _) in enumerate(TOO_LARGE)])
def test_arguments_that_fit_no_plan_are_refused(key: str, args: list[Any]) -> None:
    outputs = [ROW] * (3 if "layer_norm" in key else 1)
    with pytest.raises(ExecutionError):
        execute(one_call(key, args, outputs), arrays_of(args))


def test_topk_of_more_than_there_is() -> None:
    args = [ROW, FAR, 0, True, True]
    with pytest.raises(ExecutionError, match="topk"):
        execute(one_call("aten::topk.values", args, [ROW, ROW.astype(np.int64)]), [ROW])


def test_a_convolution_whose_padding_reaches_across_the_plan_costs_no_padding() -> None:
    key, args = conv(IMAGE, 2**31, 2**30, 1)
    (out,) = execute(one_call(key, args, [np.ones((1, 2, 2, 2), np.float32)]), arrays_of(args))
    assert out.shape == (1, 2, 2, 2)
    assert not out.any()


@pytest.mark.parametrize(
    ("key", "args"),
    [
        ("aten::_adaptive_avg_pool2d.out", [NO_BATCH, [2**31 - 1, 1]]),
        ("aten::upsample_nearest2d.vec_out", [NO_BATCH, [2**31 - 1, 1], None]),
        ("aten::upsample_bilinear2d.vec_out", [NO_BATCH, [2**31 - 1, 1], False, None]),
        ("aten::_upsample_bilinear2d_aa.out", [NO_BATCH, [2**31 - 1, 1], False, None, None]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_an_empty_result_costs_nothing_however_large_its_other_sizes(key: str, args: list[Any]) -> None:
    (out,) = execute(one_call(key, args, [np.empty((0, 2, 2**31 - 1, 1), np.float32)]), arrays_of(args))
    assert out.shape == (0, 2, 2**31 - 1, 1)


# ------------------------------------------------------------------------------------------------------------ memory


def unplanned(builder: PlanBuilder, count: int) -> int:
    return builder.value(schema.Tensor(scalar_type=6, sizes=(count,), dim_order=(0,)))


def filled(builder: PlanBuilder, tensor: int, count: int) -> None:
    one = builder.value(schema.Int(int_val=1))
    builder.call("aten::full.out", [builder.ints([count]), one, tensor, tensor])


def test_tensors_without_planned_memory_share_a_limit() -> None:
    builder = PlanBuilder()
    for _ in range(8):
        filled(builder, unplanned(builder, 1 << 22), 1 << 22)
    with pytest.raises(LimitError, match="Raise it"):
        execute(builder.program())


def test_one_tensor_without_planned_memory_larger_than_the_limit() -> None:
    builder = PlanBuilder()
    filled(builder, unplanned(builder, 2**31 - 1), 2**31 - 1)
    with pytest.raises(LimitError):
        execute(builder.program())


def test_memory_of_an_unplanned_tensor_is_given_back_when_it_shrinks() -> None:
    builder = PlanBuilder()
    sizes = (1 << 23,)
    tensor = builder.value(schema.Tensor(scalar_type=6, sizes=sizes, dim_order=(0,), shape_dynamism=1))
    for count in (1 << 23, 1, 1 << 23, 1 << 22):
        filled(builder, tensor, count)
    builder.outputs = [tensor]
    (out,) = execute(builder.program())
    assert out.shape == (1 << 22,)


def test_planned_memory_beyond_the_limit() -> None:
    builder = PlanBuilder()
    builder.tensor(np.float32, (1 << 25,))
    with pytest.raises(LimitError, match="may plan"):
        execute(builder.program())


def test_one_tensor_returned_many_times() -> None:
    builder = PlanBuilder()
    builder.outputs = [builder.tensor(np.float32, (1 << 22,))] * 100
    with pytest.raises(LimitError, match="may return"):
        execute(builder.program())


def test_a_list_that_names_one_tensor_many_times() -> None:
    builder = PlanBuilder()
    x, out = builder.tensor(np.float32, (1 << 20,)), builder.tensor(np.float32, (4,))
    many = builder.value(schema.TensorList(items=[x] * 4000))
    builder.call("aten::cat.out", [many, builder.value(schema.Int(int_val=0)), out, out])
    with pytest.raises(ExecutionError):
        execute(builder.program())


# -------------------------------------------------------------------------------------------------------- instructions


def test_lists_that_come_to_hold_lists() -> None:
    """Moves put a list where a tensor was: read naively, 25 of them are 2**25 tensors."""
    builder = PlanBuilder()
    tensors = [builder.tensor(np.float32, (1,)) for _ in range(26)]
    lists = [builder.value(schema.TensorList(items=[t, t])) for t in tensors]
    out = builder.tensor(np.float32, (4,))
    moves = zip(lists, tensors[1:], strict=False)
    builder.instructions = [schema.MoveCall(move_from=a, move_to=b) for a, b in moves]
    builder.call("aten::cat.out", [lists[-1], builder.value(schema.Int(int_val=0)), out, out])
    with pytest.raises(ExecutionError, match="must hold tensors"):
        execute(builder.program())


def test_a_list_that_comes_to_hold_itself() -> None:
    builder = PlanBuilder()
    x = builder.tensor(np.float32, (1,))
    items = builder.value(schema.TensorList(items=[x]))
    out = builder.tensor(np.float32, (1,))
    builder.instructions = [schema.MoveCall(move_from=items, move_to=x)]
    builder.call("aten::cat.out", [items, builder.value(schema.Int(int_val=0)), out, out])
    builder.outputs = [out]
    with pytest.raises(ExecutionError, match="must hold tensors"):
        execute(builder.program())


def test_a_loop_that_computes_forever() -> None:
    builder = PlanBuilder()
    x = builder.tensor(np.float32, (4,))
    builder.call("aten::relu.out", [x, x, x])
    never = builder.value(schema.Bool(bool_val=False))
    builder.instructions.append(schema.JumpFalseCall(cond_value_index=never, destination_instruction=0))
    with pytest.raises(ExecutionError, match="at most 20000 instructions"):
        execute(builder.program())


def test_many_chains_beside_many_instructions() -> None:
    builder = PlanBuilder()
    x = builder.tensor(np.float32, (4,))
    builder.instructions = [schema.MoveCall(move_from=x, move_to=x)] * 2000
    program = builder.program()
    program.execution_plan[0].chains += [schema.Chain(instructions=[]) for _ in range(2000)]
    assert execute(program) == []


def test_many_delegates_that_nobody_has() -> None:
    builder = PlanBuilder()
    reference = schema.BackendDelegateDataReference(location=1, index=0)
    builder.delegates = [schema.BackendDelegate(id=f"b{i}", processed=reference) for i in range(2000)]
    with pytest.raises(EdgewrightError, match="b0, b1, "):
        execute(builder.program())


def test_a_condition_that_is_none() -> None:
    for value in (schema.Int(int_val=0), schema.Null(), schema.Tensor(scalar_type=6, sizes=(1,), dim_order=(0,))):
        builder = PlanBuilder()
        condition = builder.value(value)
        builder.instructions = [schema.JumpFalseCall(cond_value_index=condition, destination_instruction=0)]
        with pytest.raises(ExecutionError, match="condition"):
            execute(builder.program())


def test_a_tensor_nothing_has_filled() -> None:
    builder = PlanBuilder()
    x, out = unplanned(builder, 4), builder.tensor(np.float32, (4,))
    builder.call("aten::relu.out", [x, out, out])
    with pytest.raises(ExecutionError, match="no data"):
        execute(builder.program())
    builder.instructions, builder.outputs = [], [x]
    with pytest.raises(ExecutionError, match="filled by no instruction"):
        execute(builder.program())


# ----------------------------------------------------------------------------------------------------------- constants


def with_constant(*calls: tuple[str, list[int]], outputs: list[int]) -> schema.Program:
    """Value 0: a constant [4], 1: a planned tensor, 2: one without memory, 3: a list of sizes [4]."""
    builder = PlanBuilder()
    builder.value(schema.Tensor(scalar_type=6, sizes=(4,), dim_order=(0,), data_buffer_idx=1))
    builder.tensor(np.float32, (4,))
    unplanned(builder, 4)
    four = builder.value(schema.Int(int_val=4))
    builder.values[3], _ = schema.IntList(items=[4]), builder.value(builder.values[four])
    for key, args in calls:
        builder.call(key, args)
    builder.outputs = outputs
    made = builder.program()
    made.constant_segment = schema.SubsegmentOffsets(segment_index=made.add_segment(bytes(16)), offsets=[0, 0])
    return made


def test_a_constant_is_never_written() -> None:
    with pytest.raises(FormatError, match="constant"):
        execute(with_constant(("aten::relu.out", [1, 0, 0]), outputs=[0]))


def test_a_constant_is_never_written_through_another_name() -> None:
    view, relu = ("executorch_prim::et_view.default", [0, 3, 2]), ("aten::neg.out", [1, 2, 2])
    with pytest.raises(ExecutionError, match="read-only"):
        execute(with_constant(view, relu, outputs=[2]))


def test_a_constant_is_never_written_in_place() -> None:
    program = with_constant(outputs=[])
    program.execution_plan[0].values += [schema.Bool(bool_val=False)]
    program.execution_plan[0].operators = [schema.Operator(name="aten::copy_", overload="")]
    program.execution_plan[0].chains[0].instructions = [schema.KernelCall(op_index=0, args=[0, 1, 5, 0])]
    with pytest.raises(FormatError, match="constant"):
        execute(program)


# ------------------------------------------------------------------------------------------------------------- numbers


def number(value: int | float | bool) -> schema.Value:
    if isinstance(value, bool):
        return schema.Bool(bool_val=value)
    return schema.Int(int_val=value) if isinstance(value, int) else schema.Double(double_val=value)


def arithmetic() -> Iterator[tuple[str, list[int | float]]]:
    least, most = -(2**63), 2**63 - 1
    yield from (("add", [most, 1]), ("sub", [least, 1]), ("mul", [most, most]), ("neg", [least]))
    yield from (("floordiv", [least, -1]), ("floordiv", [1, 0]), ("truediv", [1, 0]), ("mod", [1, 0]))
    for value in (float("inf"), float("nan"), 1e300):
        yield from ((name, [value]) for name in ("ceil", "trunc", "round", "sym_int"))


@pytest.mark.parametrize(("name", "operands"), list(arithmetic()))
def test_arithmetic_that_does_not_fit_is_an_error(name: str, operands: list[int | float]) -> None:
    builder = PlanBuilder()
    indices = [builder.value(number(v)) for v in operands]
    result = builder.value(schema.Int(int_val=0))
    builder.call(f"executorch_prim::{name}.Scalar", [*indices, result])
    builder.outputs = [result]
    with pytest.raises(ExecutionError):
        execute(builder.program())


def test_a_list_as_long_as_a_file_is_not_multiplied() -> None:
    builder = PlanBuilder()
    x, out = builder.tensor(np.float32, (4,)), builder.tensor(np.float32, (4,))
    size = builder.value(schema.Int(int_val=FAR + 1))
    sizes = builder.value(schema.IntList(items=[size] * 200_000))
    builder.call("aten::view_copy.out", [x, sizes, out, out])
    with pytest.raises(ExecutionError, match="at most 64 dims"):
        execute(builder.program())


def test_arguments_of_other_kinds_and_counts() -> None:
    builder = PlanBuilder()
    x = builder.tensor(np.float32, (4,))
    for value in (schema.Null(), schema.String(string_val="x"), schema.DoubleList(items=[1.0]), schema.Int(int_val=1)):
        other = builder.value(value)
        for args in ([other, x, x], [x, other, other], [x], [], [x, x, x, x]):
            builder.operators, builder.instructions = [], []
            builder.call("aten::relu.out", args)
            with pytest.raises(FormatError):
                execute(builder.program())

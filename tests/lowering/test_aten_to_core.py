"""One way from ATen to core: XNNPACK's groups and the runtime's kernel calls are lowered by the same functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.ops import BACKEND
from edgewright.ir.aten.ops import OPS
from edgewright.ir.core.dialect import CORE
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.verify import verify
from edgewright.lowering.aten_to_core import LOWERINGS
from edgewright.lowering.passes.layout import NHWC, GroupLowering, LoweringContext, NotLoweredError
from edgewright.runtime.jit.bind_call import _KINDS, lower_call
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.tensor import TensorSlot
from tests.engine.coverage.calls import samples, taken

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


def value(*shape: int, dtype: Any = F32, data: Array | None = None) -> Value:
    return Value("v", dtype, shape, tuple(range(len(shape))), data)


def slot(*shape: int, constant: bool = False) -> TensorSlot:
    memory = np.frombuffer(bytes(4 * int(np.prod(shape))), np.uint8) if constant else None
    return TensorSlot(to_scalar_type(F32), shape, tuple(range(len(shape))), memory=memory)


def test_every_lowering_is_of_an_operator_that_has_a_row_or_a_kernel() -> None:
    assert set(LOWERINGS) <= set(OPS) | set(_KINDS.values())


def test_xnnpacks_rows_name_these_lowerings() -> None:
    modules = {row.lower.__module__ for row in BACKEND.rows.values()}
    assert all(name.startswith("edgewright.lowering.aten_to_core.") for name in modules)


# Kernel, operator, arguments (tuples are shapes of tensors), shape of the result.
CALLS: list[tuple[str, str, dict[str, Any], tuple[int, ...]]] = [
    ("aten::add.out", "add", {"self": (2, 3), "other": (3,), "alpha": 1}, (2, 3)),
    ("aten::mul.Scalar_out", "mul", {"self": (2, 3), "other": 2.0}, (2, 3)),
    ("aten::hardtanh.out", "hardtanh", {"self": (2, 3), "min_val": 0.0, "max_val": 6.0}, (2, 3)),
    ("aten::_softmax.out", "softmax", {"self": (2, 3, 4), "dim": 1, "half_to_float": False}, (2, 3, 4)),
    ("aten::mm.out", "mm", {"self": (2, 3), "mat2": (3, 4)}, (2, 4)),
    ("aten::bmm.out", "bmm", {"self": (2, 3, 4), "mat2": (2, 4, 5)}, (2, 3, 5)),
    ("aten::cat.out", "cat", {"tensors": [(2, 3), (2, 4)], "dim": 1}, (2, 7)),
    ("aten::stack.out", "stack", {"tensors": [(2, 3), (2, 3)], "dim": 1}, (2, 2, 3)),
    ("aten::slice_copy.Tensor_out", "slice", {"self": (2, 9), "dim": 1, "start": 2, "end": 7, "step": 1}, (2, 5)),
    ("aten::select_copy.int_out", "select", {"self": (2, 9), "dim": 1, "index": -1}, (2,)),
    ("aten::constant_pad_nd.out", "pad", {"self": (2, 3), "pad": [1, 2], "value": 0.0}, (2, 6)),
    ("aten::convolution.out", "conv2d", {
        "input": (1, 4, 8, 8), "weight": "constant", "bias": None, "stride": [1, 1], "padding": [1, 1],
        "dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1}, (1, 6, 8, 8)),
]  # fmt: skip


def convert(argument: Any, tensor: Any) -> Any:
    """Shapes of an argument as tensors."""
    if argument == "constant":
        return tensor(6, 4, 3, 3, constant=True)
    if isinstance(argument, tuple):
        return tensor(*argument)
    return [convert(a, tensor) for a in argument] if isinstance(argument, list) else argument


def as_value(*shape: int, constant: bool = False) -> Value:
    return value(*shape, data=np.zeros(shape, np.float32) if constant else None)


@pytest.mark.parametrize(("key", "kind", "args", "shape"), CALLS, ids=[kind for _, kind, *_ in CALLS])
def test_a_group_and_a_call_become_the_same_core_operators(
    key: str, kind: str, args: dict[str, Any], shape: tuple[int, ...]
) -> None:
    builder, out = GraphBuilder(lambda slot: False), slot(*shape)
    slots = {name: convert(argument, slot) for name, argument in args.items()}
    for tensor in (t for a in slots.values() for t in (a if isinstance(a, list) else [a])):
        if isinstance(tensor, TensorSlot) and tensor.memory is None:
            builder.value_in_dim_order(tensor)  # data movement only extends a graph
    assert lower_call(builder, key, slots, [out])
    builder.graph.outputs = [builder.value_in_dim_order(out)]

    group, result = Graph("group"), value(*shape)
    op = Op(kind, {name: convert(argument, as_value) for name, argument in args.items()}, [result])
    group.inputs = [v for v in op.inputs() if not v.constant]
    group.ops, group.outputs = [op], [result]
    lowered = GroupLowering(group, BACKEND.rows).run()

    for graph in (builder.graph, lowered):
        verify(graph, CORE)
    assert [op.kind for op in builder.graph.ops] == [op.kind for op in lowered.ops] != []


def test_elementwise_calls_follow_the_layout_of_their_operands() -> None:
    builder, out = GraphBuilder(lambda slot: False), slot(1, 4, 5, 5)
    image = TensorSlot(to_scalar_type(F32), (1, 4, 5, 5), NHWC)
    assert lower_call(builder, "aten::exp.out", {"self": image}, [out])
    assert builder.orders(builder.source(out)) == [NHWC]
    assert [op.kind for op in builder.graph.ops] == ["core.exp"]


def lower(kind: str, **args: Any) -> LoweringContext:
    context = LoweringContext("test")
    for argument in args.values():
        if isinstance(argument, Value) and not argument.constant:
            context.make(argument)
    LOWERINGS[kind](context, Op(kind, args, [value(2, 3, dtype=args["self"].dtype)]))
    return context


def test_indices_that_nobody_checks_are_not_lowered() -> None:
    """The engine's kernels do not check them. The runtime's context has them checked before each run."""
    with pytest.raises(NotLoweredError, match="must be in range"):
        lower("index_select", self=value(4, 3), dim=0, index=value(2, dtype=I64))
    with pytest.raises(NotLoweredError, match="must be in range"):
        lower("index_select", self=value(4, 3), dim=0, index=value(2, dtype=I64, data=np.array([0, 4])))
    context = lower("index_select", self=value(4, 3), dim=0, index=value(2, dtype=I64, data=np.array([0, 3])))
    assert [op.kind for op in context.graph.ops] == ["core.index_select"]


def test_integer_division_by_what_may_be_zero_is_not_lowered() -> None:
    with pytest.raises(NotLoweredError, match="must not be zero"):
        lower("remainder", self=value(2, 3, dtype=I64), other=value(2, 3, dtype=I64))
    with pytest.raises(NotLoweredError, match="must not be zero"):
        lower("remainder", self=value(2, 3, dtype=I64), other=0)
    assert lower("remainder", self=value(2, 3, dtype=I64), other=7).graph.ops


def test_a_call_whose_result_has_another_shape_is_left_to_its_kernel() -> None:
    builder = GraphBuilder(lambda slot: False)
    assert not lower_call(builder, "aten::exp.out", {"self": slot(2, 3)}, [slot(3, 2)])
    assert not builder.graph.ops
    assert not builder.input_slots


@pytest.mark.parametrize("fill", [0.0, float("-inf"), float("nan")])
def test_padding_with_any_number_is_valid_in_core(fill: float) -> None:
    builder, out, image = GraphBuilder(lambda slot: False), slot(2, 5), slot(2, 3)
    builder.value_in_dim_order(image)
    assert lower_call(builder, "aten::constant_pad_nd.out", {"self": image, "pad": [1, 1], "value": fill}, [out])
    builder.graph.outputs = [builder.value_in_dim_order(out)]
    verify(builder.graph, CORE)


def test_all_samples_of_kernel_calls_become_valid_core_graphs() -> None:
    """Operands, attributes, element types and shapes are those of the core table's rows."""
    graphs = [taken(sample) for key in samples() for sample in samples()[key][:2]]
    lowered = [found.graph for found in graphs if found is not None]
    assert len(lowered) > 250
    for graph in lowered:
        verify(graph, CORE)

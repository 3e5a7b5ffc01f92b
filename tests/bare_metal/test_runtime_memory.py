"""Allocator sizes of ExecuTorch's runtime. ``tests/interop/test_stock_memory.py`` compares them with the runtime."""

from __future__ import annotations

import numpy as np

from edgewright.bare_metal.runtime_memory import ABIS, method_allocator_bytes, temp_allocator_bytes
from edgewright.formats import schema
from edgewright.runtime.device_memory import DeviceMemory
from tests.support.build import PlanBuilder


def every_kind_of_value() -> schema.ExecutionPlan:
    """A method with values of all kinds, a dynamic shape, and calls of two kernels."""
    build = PlanBuilder()
    x = build.input(np.float32, (2, 3))
    y = build.input(np.float32, (2, 3), shape_dynamism=int(schema.Dynamism.DYNAMIC_BOUND))
    sizes = build.ints([2, 3, 1])
    build.value(schema.TensorList(items=[x, y]))
    build.value(schema.OptionalTensorList(items=[x, -1, y]))
    for value in (schema.BoolList(items=[True]), schema.DoubleList(items=[1.0, 2.0]), schema.String(string_val="abc")):
        build.value(value)
    for value in (schema.Null(), schema.Bool(bool_val=True), schema.Double(double_val=2.0)):
        build.value(value)
    one, out = build.value(schema.Int(int_val=1)), build.tensor(np.float32, (2, 3))
    build.call("aten::add.out", [x, y, one, out, out])
    build.call("aten::view_copy.out", [out, sizes, out, out])
    build.outputs.append(out)
    return build.plan()


def test_every_kind_of_value() -> None:
    plan = every_kind_of_value()
    # 64 bits: what the method allocator of ExecuTorch 1.5.1 reported for this program
    assert method_allocator_bytes(plan, ABIS[64], []) == 920
    assert temp_allocator_bytes(plan, ABIS[64], []) == 5 * (24 + 16)
    assert temp_allocator_bytes(plan, ABIS[32], []) == 5 * (12 + 16)
    assert method_allocator_bytes(plan, ABIS[32], []) == 620


def test_topk_sorts_in_the_temp_allocator() -> None:
    build = PlanBuilder()
    x = build.input(np.float32, (2, 100))
    k, dim, yes = (build.value(v) for v in (schema.Int(int_val=3), schema.Int(int_val=-1), schema.Bool(bool_val=True)))
    values, indices = build.tensor(np.float32, (2, 3)), build.tensor(np.int64, (2, 3))
    build.call("aten::topk.values", [x, k, dim, yes, yes, values, indices, values])
    assert temp_allocator_bytes(build.plan(), ABIS[32], []) == 100 * 16


def test_scratch_of_a_delegate_is_not_added_to_that_of_others() -> None:
    build = PlanBuilder()
    x, y = build.input(np.int8, (4,)), build.tensor(np.int8, (4,))
    reference = schema.BackendDelegateDataReference(location=0, index=0)
    build.delegates += [schema.BackendDelegate(id="Npu", processed=reference, compile_specs=[])] * 2
    build.instructions += [schema.DelegateCall(delegate_index=i, args=[x, y]) for i in (0, 1)]
    memory = [DeviceMemory("npu", {}, scratch, 16, handle_words=4) for scratch in (1000, 3000)]
    assert temp_allocator_bytes(build.plan(), ABIS[32], memory) == 3000
    without = method_allocator_bytes(build.plan(), ABIS[32], [DeviceMemory("npu", {}, 0, 16, handle_words=0)] * 2)
    assert method_allocator_bytes(build.plan(), ABIS[32], memory) == without + 2 * 4 * 4

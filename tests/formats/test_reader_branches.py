"""Checks of the readers that no other test's files reach: each is met by a file, or a call, of its own."""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack import blob as xnnpack
from edgewright.backends.xnnpack.blob_reader import from_blob
from edgewright.backends.xnnpack.nodes import LegacyBuffer
from edgewright.backends.xnnpack.tables import DTYPES
from edgewright.errors import ExecutionError, FormatError, LimitError, MismatchError, UsageError
from edgewright.formats import bpte, checked_int, schema
from edgewright.formats.container import Chunks, segment_chunks
from edgewright.formats.etrecord import GRAPHS, IDENTIFIER, read_record
from edgewright.formats.flatbuffer_writer import FlatWriter
from edgewright.formats.ptd import PTD, DataSegment, PtdEntry, TensorLayout, read_data, tensor_entry, write_data
from edgewright.formats.pte_reader import read_program
from edgewright.formats.pte_writer import write_program
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import write_twin
from edgewright.formats.verify_program import verify_program
from edgewright.ir.dtypes import to_scalar_type
from edgewright.ir.graph import Dim, Graph, GraphError, Op, QParams, Value
from edgewright.runtime import Limits, Runtime, register_kernel, shared_state, values
from edgewright.runtime.shared_state import Guard
from edgewright.runtime.tensor import TensorSlot
from edgewright.runtime.verify_bundle import compare, verify_bundle
from tests.formats.test_twin import joined, parts
from tests.support import golden
from tests.support.build import PlanBuilder, program

FLOAT = int(to_scalar_type(np.dtype(np.float32)))
HUGE = [2**31 - 1] * 3


# ----------------------------------------------------------------------------------------------------- arithmetic


def test_sizes_and_types_are_checked_wherever_they_come_from() -> None:
    with pytest.raises(FormatError, match="a size must not be negative; got -1"):
        checked_int.product((2, -1))
    with pytest.raises(FormatError, match="scalar_type: must be a known scalar type; got 99"):
        checked_int.tensor_bytes(99, (1,))


# --------------------------------------------------------------------------------------------------------- records


def test_records_are_made_of_their_fields() -> None:
    with pytest.raises(TypeError, match="NamedData needs key"):
        schema.NamedData(segment_index=1)
    with pytest.raises(TypeError, match="Int has no wrong"):
        schema.Int(wrong=1)
    assert schema.Int(int_val=1) != schema.Bool(bool_val=True)


def test_a_field_that_is_needed_is_written() -> None:
    made = schema.NamedData(key="k")
    made.key = None
    with pytest.raises(UsageError, match=r"NamedData.key: must be given"):
        FlatWriter().table(made)


# -------------------------------------------------------------------------------------------------------- programs


def test_a_segment_has_the_bytes_that_its_table_says() -> None:
    made = PlanBuilder().program()
    made.segments[0].size = 7
    with pytest.raises(FormatError, match=r"segments\[0\]: must hold the 7 bytes its table says; got 0"):
        write_program(made)


def test_segments_are_laid_out_apart() -> None:
    parted = [schema.DataSegment(offset=at, size=4, data=b"data") for at in (0, 2)]
    with pytest.raises(FormatError, match="segments must not overlap; got 2"):
        list(segment_chunks(parted, 0))
    chunks = Chunks()
    assert [chunks.add(b"abc", 4), chunks.add(b"de", 4)] == [0, 4] and len(chunks) == 6
    segment = schema.DataSegment(offset=0, size=6, data=chunks)
    assert b"".join(segment_chunks([segment], 2)) == b"\0\0abc\0de"


def test_names_of_data_differ() -> None:
    made = PlanBuilder().program()
    made.named_data = [schema.NamedData(key="k", segment_index=0) for _ in range(2)]
    with pytest.raises(FormatError, match=r"named_data\[1\].key: keys must differ; got k"):
        write_program(made)


def test_values_that_are_freed_are_checked() -> None:
    builder = PlanBuilder()
    builder.tensor(np.float32, [4])
    builder.instructions = [schema.FreeCall(value_index=1)]
    with pytest.raises(FormatError, match=r"instructions\[0\].args: must be one of the 1 values; got 1"):
        write_program(builder.program())


def test_a_stack_trace_is_of_each_instruction() -> None:
    builder = PlanBuilder()
    builder.tensor(np.float32, [4])
    builder.instructions = [schema.FreeCall(value_index=0)]
    made = builder.program()
    made.execution_plan[0].chains[0].stacktrace = [schema.FrameList(items=[])] * 2
    with pytest.raises(FormatError, match=r"stacktrace: must match the 1 instructions; got 2"):
        write_program(made)


# ------------------------------------------------------------------------------------------------------------ data


def test_a_tensor_of_a_data_file_has_a_size() -> None:
    entry = PtdEntry(b"data", TensorLayout(scalar_type=FLOAT, sizes=HUGE, dim_order=(0, 1, 2)))
    with pytest.raises(FormatError, match=r"named_data\[0\].tensor_layout: the product of sizes must fit 63 bits"):
        write_data({"w": entry})
    assert PTD.identifier == b"FT01" and DataSegment is schema.DataSegment
    assert read_data(write_data({"w": tensor_entry(np.ones(3, np.float32))}))["w"].layout is not None


# --------------------------------------------------------------------------------------------------------- bundles


def bundle(*suites: Any) -> bytes:
    table = bpte.BundledProgramTable(version=bpte.VERSION, method_test_suites=list(suites), program=b"program")
    return FlatWriter().finish(table, bpte.IDENTIFIER)


def suite(*inputs: Any) -> Any:
    case = bpte.BundledMethodTestCase(inputs=list(inputs))
    return bpte.BundledMethodTestSuite(method_name="forward", test_cases=[case])


def test_a_bundle_names_a_method_once() -> None:
    with pytest.raises(
        FormatError, match=r"method_test_suites\[1\].method_name: method names must differ; got forward"
    ):
        bpte.read_bundled(bundle(suite(), suite()))


def test_a_tensor_of_a_bundle_has_a_size() -> None:
    tensor = bpte.BundledTensor(scalar_type=FLOAT, sizes=HUGE, data=b"", dim_order=(0, 1, 2))
    with pytest.raises(FormatError, match=r"test_cases\[0\].inputs\[0\]: the product of sizes must fit 63 bits"):
        bpte.read_bundled(bundle(suite(tensor)))


def test_bundles_that_cannot_be_compared_are_named() -> None:
    data = golden.path("linear_fp32_portable").read_bytes()
    case = next(golden.cases("linear_fp32_portable"))
    several = bpte.TestCase(case.inputs, [*case.outputs, *case.outputs])
    with pytest.raises(MismatchError, match="gives 1 outputs; the bundle expects 2"):
        verify_bundle(bpte.write_bundled(bpte.BundledProgram(data, {"forward": [several]})))
    with pytest.raises(UsageError, match="bundle: has no test cases"):
        verify_bundle(bpte.write_bundled(bpte.BundledProgram(data, {})))


def test_arrays_of_other_kinds_are_apart_and_empty_ones_are_alike() -> None:
    assert compare(np.ones(2), np.ones(3), 0, 0) == (float("inf"), False)
    assert compare(np.ones(2), np.ones(2, np.float32), 0, 0) == (float("inf"), False)
    assert compare(np.ones(0), np.ones(0), 0, 0) == (0.0, True)


# --------------------------------------------------------------------------------------------------- XNNPACK's blobs


def linear_blob() -> Any:
    made = read_program(golden.path("linear_fp32_xnnpack"))
    return xnnpack.read_blob(made.blob(made.execution_plan[0].delegates[0])), made


def test_a_constant_has_a_name_or_a_place() -> None:
    read, _ = linear_blob()
    read.graph.constant_data[1].named_key = ""
    with pytest.raises(FormatError, match=r"constant_data\[1\].named_key: a key must not be empty"):
        xnnpack.write_blob(read)


def test_constants_of_old_blobs_are_in_the_graph() -> None:
    """Releases before 0.4 wrote them into the flatbuffer."""
    read, made = linear_blob()
    named = {item.key: bytes(made.segment(item.segment_index)) for item in made.named_data or ()}
    wanted = from_blob(read, named)
    read.graph.constant_buffer = [
        LegacyBuffer(storage=None if not index else named[entry.named_key])
        for index, entry in enumerate(read.graph.constant_data)
    ]
    read.graph.constant_data = None
    found = from_blob(xnnpack.read_blob(xnnpack.write_blob(read)), {})
    constants = [[v.data for op in g.ops for v in op.inputs() if v.data is not None] for g in (found, wanted)]
    assert constants[0] and all(np.array_equal(a, b) for a, b in zip(*constants, strict=True))


def blob_of(name: str) -> tuple[Any, dict[str, bytes]]:
    made = read_program(golden.path(name))
    read = xnnpack.read_blob(made.blob(made.execution_plan[0].delegates[0]))
    return read, {item.key: bytes(made.segment(item.segment_index)) for item in made.named_data or ()}


def cut(read: Any, named: dict[str, bytes], index: int) -> dict[str, bytes]:
    """The data, without the last byte of a constant."""
    key = read.graph.constant_data[index].named_key
    return {**named, key: named[key][:-1]}


def test_element_types_that_no_node_takes_are_refused() -> None:
    read, named = blob_of("linear_fp32_xnnpack")
    unknown = next(number for number in range(1, 15) if number not in DTYPES)
    read.graph.xvalues[0].tensor.datatype = unknown
    with pytest.raises(FormatError, match=f"value 0: element type is not supported; got {unknown}"):
        from_blob(read, named)


def test_constants_and_scales_that_are_too_short_are_refused() -> None:
    for name, value, rule in (
        ("linear_int8_pc_xnnpack", 2, "value 2 needs 12 bytes; got 11"),
        ("mlp_dynq_int4_xnnpack", 2, "value 2 needs 1024 bytes; got 1023"),
    ):
        read, named = blob_of(name)
        stored = read.graph.xvalues[value]
        with pytest.raises(FormatError, match=rule):
            from_blob(read, cut(read, named, stored.tensor.constant_buffer_idx))
        with pytest.raises(FormatError, match=r"scales need \d+ bytes; got \d+"):
            from_blob(read, cut(read, named, stored.quant.scale_buffer_idx))


def test_scales_of_old_blobs_are_in_the_graph() -> None:
    read, named = blob_of("linear_int8_pc_xnnpack")
    wanted = from_blob(read, named)
    for value in (v for v in read.graph.xvalues if getattr(v.quant, "scale_buffer_idx", 0)):
        data = named[read.graph.constant_data[value.quant.scale_buffer_idx].named_key]
        value.quant.scale = np.frombuffer(data, np.float32, value.quant.num_scales).tolist()
        value.quant.scale_buffer_idx = 0
    found = from_blob(xnnpack.read_blob(xnnpack.write_blob(read)), named)
    assert [v.q for op in found.ops for v in op.inputs()] == [v.q for op in wanted.ops for v in op.inputs()]


def test_resizing_says_how_its_corners_lie() -> None:
    from tests.backends.device import program as device_program
    from tests.backends.node_cases import FLOAT as CASES

    made = read_program(device_program(CASES["resize"]()[0]))
    (op,) = from_blob(xnnpack.read_blob(made.blob(made.execution_plan[0].delegates[0])), {}).ops
    assert op.kind == "core.upsample_bilinear2d" and isinstance(op.args["align_corners"], bool)


# ----------------------------------------------------------------------------------------------------------- twins


def test_a_twin_holds_a_constant_once() -> None:
    x = Value("x", np.dtype(np.float32), (2,), (0,))
    held = [Value(n, np.dtype(np.float32), (2,), (0,), np.full(2, i, np.float32)) for i, n in enumerate("ab")]
    y, z = (Value(n, np.dtype(np.float32), (2,), (0,)) for n in "yz")
    ops = [Op("add", {"a": x, "b": held[0]}, [y]), Op("add", {"a": y, "b": held[1]}, [z])]
    header, rest = parts(write_twin({"g": Graph("g", [x], [z], ops)}))
    size = header["constants"][0]["size"]
    second = header["constants"][1]["offset"]
    rest = rest[:second] + rest[:size] + rest[second + size :]
    header["constants"][1]["sha256"] = header["constants"][0]["sha256"]
    with pytest.raises(FormatError, match="constants: must not be stored twice"):
        read_twin(joined(header, rest))


# --------------------------------------------------------------------------------------------------------- records


def record(**texts: Any) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(IDENTIFIER, "")
        for name, content in texts.items():
            file.writestr(name, content if isinstance(content, str) else json.dumps(content))
    return made.getvalue()


GRAPH = {"graph_module": {"graph": {"nodes": [
    {"target": "torch.ops.aten.add.Tensor", "outputs": [{"as_tensor": {"name": "add"}}],
     "metadata": {"debug_handle": "3", "stack_trace": "line", "nn_module_stack": ";m,path,kind;n"}},
    {"target": "t", "metadata": {}},
]}}}  # fmt: skip


def test_a_record_says_what_instructions_stand_for() -> None:
    data = record(**{"debug_handle_map": {"forward": {"0": [3, 4], "1": 3}},
                     "delegate_map": {"1": {"name": "X"}, "2": 5}, f"{GRAPHS}forward": GRAPH})  # fmt: skip
    found = read_record(data)
    (node,) = found.at(0)
    assert (node.name, node.operator, node.stack_trace) == ("add", "add.Tensor", "line")
    assert node.modules == {"m": ("path", "kind"), "n": ("", "")} and found.at(9) == []
    assert found.delegates == {1: "X", 2: ""}
    other = record(**{"debug_handle_map": {"encode": {"0": 3}}, f"{GRAPHS}encode": GRAPH})
    assert read_record(other, "forward").at(0) == [node]
    two = record(**{"debug_handle_map": {"0": 3, "1": 3}, f"{GRAPHS}a": GRAPH, f"{GRAPHS}b": GRAPH})
    assert read_record(two, "forward").nodes == {}


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        ({"debug_handle_map": {"0": 1e400}}, "must be a number"),
        ({"debug_handle_map": {"0": "x"}}, "must be a number"),
        ({"debug_handle_map": {"0": None}}, "must be a number"),
        ({"debug_handle_map": []}, "must be a map; got list"),
        ({"debug_handle_map": "{"}, "debug_handle_map: must be JSON"),
        ({f"{GRAPHS}forward": {"graph_module": 1}}, "must be a graph of torch.export"),
        ({f"{GRAPHS}forward": {"graph_module": {"graph": {"nodes": [{"metadata": {"debug_handle": 1e400}}]}}}},
         "must be a number"),
    ],
)  # fmt: skip
def test_a_record_that_is_none_is_refused(texts: dict[str, Any], rule: str) -> None:
    with pytest.raises(FormatError, match=rule):
        read_record(record(**texts))


def test_a_record_is_a_small_zip_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("other", "")
    with pytest.raises(FormatError, match=f"an ETRecord holds {IDENTIFIER}; got other"):
        read_record(made.getvalue())
    with pytest.raises(FormatError, match="an ETRecord is a zip file"):
        read_record(b"PK")
    monkeypatch.setattr("edgewright.formats.etrecord._MAX_ENTRY_BYTES", 3)
    with pytest.raises(LimitError, match="debug_handle_map: must have at most 3 bytes; got 8"):
        read_record(record(debug_handle_map={"0": 3}))


# --------------------------------------------------------------------------------------------- what the runtime checks


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewright.runtime import registry

    monkeypatch.setattr(registry, "_KERNELS", dict(registry.all_kernels()))


def load(builder: PlanBuilder) -> Any:
    return Runtime.get().load_program(write_program(builder.program())).load_method()


@pytest.mark.usefixtures("kernels")
def test_integers_that_calls_give_fit_64_bits() -> None:
    results: list[Any] = [np.int64(5), 1 << 63, -(1 << 63) - 1]
    register_kernel("test::number(x: Tensor)", lambda x: results.pop(0))
    builder = PlanBuilder()
    x, n = builder.input(np.float32, [1]), builder.value(schema.Int(int_val=0))
    builder.call("test::number", [x, n])
    builder.outputs = [n]
    method, one = load(builder), np.ones(1, np.float32)
    (found,) = method.execute([one])
    assert found == 5 and type(found) is int
    for value in tuple(results):  # each call takes one
        with pytest.raises(ExecutionError, match=f"integer: must fit 64 bits; got {value}"):
            method.execute([one])


@pytest.mark.usefixtures("kernels")
def test_calls_of_operators_without_signature_list_their_results_twice() -> None:
    register_kernel("test::unsigned.out", lambda *inputs: tuple(inputs[0] * n for n in (2, 3)))
    for args in ([], [0]):
        builder = PlanBuilder()
        builder.input(np.float32, [1])
        builder.call("test::unsigned.out", args)
        with pytest.raises(FormatError, match="an operator call lists its result twice"):
            load(builder)
    builder = PlanBuilder()
    x, y, z = builder.input(np.float32, [2]), builder.tensor(np.float32, [2]), builder.tensor(np.float32, [2])
    both = builder.value(schema.TensorList(items=[y, z]))
    builder.call("test::unsigned.out", [x, y, z, both])
    builder.outputs = [y, z]
    found = load(builder).execute([np.ones(2, np.float32)])
    assert [list(a) for a in found] == [[2, 2], [3, 3]]


def test_calls_have_as_many_values_as_their_signature() -> None:
    builder = PlanBuilder()
    x = builder.input(np.float32, [2])
    builder.call("aten::relu.out", [x, x])
    with pytest.raises(FormatError, match=r"aten::relu.out takes 3 values; got 2"):
        load(builder)


def test_results_may_go_where_a_move_went() -> None:
    """A tensor that a move put in another's place is written through that other's name."""
    builder = PlanBuilder()
    x, y, z = builder.input(np.float32, [2]), builder.tensor(np.float32, [2]), builder.tensor(np.float32, [2])
    builder.instructions.append(schema.MoveCall(move_from=z, move_to=y))
    builder.call("aten::relu.out", [x, y, y])
    builder.outputs = [z]
    (found,) = load(builder).execute([np.array([-1, 2], np.float32)])
    assert list(found) == [0, 2]


def test_memory_that_is_not_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Any:
        raise MemoryError

    builder = PlanBuilder()
    builder.outputs = [builder.input(np.float32, [2])]
    data = write_program(builder.program())
    monkeypatch.setattr(values.np, "zeros", full)
    with pytest.raises(LimitError, match="does not fit in memory"):
        Runtime.get().load_program(data).load_method()


def mapping_flags(address: int) -> list[str]:
    """What the kernel knows about the mapping of an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(place[1], 16) <= address < int(place[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for huge pages")
def test_large_arenas_are_in_huge_pages() -> None:
    small, large = (shared_state.allocate("arena", size << 20, 1 << 30) for size in (1, 32))
    assert small.base is None and large.base is not None  # numpy's own memory, and a mapping
    if Path("/sys/kernel/mm/transparent_hugepage").exists():
        assert "hg" in mapping_flags(large.ctypes.data)
    assert large.nbytes == 32 << 20 and not large.any()
    large[-1] = 1
    with pytest.raises(LimitError, match="does not fit in memory"):
        shared_state.allocate("arena", 1 << 60, 1 << 62)


def sharing(initial: bytes = b"") -> bytes:
    """Two methods that share two numbers: one adds to them, one gives them."""
    plans = []
    for name in ("add", "read"):
        builder = PlanBuilder(name)
        info = schema.AllocationDetails(memory_id=2, memory_offset_low=0)
        state = builder.tensor(np.float32, [2], allocation_info=info, data_buffer_idx=1 if initial else 0)
        if name == "add":
            x, one = builder.input(np.float32, [2]), builder.value(schema.Int(int_val=1))
            builder.call("aten::add.out", [state, x, one, state, state])
        builder.outputs = [state]
        plan = builder.plan()
        plan.non_const_buffer_sizes = [0, builder.arena, 8]
        plans.append(plan)
    made = program(*plans)
    if initial:
        made.mutable_data_segments = [schema.SubsegmentOffsets(segment_index=made.add_segment(initial), offsets=[0, 0])]
    return write_program(made)


@pytest.mark.parametrize("initial", [(0, 0), (3, 4)])
def test_state_that_methods_share_is_put_back_for_all_of_them(initial: tuple[int, int]) -> None:
    first = np.array(initial, np.float32)
    loaded = Runtime.get().load_program(sharing(first.tobytes() if any(initial) else b""))
    add, read = loaded.load_method("add"), loaded.load_method("read")
    add.execute([np.array([1, 2], np.float32)])
    assert read.execute([])[0].tolist() == [initial[0] + 1, initial[1] + 2]
    read.reset()
    assert add.execute([np.ones(2, np.float32)])[0].tolist() == [initial[0] + 1, initial[1] + 1]


def test_state_that_methods_share_has_a_limit() -> None:
    loaded = Runtime.get().load_program(sharing(), limits=Limits(memory=7))
    with pytest.raises(LimitError, match="shared state: may plan 7 bytes; got 8"):
        loaded.load_method("read")


def test_an_execution_that_never_ended_is_known_in_a_forked_child() -> None:
    guard = Guard()
    guard._renew()
    assert not guard.torn
    with guard.lock:
        guard._renew()
        assert guard.torn and not guard.lock.locked()


def test_a_tensor_without_memory_has_the_shape_that_it_may_take() -> None:
    slot = TensorSlot(FLOAT, (2, 3), (0, 1))
    assert slot.shape == (2, 3) and slot.array is None


# ------------------------------------------------------------------------------------------- segments inside segments


def test_a_part_of_a_segment_lies_within_it() -> None:
    made = program(PlanBuilder())
    outer = made.add_segment(b"0123456789abcdef", 16)
    part = made.add_part(outer, 4, b"4567")
    assert bytes(made.segment(part)) == b"4567"
    assert made.segments is not None and made.segments[part].outer is made.segments[outer]
    with pytest.raises(FormatError, match="a part of a segment"):
        made.add_part(outer, 14, b"4567")


def test_constants_are_in_a_segment_or_in_the_file_not_in_both() -> None:
    made = read_program(golden.path("linear_fp32_portable").read_bytes())
    made.constant_buffer = [schema.ConstantBuffer(storage=b"1234")]
    with pytest.raises(FormatError, match="constant_buffer: must be empty when constants are in a segment"):
        verify_program(made)


def test_dynamic_quantization_of_a_twin_is_of_a_known_kind() -> None:
    q = QParams(0.5, 0, np.dtype(np.int8), -128, 127, dynamic="per_token")
    x = Value("x", np.dtype(np.int8), (2,), (0,), q=q)
    header, rest = parts(write_twin({"g": Graph("g", [x], [x], [])}))
    text = json.dumps(header).replace("per_token", "per_moon")
    with pytest.raises(FormatError, match="must be per_token or per_tensor; got per_moon"):
        read_twin(joined(json.loads(text), rest))


def test_arguments_that_a_twin_cannot_hold_are_named() -> None:
    x, y = (Value(name, np.dtype(np.float32), (2,), (0,)) for name in "xy")
    scalar = Op("core.mul", {"self": x, "other": np.float32(2)}, [y])
    assert b"core.mul" in write_twin({"g": Graph("g", [x], [y], [scalar])})
    sized = Op("core.view", {"self": x, "size": [Dim("s", 1, 2)]}, [y])
    assert b'"dim"' in write_twin({"g": Graph("g", [x], [y], [sized])})
    with pytest.raises(GraphError, match=r"core\.mul: has an argument that a file cannot hold"):
        write_twin({"g": Graph("g", [x], [y], [Op("core.mul", {"self": x, "other": object()}, [y])])})

"""Every index, size and offset that a program follows, wrong: refused when read, with the field named."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest

from edgewright.errors import EdgewrightError, FormatError, MissingDataError, VersionError
from edgewright.formats import schema
from edgewright.formats.ptd import PtdEntry, read_data, tensor_entry, write_data
from edgewright.formats.pte_reader import read_program
from edgewright.formats.pte_writer import write_program
from edgewright.runtime import Runtime
from tests.support import golden, hostile
from tests.support.build import PlanBuilder, program
from tests.support.mutate import cells

PLAN = "execution_plan[0]"
CHAIN = f"{PLAN}.chains[0].instructions"


def load(name: str) -> bytes:
    return (golden.GOLDEN / name).read_bytes()


def poke(data: bytes, path: str, value: int) -> bytes:
    """The file with the number at ``path`` set."""
    return next(cell for cell in cells(data) if cell.path == path).put(data, value)


def drop(data: bytes, table: str, slot: int) -> bytes:
    """The file with a field of a table absent."""
    return poke(data, f"{table}.vtable[{slot + 2}]", 0)


def stateful() -> bytes:
    """A program with an initial value, two delegates, a tensor list, a free, and indices that are not defaults."""
    builder = PlanBuilder()
    zero = builder.value(schema.Null())
    state = builder.tensor(np.float32, (4,), data_buffer_idx=1)
    builder.value(schema.TensorList(items=[state]))
    builder.value(schema.OptionalTensorList(items=[state, -1, zero]))
    reference = schema.BackendDelegateDataReference(location=0, index=1)
    builder.delegates = [schema.BackendDelegate(id="Nobody", processed=reference) for _ in range(2)]
    builder.instructions = [
        schema.DelegateCall(delegate_index=1, args=[1]),
        schema.FreeCall(value_index=1),
        schema.MoveCall(move_from=1, move_to=1),
    ]
    builder.outputs = [state]
    made = program(builder.plan())
    made.backend_delegate_data = [schema.BackendDelegateInlineData(data=b"blob") for _ in range(2)]
    made.add_segment(bytes(16))
    made.mutable_data_segments = [schema.SubsegmentOffsets(segment_index=1, offsets=[0, 0])]
    made.named_data = [schema.NamedData(key="k", segment_index=1)]
    plan = made.execution_plan[0]
    plan.non_const_buffer_device = [schema.NonConstBufferDevice(buffer_idx=1)]
    return write_program(made)


LINEAR, COND, XNN = load("linear_fp32_portable.pte"), load("cond.pte"), load("linear_fp32_xnnpack.pte")
STATE = stateful()


def find(data: bytes, end: str) -> str:
    """The first path that ends so."""
    return next(cell.path for cell in cells(data) if cell.path.endswith(end))


BAD: list[tuple[bytes, str, int, str]] = [
    (LINEAR, f"{PLAN}.inputs[0]", 10, r"inputs\[0\]"),
    (LINEAR, f"{PLAN}.inputs[0]", -1, "inputs"),
    (LINEAR, f"{PLAN}.outputs[0]", 10, r"outputs\[0\]"),
    (LINEAR, f"{PLAN}.outputs[0]", 2**31 - 1, "outputs"),
    (LINEAR, f"{CHAIN}[0]<KernelCall>.args[0]", 10, r"instructions\[0\].args"),
    (LINEAR, f"{CHAIN}[1]<KernelCall>.args[6]", -(2**31), "args"),
    (LINEAR, f"{CHAIN}[1]<KernelCall>.op_index", 2, r"instructions\[1\].op_index"),
    (LINEAR, f"{PLAN}.values[6]<IntList>.items[0]", 10, r"values\[6\].items\[0\]"),
    (LINEAR, f"{PLAN}.values[6]<IntList>.items[1]", -1, "items"),
    (LINEAR, f"{PLAN}.values[6]<IntList>.items[1]", 2**63 - 1, "items"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.allocation_info.memory_id", 0, "memory_id"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.allocation_info.memory_id", 2, "memory_id"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.allocation_info.memory_id", 2**32 - 1, "memory_id"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.allocation_info.memory_offset_low", 81, "arena"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.allocation_info.memory_offset_low", 2**32 - 1, "arena"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.sizes[0]", 2**31 - 1, "arena"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.sizes[0]", -1, "sizes"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.dim_order[0]", 1, "dim_order"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.dim_order[0]", 255, "dim_order"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.dim_order.length", 1, "dim_order"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.scalar_type", 30, "scalar_type"),
    (LINEAR, f"{PLAN}.values[2]<Tensor>.scalar_type", -1, "scalar_type"),
    (LINEAR, f"{PLAN}.values[0]<Tensor>.data_buffer_idx", 3, "data_buffer_idx"),
    (LINEAR, f"{PLAN}.values[0]<Tensor>.data_buffer_idx", 2, "data_buffer_idx"),
    (LINEAR, f"{PLAN}.values[0]<Tensor>.data_buffer_idx", 2**32 - 1, "data_buffer_idx"),
    (LINEAR, f"{PLAN}.non_const_buffer_sizes[1]", 111, "arena"),
    (LINEAR, f"{PLAN}.non_const_buffer_sizes[1]", -1, "non_const_buffer_sizes"),
    (LINEAR, f"{PLAN}.non_const_buffer_sizes.length", 0, "non_const_buffer_sizes"),
    (LINEAR, f"{PLAN}.chains.length", 0, "chains"),
    (LINEAR, "execution_plan.length", 0, "execution_plan"),
    (LINEAR, "constant_segment.offsets.length", 0, "constant_segment"),
    (LINEAR, "constant_segment.offsets[2]", 61, r"constant_segment.offsets\[2\]"),
    (LINEAR, "constant_segment.offsets[2]", 2**64 - 1, "constant_segment"),
    (LINEAR, "segments[0].size", 61, r"segments\[0\]"),
    (LINEAR, "segments[0].size", 2**64 - 1, r"segments\[0\]"),
    (LINEAR, "header.length", 23, "header"),
    (LINEAR, "header.length", 2**32 - 1, "header"),
    (LINEAR, "header.program_size", 2**64 - 1, "63 bits|within"),
    (LINEAR, "header.base", 2**64 - 60, "63 bits|within"),
    (LINEAR, "header.base", 8, "segments must come after"),
    (LINEAR, "header.size", 2**64 - 0x600, "63 bits|within"),
    (LINEAR, "header.size", 61, "within"),
    (COND, find(COND, "<JumpFalseCall>.cond_value_index"), 2**31 - 1, "instructions"),
    (COND, find(COND, "<JumpFalseCall>.destination_instruction"), 2**31 - 1, "destination_instruction"),
    (COND, find(COND, "<JumpFalseCall>.destination_instruction"), -1, "destination_instruction"),
    (COND, find(COND, "<MoveCall>.move_from"), 2**31 - 1, "instructions"),
    (COND, find(COND, "<MoveCall>.move_to"), -1, "move_to"),
    (XNN, f"{CHAIN}[0]<DelegateCall>.args[0]", 2, "args"),
    (XNN, f"{PLAN}.delegates[0].processed.index", 4, "processed.index"),
    (XNN, f"{PLAN}.delegates[0].processed.location", 2, "location"),
    (XNN, "named_data[1].segment_index", 4, r"named_data\[1\]"),
    (XNN, "segments[2].offset", 2**64 - 48, r"segments\[2\]"),
    (STATE, f"{CHAIN}[0]<DelegateCall>.delegate_index", 2, "delegate_index"),
    (STATE, f"{CHAIN}[1]<FreeCall>.value_index", 4, "instructions"),
    (STATE, f"{PLAN}.delegates[0].processed.index", 2, "inline blobs"),
    (STATE, f"{PLAN}.values[2]<TensorList>.items[0]", 2, "before this one"),
    (STATE, f"{PLAN}.values[2]<TensorList>.items[0]", 3, "before this one"),
    (STATE, f"{PLAN}.values[2]<TensorList>.items[0]", 0, "must be a tensor"),
    (STATE, f"{PLAN}.values[2]<TensorList>.items[0]", -1, "before this one"),
    (STATE, f"{PLAN}.values[3]<OptionalTensorList>.items[1]", -2, "before this one"),
    (STATE, f"{PLAN}.values[3]<OptionalTensorList>.items[1]", 2, "must be a tensor"),
    (STATE, f"{PLAN}.values[1]<Tensor>.data_buffer_idx", 2, "initial values"),
    (STATE, "mutable_data_segments[0].segment_index", 2, "mutable_data_segments"),
    (STATE, "mutable_data_segments[0].offsets[1]", 1, "data_buffer_idx"),
    (STATE, "mutable_data_segments[0].offsets[1]", 17, "mutable_data_segments"),
    (STATE, "named_data[0].segment_index", 2, "named_data"),
    (STATE, f"{PLAN}.non_const_buffer_device[0].buffer_idx", 2, "buffer_idx"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "path", "value", "named"), BAD, ids=[f"{p}={v}" for _, p, v, _ in BAD])
def test_a_bad_number_is_refused_and_named(data: bytes, path: str, value: int, named: str) -> None:
    read_program(data)
    with pytest.raises(FormatError, match=named):
        read_program(poke(data, path, value))


# ------------------------------------------------------------------------ where the stock loader crashes or is silent


def test_an_operator_index_is_checked_in_every_call() -> None:
    """Stock reports one that is out of range only in the last call, and crashes on the others."""
    builder = PlanBuilder()
    x, out = builder.input(np.float32, (2,)), builder.tensor(np.float32, (2,))
    for _ in range(3):
        builder.call("aten::relu.out", [x, out, out])
    data = write_program(builder.program())
    for call in (1, 2):
        with pytest.raises(FormatError, match=rf"instructions\[{call}\].op_index"):
            read_program(poke(data, f"{CHAIN}[{call}]<KernelCall>.op_index", 3))


@pytest.mark.parametrize("slot", [0, 2, 3, 4, 5, 7, 8])
def test_a_plan_without_a_field_it_needs(slot: int) -> None:
    with pytest.raises(FormatError, match="must have this field"):
        read_program(drop(LINEAR, PLAN, slot))


def test_a_plan_without_operators_has_no_calls() -> None:
    with pytest.raises(FormatError, match="op_index"):
        read_program(drop(LINEAR, PLAN, 6))


def test_a_newer_schema_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = read_program(LINEAR)
    made.version = 1
    with pytest.raises(VersionError, match="Upgrade"):
        write_program(made)
    monkeypatch.setattr("edgewright.formats.pte_writer.verify_program", lambda program: None)
    newer = write_program(made)
    with pytest.raises(VersionError, match="Upgrade"):
        read_program(newer)
    with pytest.raises(VersionError, match="Upgrade"):
        Runtime.get().load_program(newer)


def test_two_methods_of_one_name_are_refused() -> None:
    plans = [PlanBuilder().plan(), PlanBuilder().plan()]
    with pytest.raises(FormatError, match="names must differ"):
        write_program(program(*plans))


def test_a_jump_to_itself_stops_at_the_limit() -> None:
    builder = PlanBuilder()
    never = builder.value(schema.Bool(bool_val=False))
    builder.instructions = [schema.JumpFalseCall(cond_value_index=never, destination_instruction=0)]
    assert hostile.run(write_program(builder.program())) == ["ExecutionError"]


def test_a_jump_to_the_end_is_a_jump() -> None:
    builder = PlanBuilder()
    never = builder.value(schema.Bool(bool_val=False))
    builder.instructions = [schema.JumpFalseCall(cond_value_index=never, destination_instruction=1)]
    assert hostile.run(write_program(builder.program())) == ["ok"]


def test_external_tensors_need_data_with_a_layout() -> None:
    source, weights = load("mlp_ptd_portable.pte"), load("mlp_portable_weights.ptd")
    assert hostile.run(source) == ["MissingDataError"]
    assert hostile.run(source, weights) == ["ok"]
    entries = read_data(weights)
    bare = {key: PtdEntry(bytes(entry.data)) for key, entry in entries.items()}
    other = {key: tensor_entry(np.zeros(3, np.float32)) for key in entries}
    for wrong in (bare, other):
        loaded = Runtime.get().load_program(source, write_data(wrong))
        with pytest.raises(MissingDataError):
            loaded.load_method()


# ------------------------------------------------------------------------------------ numbers that wrapped elsewhere


def test_files_of_a_few_bytes() -> None:
    for size in range(64):
        for start in (b"", LINEAR, struct.pack("<I4s", 8, b"ET12"), b"\xff" * 8):
            with pytest.raises(FormatError):
                read_program((start + bytes(64))[:size])


def test_sizes_whose_product_wraps() -> None:
    """2**31-1 in every dimension: the product is far beyond 64 bits, or wraps to a small number."""
    for sizes in ((2**31 - 1,) * 16, (2**31 - 1,) * 3, (2**16,) * 4, (2**31 - 1, 2**31 - 1, 0)):
        builder = PlanBuilder()
        tensor = schema.Tensor(scalar_type=6, sizes=sizes, dim_order=tuple(range(len(sizes))))
        builder.outputs = [builder.value(tensor)]
        with pytest.raises(FormatError, match="63 bits"):
            write_program(builder.program())


def test_an_unbounded_input_costs_nothing() -> None:
    builder = PlanBuilder()
    for sizes in ((2**31 - 1,) * 16, (2**31 - 1,) * 5 + (0,)):
        order = tuple(range(len(sizes)))
        builder.inputs.append(
            builder.value(schema.Tensor(scalar_type=6, sizes=sizes, dim_order=order, shape_dynamism=1))
        )
    data = write_program(builder.program())
    tracemalloc.start()
    loaded = Runtime.get().load_program(data).load_method()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert loaded.execute([np.zeros((1,) * 16, np.float32), np.zeros((1,) * 5 + (0,), np.float32)]) == []


def test_an_arena_is_as_large_as_its_tensors_and_no_larger() -> None:
    huge = poke(LINEAR, f"{PLAN}.non_const_buffer_sizes[1]", 2**62)
    method = Runtime.get().load_program(huge).load_method()
    assert sum(arena.nbytes for arena in method._table.memory.arenas) == 112


def test_names_from_a_file_do_not_steer_the_terminal() -> None:
    builder = PlanBuilder()
    x = builder.input(np.float32, (1,))
    builder.call("evil::\x1b[31m\u202eop.out", [x, x, x])
    with pytest.raises(EdgewrightError) as caught:
        Runtime.get().load_program(write_program(builder.program())).load_method()
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)
    assert "x1b[31m" in str(caught.value)

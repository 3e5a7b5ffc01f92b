"""Files of releases that do not exist yet: what is not known here is named as a newer release's, and never misread."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.blob import read_blob
from edgewright.backends.xnnpack.nodes import XNode
from edgewright.errors import FormatError, MissingOperatorError, VersionError
from edgewright.formats import flatbuffer_reader, read_program, schema, write_program
from edgewright.formats.flatbuffer import SLOTS, slots_of
from edgewright.formats.flatbuffer_reader import FlatReader
from edgewright.runtime import Runtime
from tests.support import golden
from tests.support.build import PlanBuilder, one_call

NEWER = "the file is of a newer release"
X = np.ones((2, 3), np.float32)


def program() -> schema.Program:
    made = one_call("aten::abs.out", [X], [X])
    (plan,) = made.execution_plan
    plan.non_const_buffer_device = [schema.NonConstBufferDevice(buffer_idx=1)]
    tensor = plan.values[0]
    assert isinstance(tensor, schema.Tensor)
    tensor.extra_tensor_info = schema.ExtraTensorInfo(fully_qualified_name="x", device_index=1)
    made.named_data = [schema.NamedData(key="k", segment_index=made.add_segment(b"data"))]
    return made


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], None]:
    """Read as a release from before a field was added to a table."""

    def drop(cls: type, name: str) -> None:
        known = slots_of(cls)
        assert known[-1].name == name, "the last field of a table is the newest"
        monkeypatch.setitem(SLOTS, cls, known[:-1])
        flatbuffer_reader._field_count.cache_clear()
        flatbuffer_reader._plan_of.cache_clear()

    yield drop
    flatbuffer_reader._field_count.cache_clear()
    flatbuffer_reader._plan_of.cache_clear()


@pytest.mark.parametrize(
    ("cls", "field"),
    [
        (schema.Program, "named_data"),
        (schema.ExecutionPlan, "non_const_buffer_device"),
        (schema.Tensor, "extra_tensor_info"),
        (schema.ExtraTensorInfo, "device_index"),
        (schema.KernelCall, "args"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_fields_after_the_known_ones_are_errors(cls: type, field: str, forget: Callable[[type, str], None]) -> None:
    data = write_program(program())
    assert read_program(data) is not None
    forget(cls, field)
    with pytest.raises(VersionError, match=f"{cls.__name__} has a field that is not known here.*{NEWER}") as caught:
        read_program(data)
    assert f"field {len(slots_of(cls))}" in str(caught.value)
    assert "ExecuTorch 1.0 to 1.5" in str(caught.value)


def test_newer_fields_of_a_delegates_tables_are_errors(forget: Callable[[type, str], None]) -> None:
    loaded = read_program(golden.path("conv_relu_fp32_xnnpack"))
    blob = bytes(loaded.blob(loaded.execution_plan[0].delegates[0]))
    assert any(node.output_min_max for node in read_blob(blob).graph.xnodes)
    forget(XNode, "output_min_max")
    with pytest.raises(VersionError, match=NEWER):
        read_blob(blob)


def positions(data: bytes, wanted: Any, read: Callable[[bytes], Any]) -> list[int]:
    """Where in ``data`` the tables of a class are."""
    found: list[int] = []

    class Recording(FlatReader):
        def _raw(self, cls: Any, at: int) -> Any:
            if cls is wanted:
                found.append(at)
            return super()._raw(cls, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flatbuffer_reader, "FlatReader", Recording)
        read(data)
    return found


def with_number(data: bytes, at: int, index: int, code: str, number: int) -> bytes:
    """The table at ``at`` with another number in a scalar field."""
    changed = bytearray(data)
    (distance,) = struct.unpack_from("<i", changed, at)
    (start,) = struct.unpack_from("<H", changed, at - distance + 4 + 2 * index)
    assert start
    struct.pack_into(f"<{code}", changed, at + start, number)
    return bytes(changed)


@pytest.mark.parametrize(("box", "number"), [(schema.EVALUE, 200), (schema.EVALUE, len(schema.EVALUE.members) + 1),
                                             (schema.INSTRUCTION, 6)])  # fmt: skip
def test_unknown_members_of_unions_are_errors(box: Any, number: int) -> None:
    data = write_program(program())
    at = positions(data, box, read_program)[0]
    with pytest.raises(VersionError, match=f"{box.name} is of a type that is not known here.*{NEWER}.*; got {number}"):
        read_program(with_number(data, at, 0, "B", number))
    with pytest.raises(FormatError) as caught:  # zero is no member of any release
        read_program(with_number(data, at, 0, "B", 0))
    assert not isinstance(caught.value, VersionError)


def test_unknown_nodes_of_a_delegate_are_errors() -> None:
    loaded = read_program(golden.path("linear_fp32_xnnpack"))
    blob = bytes(loaded.blob(loaded.execution_plan[0].delegates[0]))
    start = blob.index(b"XN01") - 4
    at = positions(blob, XNode, read_blob)[0] + start
    with pytest.raises(VersionError, match=f"XNNPACK blob.*of a type that is not known here.*{NEWER}"):
        read_blob(with_number(blob, at, 0, "B", 250))


def test_unknown_element_types_are_errors() -> None:
    data = write_program(program())
    at = positions(data, schema.Tensor, read_program)[0]
    with pytest.raises(VersionError, match=f"scalar_type.*{NEWER}.*got 77"):
        read_program(with_number(data, at, 0, "b", 77))
    with pytest.raises(FormatError, match="must be 0") as caught:  # below zero is damage
        read_program(with_number(data, at, 0, "b", -3))
    assert not isinstance(caught.value, VersionError)


@pytest.mark.parametrize("name", ["aten::brand_new.out", "executorch_prim::brand_new.Scalar", "dim_order_ops::new.out"])
def test_unknown_operators_of_executorch_are_named_as_a_newer_releases(name: str) -> None:
    builder = PlanBuilder()
    x = builder.input(X.dtype, X.shape)
    builder.outputs = [builder.tensor(X.dtype, X.shape)]
    builder.call(name, [x, builder.outputs[0], builder.outputs[0]])
    with pytest.raises(MissingOperatorError) as caught:
        Runtime.get().load_program(write_program(builder.program())).load_method()
    assert f"ExecuTorch 1.0 to 1.5 has no {name}: the file is of a newer release" in str(caught.value)


def test_arguments_that_an_operator_does_not_have_are_a_newer_releases() -> None:
    made = one_call("aten::abs.out", [X], [X])
    (call,) = made.execution_plan[0].chains[0].instructions
    assert isinstance(call, schema.KernelCall)
    call.args = [call.args[0], *call.args]
    with pytest.raises(VersionError, match=f"aten::abs.out takes 3 values: {NEWER}.*; got 4"):
        Runtime.get().load_program(write_program(made)).load_method()
    call.args = call.args[:2]  # fewer are damage
    with pytest.raises(FormatError, match=r"aten::abs.out takes 3 values; got 2") as caught:
        Runtime.get().load_program(write_program(made)).load_method()
    assert not isinstance(caught.value, VersionError)


def test_numbers_that_enumerations_do_not_have_are_a_newer_releases() -> None:
    """Where a tensor's data are, and on what device; whether its shape may vary."""
    made = program()
    (plan,), tensor = made.execution_plan, made.execution_plan[0].values[0]
    assert isinstance(tensor, schema.Tensor) and tensor.extra_tensor_info is not None
    tensor.shape_dynamism, tensor.extra_tensor_info.location, tensor.extra_tensor_info.device_type = 1, 1, 1
    assert plan.non_const_buffer_device is not None
    plan.non_const_buffer_device[0].device_type = 1
    data = write_program(made)
    for cls, name in (
        (schema.Tensor, "shape_dynamism"),
        (schema.ExtraTensorInfo, "location"),
        (schema.ExtraTensorInfo, "device_type"),
        (schema.NonConstBufferDevice, "device_type"),
    ):
        (slot,) = [s for s in slots_of(cls) if s.name == name]
        at = positions(data, cls, read_program)[0]
        with pytest.raises(VersionError, match=f"{name}.*{NEWER}.*got 99"):
            read_program(with_number(data, at, slot.index, "b", 99))


def test_operators_of_others_are_not_said_to_be_executorchs() -> None:
    made = one_call("aten::abs.out", [X], [X])
    made.execution_plan[0].operators[0].name = "mine::abs"
    with pytest.raises(MissingOperatorError) as caught:
        Runtime.get().load_program(write_program(made)).load_method()
    assert "newer release" not in str(caught.value) and "register_kernel" in str(caught.value)

"""The binding of QNN's C API, on Qualcomm's own x86 libraries."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.build import Encoding, QnnGraphBuilder, TensorDef
from edgewright.backends.qualcomm.qnn.info import BinaryReader, compiler_settings
from edgewright.backends.qualcomm.qnn.library import find_folder
from edgewright.backends.qualcomm.qnn.session import Context, Session, create_profile, execute, profile_events
from edgewright.errors import FormatError, MissingError, VendorError
from tests.backends.qualcomm.contexts import SHAPE, relu_context


@pytest.mark.parametrize("kind", s.SIZES)
def test_structures_are_as_large_as_c_makes_them(kind: type[ctypes.Structure]) -> None:
    assert ctypes.sizeof(kind) == s.SIZES[kind]


def test_a_graph_is_compiled_and_run_from_its_binary() -> None:
    binary = relu_context()
    reader = BinaryReader(binary)
    (graph,) = reader.info.graphs
    assert graph.name == "forward"
    assert [(e.name, e.dims, e.dtype) for e in (*graph.inputs, *graph.outputs)] == [
        ("input_0_x", SHAPE, "uint8"),
        ("output_y", SHAPE, "uint8"),
    ]
    given = np.arange(128, dtype=np.uint8).reshape(SHAPE) * 2
    made = np.zeros_like(given)
    with Session(57) as session:
        assert reader.info.build == session.build
        context = Context(session, binary)
        profile = create_profile(session)
        ends = graph.inputs[0].tensor, graph.outputs[0].tensor
        execute(session, context.retrieve("forward"), [(ends[0], given)], [(ends[1], made)], profile)
        assert any("execute" in name for name, _, _ in profile_events(session, profile))
        context.close()
    reader.close()
    assert np.array_equal(made, np.clip((given.astype(int) - 128) * 2, 0, 255))


def test_the_compiler_says_nothing_on_the_streams(capfd: pytest.CaptureFixture[str]) -> None:
    relu_context.__wrapped__()
    assert capfd.readouterr() == ("", "")


def test_contexts_say_what_they_are_for() -> None:
    said = compiler_settings(relu_context())
    assert (said["soc_type"], said["arch"], said["vtcm_size"]) == ({"SM8650"}, {"75"}, {str(8 << 20)})


def test_refusals_come_with_the_librarys_words() -> None:
    with Session(57) as session:
        graph = QnnGraphBuilder(Context(session), "g")
        ends = [
            graph.tensor(TensorDef("x", (1, 4), "float32", s.APP_WRITE)),
            graph.tensor(TensorDef("y", (1, 4), "float32", s.APP_READ)),
        ]
        with pytest.raises(
            VendorError, match=r"Squeak 'a': must be an operator that the HTP supports; got backend 4005"
        ):
            graph.node("Squeak", "a", ends[:1], ends[1:], {})
        with pytest.raises(VendorError, match="op package 3110"):  # no kernel for real numbers
            graph.node("ElementWiseAsin", "b", ends[:1], ends[1:], {})


def test_encodings_by_channel_and_of_few_bits() -> None:
    weights = np.array([[1, -2, 3, -4], [7, 0, 1, 2]], np.int8)
    scales, given = (0.5, 0.25), np.arange(8, dtype=np.uint8).reshape(2, 4)
    for bits in (0, 4):
        made = np.zeros((2, 2), np.uint8)
        with Session(57) as session:
            context = Context(session)
            graph = QnnGraphBuilder(context, "forward")
            x = graph.tensor(TensorDef("x", (2, 4), "u8", s.APP_WRITE, Encoding((1.0,), (0,))))
            encoding = Encoding(scales, (0, 0), 0, bits)
            w = graph.tensor(TensorDef("w", (2, 4), "s8", s.STATIC, encoding, weights))
            y = graph.tensor(TensorDef("y", (2, 2), "u8", s.APP_READ, Encoding((0.25,), (-128,))))
            graph.node("FullyConnected", "fc", [x, w], [y], {})
            graph.finalize()
            execute(session, graph.handle, [(x, given)], [(y, made)])
            context.close()
        wanted = given.astype(float) @ (weights * np.array(scales)[:, None]).T
        assert np.abs((made.astype(int) - 128) * 0.25 - wanted).max() <= 0.25


def test_what_is_no_context_is_refused() -> None:
    for bad in (b"", relu_context()[:1000], bytes(4096)):
        with pytest.raises(FormatError, match="must be a QNN context"):
            BinaryReader(bad)
    with Session(57) as session, pytest.raises(VendorError, match="must be a context that this library can load"):
        Context(session, relu_context()[:1000])


def test_a_wrong_sdk_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QNN_SDK_ROOT", str(tmp_path))
    with pytest.raises(MissingError, match=r"must hold lib/x86_64-linux-clang/libQnnHtp.so; got"):
        find_folder()
    folder = tmp_path / "lib" / "x86_64-linux-clang"
    folder.mkdir(parents=True)
    (folder / "libQnnHtp.so").touch()
    assert find_folder() == folder


def test_without_libraries_it_is_said_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QNN_SDK_ROOT", raising=False)
    monkeypatch.setattr("edgewright.backends.qualcomm.qnn.library.find_spec", lambda name: None)
    with pytest.raises(MissingError, match="pip install onnxruntime-qnn"):
        find_folder()

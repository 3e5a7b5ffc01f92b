"""AI LiteCore's interface: what is said to it is the graph, and what it gives is the blob, nothing added."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright.backends.samsung import EnnPartitioner, PerformanceMode, gen_samsung_backend_compile_spec
from edgewright.backends.samsung.graph_record import GraphRecord, NodeRecord, TensorRecord, record_graph
from edgewright.backends.samsung.litecore import compile_record, scalar_type
from edgewright.backends.samsung.sdk import Sdk
from edgewright.backends.samsung.sdk_headers import read_interface
from edgewright.backends.samsung.target import EnnTarget, SamsungChipset
from edgewright.backends.samsung.worker import compile_in_subprocess
from edgewright.errors import MissingError, VendorError
from edgewright.formats.pte_reader import read_program
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.samsung.networks import device_graphs, mixed, quantized
from tests.backends.samsung.standin_sdk import SOURCES, build_sdk, calls, heard, plain

E9955 = EnnTarget(SamsungChipset.E9955)
PARAMS = {
    "count": 3, "negative": -1, "large": 1 << 40, "real": 0.25, "flag": True, "off": False, "word": "EXPLICIT",
    "empty": "", "counts": [1, 2], "signs": [-1, 2], "reals": [0.5, 2], "none": [],
}  # fmt: skip
TYPES = {
    "count": "UINT32", "negative": "INT32", "large": "UINT64", "real": "FLOAT64", "flag": "BOOL", "off": "BOOL",
    "word": "CHAR", "empty": "CHAR", "counts": "UINT32", "signs": "INT32", "reals": "FLOAT64", "none": "FLOAT64",
}  # fmt: skip


def small(name: str = "x") -> GraphRecord:
    x = TensorRecord(name, [1, 2], "FLOAT32", "UNDEFINED")
    w = TensorRecord("w", [2], "INT8", "UNDEFINED", np.array([1, -2], np.int8), ("AINT8", [0.5, 0.25], [0, -3]))
    y = TensorRecord("y", [1, 2], "FLOAT32", "UNDEFINED")
    return GraphRecord([x, w, y], [NodeRecord("op", "ELTSUM", [0, 1], [2], dict(PARAMS))], [0], [2])


def test_every_call_says_what_the_record_holds(sdk: Path) -> None:
    lines = calls(compile_record(small(), E9955, sdk))
    head = lines.pop(0)
    assert (head["call"], head["soc"], head["mode"]) == ("generate", 9955, 0)
    assert lines[0] == {"call": "create_graph", "name": ""} and lines[-1] == {"call": "finish"}
    assert heard(lines) == plain(small())
    found = {line["key"]: line["param"] for line in lines if line["call"] == "add_param"}
    assert {key: param["type"] for key, param in found.items()} == TYPES
    alone = {key for key, value in PARAMS.items() if not isinstance(value, str | list)}
    assert {key for key, param in found.items() if param["scalar"]} == alone


def test_a_parameter_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(VendorError, match="must be a number of 64 bits"):
        scalar_type([1, 1 << 70])


def test_headers_decide_the_order_of_fields(tmp_path: Path) -> None:
    usual = (SOURCES / "include" / "common-types.h").read_text()
    first, second = "  uint32_t size; /* elements */\n", "  void* data;\n"
    turned = usual.replace(first + second, second + first)
    wide = turned.replace("typedef uint32_t DIM_T", "typedef uint64_t DIM_T")
    wide = wide.replace("UNKNOWN, UINT64", "UNKNOWN = 7, UINT64")
    root = build_sdk(tmp_path / "turned", "-DMODES", headers={"common-types.h": turned})
    assert heard(calls(compile_record(small(), E9955, root))[1:]) == plain(small())
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "common-types.h").write_text(wide)
    read = read_interface(tmp_path / "wide")
    assert [name for name, _ in read.param] == ["data", "size", "is_scalar", "type"]
    assert (read.scalars["UINT64"], read.scalars["CHAR"]) == (8, 15)
    assert read.ids["DIM_T"] is ctypes.c_uint64


def test_headers_in_c_plus_plus_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text(
        "enum class ScalarType : uint8_t { UNKNOWN, INT32 = 0x10, FLOAT32 };\n"
        "enum class GraphGenResult { FAILURE = -1, SUCCESS = 3 };\n"
        "using TENSOR_ID_T = std::uint64_t; // wide\n"
        "struct ParamWrapper { const void *data = nullptr; size_t size{}; bool is_scalar; ScalarType type; };\n"
    )
    with pytest.raises(VendorError, match="fields of types that C has"):
        read_interface(tmp_path)
    text = (tmp_path / "a.h").read_text().replace("size_t size{};", "size_t size = 0;")
    (tmp_path / "a.h").write_text(text)
    read = read_interface(tmp_path)
    assert read.scalars["FLOAT32"] == 0x11 and read.success["GraphGenResult"] == 3
    assert [name for name, _ in read.param] == ["data", "size", "is_scalar", "type"]
    (tmp_path / "a.h").write_text("struct ParamWrapper { int size; };")
    with pytest.raises(VendorError, match="must have the fields data, is_scalar, size, type"):
        read_interface(tmp_path)


def test_without_headers_the_usual_layout_holds(tmp_path: Path) -> None:
    root = build_sdk(tmp_path / "bare", "-DMODES", keep_headers=False)
    assert heard(calls(compile_record(small(), E9955, root))[1:]) == plain(small())


def test_performance_modes_are_passed_on_or_refused_by_older_releases(sdk: Path, tmp_path: Path) -> None:
    fast = EnnTarget(SamsungChipset.E9955, PerformanceMode.HIGH_PERFORMANCE)
    assert calls(compile_record(small(), fast, sdk))[0]["mode"] == 1
    older = build_sdk(tmp_path / "older")
    assert calls(compile_record(small(), E9955, older))[0]["mode"] == 0
    with pytest.raises(VendorError, match="must have graphgen_set_perf_mode"):
        compile_record(small(), fast, older)


def test_refusals_and_crashes_are_errors_of_ours(sdk: Path) -> None:
    with pytest.raises(VendorError, match="chipset E9965: must be supported by AI LiteCore; got code 1"):
        compile_in_subprocess(small(), EnnTarget(SamsungChipset.E9965), Sdk(sdk))
    with pytest.raises(VendorError, match="tensor 'refuse': define_tensor must succeed; got code 1"):
        compile_in_subprocess(small("refuse"), E9955, Sdk(sdk))
    with pytest.raises(VendorError, match="AI LiteCore: ended with -6"):
        compile_in_subprocess(small("crash"), E9955, Sdk(sdk))


@pytest.mark.parametrize("precision", [None, "A8W8"])
def test_a_network_is_said_as_it_was_lowered_and_the_blob_is_what_came_back(
    installed: Path, precision: str | None
) -> None:
    model, inputs = mixed()
    if precision is not None:
        model = quantized(model, inputs, precision)
    (graph,) = device_graphs(model, inputs)
    partitioner = EnnPartitioner([gen_samsung_backend_compile_spec("E9955")])
    edge = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[partitioner])
    made = edge.to_executorch(ExecutorchBackendConfig(host_twin="embed"))
    program = read_program(made.buffer)
    (delegate,) = program.execution_plan[0].delegates
    specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
    assert (delegate.id, specs["enn_compile_options"]) == ("EnnBackend", E9955.value)
    assert heard(calls(bytes(program.blob(delegate)))[1:]) == plain(record_graph(graph))
    (ours,) = Runtime.get().load_program(made.buffer).load_method("forward").execute([inputs[0].numpy()])
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    assert np.abs(np.asarray(ours) - wanted).max() < 0.01


def test_without_an_sdk_an_error_says_what_to_install_and_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EXYNOS_AI_LITECORE_ROOT", raising=False)
    model, inputs = mixed()
    exported = torch.export.export(model, inputs)
    partitioner = EnnPartitioner([gen_samsung_backend_compile_spec("E9955")])
    with pytest.raises(MissingError) as error:
        to_edge_transform_and_lower(exported, partitioner=[partitioner])
    assert "EXYNOS_AI_LITECORE_ROOT" in str(error.value) and "simulate_only=True" in str(error.value)
    monkeypatch.setenv("EXYNOS_AI_LITECORE_ROOT", str(tmp_path))
    with pytest.raises(MissingError, match=r"must hold lib/x86_64-linux/libgraph_wrapper\.so"):
        to_edge_transform_and_lower(exported, partitioner=[partitioner])

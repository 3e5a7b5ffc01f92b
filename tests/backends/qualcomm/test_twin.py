"""Host twins: what runs where Qualcomm's libraries are not, and what is refused before it runs."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright.backends.qualcomm import (
    QuantDtype,
    delegate,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.backends.qualcomm.delegate import CHOICE
from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.shapes import RULES
from edgewright.backends.qualcomm.dialect.table import PREFIX, QNN
from edgewright.backends.qualcomm.partitioner import QnnPartitioner, to_edge_transform_and_lower_to_qnn
from edgewright.errors import (
    EdgewrightError,
    FormatError,
    LimitError,
    MissingDataError,
    MissingError,
    UsageError,
    VendorError,
)
from edgewright.formats.pte_reader import read_program
from edgewright.formats.twin_reader import read_twin
from edgewright.formats.twin_writer import HEAD, MAGIC
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.program import manifest
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.qualcomm.lowered import quantize, ratio
from tests.backends.qualcomm.test_models import block, cifarnet
from tests.support import cifar

Q = QParams(0.1, 128, np.dtype(np.uint8), 0, 255)


def lowered(model, inputs, *, simulate_only: bool = False):
    partitioner = QnnPartitioner.for_target("SM8650")
    partitioner.simulate_only = simulate_only
    return to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[partitioner]).to_executorch()


@pytest.fixture(scope="module")
def quantized():
    """A network, its inputs, and its program for a device."""
    model, inputs = cifarnet()
    converted = quantize(model, inputs, QuantDtype.use_8a8w)
    return converted, inputs, lowered(converted, inputs)


def run(program, inputs, **options):
    method = Runtime.get().load_program(program, **options).load_method("forward")
    return torch.as_tensor(np.asarray(method.execute([x.numpy() for x in inputs])[0])), method


def how(method) -> str:
    (delegate,) = method._delegates
    return delegate.how


def test_the_twin_beside_a_file_runs_without_the_libraries(quantized, tmp_path: Path, monkeypatch, caplog) -> None:
    converted, inputs, manager = quantized
    emulated, method = run(bytes(manager.buffer), inputs)
    assert how(method) == "SM8650 emulated by QNN 2.51"
    manager.save(str(tmp_path / "m.pte"))
    assert (tmp_path / "m.twin").exists()
    monkeypatch.setattr(delegate, "find_folder", _missing)
    found, method = run(str(tmp_path / "m.pte"), inputs)
    assert "host twin" in how(method) and "Qualcomm's libraries are not installed" in how(method)
    assert ratio(emulated, found) > 30
    with torch.no_grad():
        assert ratio(converted(*inputs), found) > 30
    (tmp_path / "m.twin").unlink()
    with pytest.raises(MissingDataError, match="has no host twin, which is needed here: Qualcomm's libraries"):
        run(str(tmp_path / "m.pte"), inputs)


def _missing() -> Path:
    raise MissingError("onnxruntime-qnn", "is not installed")


def test_who_asks_is_given_the_twin_or_the_emulator(quantized, monkeypatch) -> None:
    _, inputs, manager = quantized
    monkeypatch.setenv(CHOICE, "twin")
    _, method = run(bytes(manager.buffer), inputs, twin=manager.twin)
    assert "as asked" in how(method)
    monkeypatch.setattr(delegate, "find_folder", _missing)
    monkeypatch.setenv(CHOICE, "emulator")
    with pytest.raises(MissingError, match="is not installed"):
        run(bytes(manager.buffer), inputs, twin=manager.twin)
    monkeypatch.setenv(CHOICE, "phone")
    with pytest.raises(UsageError, match="must be one of emulator, twin; got phone"):
        run(bytes(manager.buffer), inputs)


def test_methods_of_one_context_have_a_twin_each(monkeypatch) -> None:
    """The emulator does not load contexts of methods that share weights: only twins run them here."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(32, 16)
    models = {"one": torch.nn.Sequential(layer, torch.nn.ReLU()), "many": torch.nn.Sequential(layer, torch.nn.Tanh())}
    inputs = {"one": (torch.randn(1, 32),), "many": (torch.randn(8, 32),)}
    htp = generate_htp_compiler_spec(use_fp16=True, use_weight_sharing=True)
    specs = generate_qnn_executorch_compiler_spec("SM8650", htp)
    manager = to_edge_transform_and_lower_to_qnn(models, inputs, specs).to_executorch()
    assert len(read_twin(manager.twin)) == 2
    monkeypatch.setenv(CHOICE, "twin")
    program = Runtime.get().load_program(bytes(manager.buffer), twin=manager.twin)
    for name, model in models.items():
        method = program.load_method(name)
        found = torch.as_tensor(np.asarray(method.execute([x.numpy() for x in inputs[name]])[0]))
        with torch.no_grad():
            assert ratio(model(*inputs[name]), found) > 50
        assert "host twin" in how(method)
    monkeypatch.delenv(CHOICE)
    program = Runtime.get().load_program(bytes(manager.buffer), twin=manager.twin)
    assert "it does not load contexts whose methods share weights" in how(program.load_method("one"))
    monkeypatch.setenv(CHOICE, "emulator")
    program = Runtime.get().load_program(bytes(manager.buffer), twin=manager.twin)
    with pytest.raises(VendorError, match="compile it without use_weight_sharing=True"):
        program.load_method("one")


@pytest.mark.parametrize("make", [cifarnet, block])
def test_a_program_for_this_machine_only_needs_no_library(make, monkeypatch) -> None:
    monkeypatch.setattr("edgewright.backends.qualcomm.partitioner.probe_for", None)
    monkeypatch.setattr(delegate, "find_folder", _missing)
    model, inputs = make()
    program = bytes(lowered(model, inputs, simulate_only=True).buffer)
    said = manifest.read(read_program(program))
    assert said is not None and said["targets"] == ["sm8650 (simulation only: will not run on the device)"]
    found, method = run(program, inputs)
    assert how(method).endswith("this program is for this machine only")
    with torch.no_grad():
        assert ratio(model(*inputs), found) > 40


class Scaled(torch.nn.Module):
    """Scalars beside numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        largest = x.abs().max()
        bounded = torch.where(largest > 0.5, largest, largest * 2)
        return (1 / bounded) * x + torch.maximum(largest, largest * 0.5)


def test_scalars_beside_numbers_stay_scalars() -> None:
    inputs = (torch.randn(2, 3, generator=torch.Generator().manual_seed(0)),)
    found, _ = run(bytes(lowered(Scaled(), inputs, simulate_only=True).buffer), inputs)
    wanted = Scaled()(*inputs)
    assert found.shape == wanted.shape
    assert ratio(wanted, found) > 40


@pytest.mark.parametrize("scheme", [QuantDtype.use_16a8w, QuantDtype.use_16a4w])
def test_a_block_in_16_bits_is_near_the_emulators(scheme) -> None:
    model, inputs = block()
    manager = lowered(quantize(model, inputs, scheme), inputs)
    emulated, _ = run(bytes(manager.buffer), inputs)
    (graph,) = read_twin(manager.twin).values()
    (found,) = delegate.QnnTwinRunner(graph, 1 << 30).run([x.numpy() for x in inputs])
    assert ratio(emulated, torch.as_tensor(found)) > 45


def test_the_manifest_says_compiler_and_figures(quantized) -> None:
    said = manifest.read(read_program(bytes(quantized[2].buffer)))
    assert said is not None
    (expected,) = said["estimates"]
    assert expected["compiler"].startswith("QNN v2.51.")
    assert expected["target"] == "SM8650" and "https://" in expected["figures"]["45 TOPS"]  # where it was read


# ----------------------------------------------------------------------------------------------- what is refused


def test_every_operator_has_a_rule_for_its_shapes() -> None:
    assert set(RULES) == set(QNN)


def value(name: str, shape: tuple[int, ...], data: bool = False, q: QParams | None = Q) -> Value:
    dtype = np.dtype(np.uint8) if q is not None else np.dtype(np.float32)
    return Value(name, dtype, shape, tuple(range(len(shape))), np.zeros(shape, dtype) if data else None, q=q)


def weights(shape: tuple[int, ...], zero: int = 0) -> Value:
    int8 = np.dtype(np.int8)
    return Value("w", int8, shape, (0, 1, 2, 3), np.zeros(shape, int8), q=QParams(0.5, zero, int8, -128, 127))


def convolution(**changes) -> Graph:
    x, w, y = value("x", (1, 4, 4, 8)), weights((3, 3, 8, 4)), value("y", (1, 4, 4, 4))
    args = {"stride": [1, 1], "pad_amount": [[1, 1], [1, 1]], "dilation": [1, 1], "group": 1}
    return Graph("g", [x], [y], [Op(f"{PREFIX}Conv2d", {"inputs": [x, w], **args, **changes}, [y])])


def test_blocks_of_weights_have_scales_of_their_own() -> None:
    wide, order = np.dtype(np.uint16), (0, 1, 2, 3)
    x = Value("x", wide, (1, 1, 2, 4), order, q=QParams(0.5, 3, wide, 0, 65535))
    q = QParams((0.25, 1.0, 2.0, 0.5), (0,) * 4, np.dtype(np.int8), -7, 7, axis=3, block=2)
    data = np.arange(8, dtype=np.int8).reshape(1, 1, 4, 2) - 3
    w = Value("w", np.dtype(np.int8), data.shape, order, data, q=q)
    y = Value(
        "y", np.dtype(np.uint16), (1, 1, 2, 2), (0, 1, 2, 3), q=QParams(0.01, 32768, np.dtype(np.uint16), 0, 65535)
    )
    args = {"stride": [1, 1], "pad_amount": [[0, 0], [0, 0]], "dilation": [1, 1], "group": 1}
    graph = Graph("g", [x], [y], [Op(f"{PREFIX}Conv2d", {"inputs": [x, w], **args}, [y])])
    DIALECT.check(graph, 1 << 20)
    given = np.arange(8, dtype=np.uint16).reshape(1, 1, 2, 4)
    scales = np.array([[0.25, 2.0], [0.25, 2.0], [1.0, 0.5], [1.0, 0.5]])  # input channels by output channels
    wanted = (given[0, 0] - 3.0) * 0.5 @ (data[0, 0] * scales)
    assert np.array_equal(DIALECT.execute(graph, [given])[0][0, 0], np.round(wanted / 0.01) + 32768)
    w.q = replace(q, block=3)
    with pytest.raises(FormatError, match="block: must divide the 4 elements of a slice; got 3"):
        DIALECT.check(graph, 1 << 20)


def test_what_holds_together_passes() -> None:
    DIALECT.check(convolution(), 1 << 20)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stride": [0, 1]}, "must be integers of at least 1; got 0"),
        ({"stride": [1]}, "must have 2 numbers"),
        ({"stride": [1 << 40, 1]}, "must be integers of at least 1"),
        ({"stride": "11"}, "must be a list of numbers"),
        ({"pad_amount": [[1, 1], [1, 1 << 30]]}, "must have the shapes that follow from its operands and parameters"),
        ({"pad_amount": [[1], [1, 1]]}, "must be pairs"),
        ({"dilation": [9, 1]}, "a window must fit its padded image"),
        ({"group": 3}, "filters must fit the channels of each group"),
        ({"colour": 1}, "must be parameters of qnn.Conv2d"),
        ({"inputs": []}, "must have 2 to 3 operands"),
        ({"inputs": 3}, "must be tensors"),
    ],
)
def test_operators_that_do_not_fit_are_refused(changes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        DIALECT.check(convolution(**changes), 1 << 20)


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (value("w", (3, 3, 8, 4), True), "must be int8 .* got uint8"),
        (weights((3, 3, 8, 4), zero=3), "zero point"),
        (replace(weights((3, 3, 8, 4)), data=None), "must be a constant"),
    ],
)
def test_weights_are_symmetric_constants(filters: Value, said: str) -> None:
    graph = convolution()
    graph.ops[0].args["inputs"][1] = filters
    graph.inputs += [filters] if filters.data is None else []
    with pytest.raises(FormatError, match=said):
        DIALECT.check(graph, 1 << 20)


def test_more_memory_than_is_allowed_is_refused() -> None:
    with pytest.raises(LimitError, match="may take 2000 bytes"):
        DIALECT.check(convolution(), 2000)


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf"), -1.0])
def test_scales_must_be_scales(scale: float) -> None:
    graph = convolution()
    graph.inputs[0].q = QParams(scale, 0, np.dtype(np.uint8), 0, 255)
    with pytest.raises(FormatError, match="scale: must be a positive number"):
        DIALECT.check(graph, 1 << 20)


def test_a_twins_header_with_any_field_changed_gives_a_result_or_an_error(quantized) -> None:
    """Every number of every operator, at its extremes."""
    _, inputs, manager = quantized
    raw = bytes(manager.twin)
    magic, version, length = HEAD.unpack_from(raw)
    assert magic == MAGIC
    header = json.loads(raw[HEAD.size : HEAD.size + length])
    rest = raw[HEAD.size + length :].lstrip(b"\0") and raw[-(-(HEAD.size + length) // 16) * 16 :]
    (key,) = header["graphs"]
    tried = 0
    for index, op in enumerate(header["graphs"][key]["ops"]):
        for name in op["args"]:
            for wrong in (None, -1, 1 << 31, [], [[]], "x", 0.5):
                changed = copy.deepcopy(header)
                changed["graphs"][key]["ops"][index]["args"][name] = wrong
                text = json.dumps(changed).encode()
                head = HEAD.pack(magic, version, len(text)) + text
                data = head + bytes(-len(head) % 16) + rest
                try:
                    graph = next(iter(read_twin(data, 1 << 28).values()))
                    delegate.QnnTwinRunner(graph, 1 << 28).run([x.numpy() for x in inputs])
                except EdgewrightError:
                    pass
                tried += 1
    assert tried > 100


# --------------------------------------------------------------------------------------------------- a whole network


def trained(scheme, count: int) -> tuple[float, float]:
    """How often the twin of a trained MobileNetV2 says what the emulator says, and signal to noise."""
    model, images = cifar.mobilenet(), cifar.images(count)
    batches = torch.cat(list(cifar.calibration(40))).split(10)
    chosen = quantize(model, (images[:10],), scheme, [(b,) for b in batches])
    manager = lowered(chosen, (images[:10],))
    method = Runtime.get().load_program(bytes(manager.buffer)).load_method("forward")
    (graph,) = read_twin(manager.twin).values()
    runner = delegate.QnnTwinRunner(graph, 1 << 32)
    parts = [b.numpy() for b in images.split(10)]
    emulated = torch.cat([torch.as_tensor(np.asarray(method.execute([b])[0])) for b in parts])
    found = torch.cat([torch.as_tensor(runner.run([b])[0]) for b in parts])
    return float((found.argmax(1) == emulated.argmax(1)).float().mean()), ratio(emulated, found)


@pytest.mark.slow
def test_a_trained_mobilenet_says_what_the_emulator_says() -> None:
    same, decibels = trained(QuantDtype.use_8a8w, 10)
    assert same >= 0.99 and decibels > 30


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "least"), [(QuantDtype.use_8a8w, 30), (QuantDtype.use_16a8w, 45)])
def test_a_trained_mobilenet_says_so_of_more_images(scheme, least: float) -> None:
    same, decibels = trained(scheme, 200)
    assert same >= 0.99 and decibels > least

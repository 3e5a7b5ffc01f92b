"""The ten networks of Samsung's examples and a trained one, on this machine: one delegate each, and as exact as their
precision allows."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright import Runtime
from edgewright.backends.samsung import (
    gen_samsung_backend_compile_spec,
    quantize_module,
    to_edge_transform_and_lower_to_enn,
)
from tests.support import cifar

FOLDER = Path(__file__).parents[3] / "examples" / "samsung"
TEN = ("mv2", "ic3", "ic4", "resnet18", "resnet50", "mv3", "edsr", "dl3", "vit", "w2l")
# Agreement with the model in floating point, in percent.
AGREES = {None: 99.0, "A8W8": 97.0, "A16W16": 99.5}
STOCK = json.loads((Path(__file__).parents[2] / "golden" / "samsung" / "decibels.json").read_text())
DECIBELS = 50.0  # signal to noise, of real numbers and 16 bits; of 8 bits, stock's
TENTH = 0.1  # of a decibel: what stock's are rounded to


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The example's own modules, which import each other by their short names."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def compiled(model: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
    spec = gen_samsung_backend_compile_spec("E9955", simulate_only=True)
    edge = to_edge_transform_and_lower_to_enn(model, inputs, compile_specs=[spec])
    report = edge.partition_reports["forward"]
    assert report.groups == 1 and not report.rejected
    return Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward")


def check(model: Any, inputs: tuple[torch.Tensor, ...], precision: str | None, least: float) -> None:
    with torch.no_grad():
        wanted = model(*inputs).numpy().astype(np.float64)
    torch.manual_seed(5)
    data = [inputs, tuple(torch.randn_like(x) for x in inputs)]
    made = model if precision is None else quantize_module(model, inputs, data, precision)
    ours = np.asarray(compiled(made, inputs).execute([x.numpy() for x in inputs])[0]).astype(np.float64)
    found = 10 * np.log10((wanted**2).sum() / ((ours - wanted) ** 2).sum())
    print(f"{found:.1f} dB")
    assert found > least
    if precision is None:
        assert np.abs(ours - wanted).max() < 1e-2 * np.abs(wanted).max()


@pytest.mark.slow
@pytest.mark.parametrize("precision", AGREES)
@pytest.mark.parametrize("name", TEN)
def test_the_ten_networks(name: str, precision: str | None, example: Any) -> None:
    models = example("models")
    assert set(models.MODELS) == set(TEN)
    check(*models.make(name), precision, STOCK[name] - TENTH if precision == "A8W8" else DECIBELS)


def test_a_small_transformer_of_the_same_make(example: Any) -> None:
    """What takes long of the ten is in the slow run; this has their hardest parts."""
    others, layers = example("others"), example("layers")
    torch.manual_seed(0)
    model = layers.initial(others.ViT(32, 4, 1))
    check(model, (torch.randn(1, 3, 224, 224),), "A16W16", DECIBELS)


def agreement(precision: str | None, count: int) -> float:
    """The share of images of which the file says what the model says, in percent."""
    model = cifar.mobilenet()
    inputs = (cifar.images(1),)
    data = [(image,) for image in cifar.calibration()]
    method = compiled(model if precision is None else quantize_module(model, inputs, data, precision), inputs)
    same = 0
    with torch.no_grad():
        for image in cifar.images(count).split(1):
            same += int(np.asarray(method.execute([image.numpy()])[0]).argmax()) == int(model(image).argmax())
    print(f"{precision}: {same} of {count}")
    return 100 * same / count


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["A8W8", "A16W16"])
def test_a_trained_network_says_what_it_said(precision: str) -> None:
    assert agreement(precision, 100) >= AGREES[precision]


@pytest.mark.slow
@pytest.mark.parametrize("precision", AGREES)
def test_a_trained_network_says_what_it_said_of_a_thousand_images(precision: str | None) -> None:
    assert agreement(precision, 1000) >= AGREES[precision]


@pytest.mark.slow
def test_the_example_compiles_runs_and_writes_what_a_phone_takes(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = example("aot_compiler")
    options = ["-c", "e9955", "-m", "mv3", "-o", str(tmp_path), "-p", "A8W8", "-cn", "1", "--simulate_only", "--dump"]
    assert script.main(options) == 0
    said = capsys.readouterr().out
    assert (
        "operators delegated to samsung" in said and "Edgewright's analytic bound for E9955" in said and "SQNR" in said
    )
    names = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(names) == {"mv3_exynos_a8w8.pte", "mv3_input_0.bin", "mv3_output_0.bin", "mv3_host_0.bin"}
    assert (names["mv3_input_0.bin"], names["mv3_output_0.bin"]) == (4 * 3 * 224 * 224, 4 * 1000)

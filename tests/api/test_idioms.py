"""Idioms of published models, for every target: they compile, and give what the (fake-quantized) model gives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import edgewright as ew
from tests.api import idioms_constants, idioms_functions, idioms_layers  # noqa: F401
from tests.api.idioms import IDIOMS

SETTINGS = (
    "xnnpack/float", "xnnpack/int8", "xnnpack/dynamic", "ethos-u85-256/int8", "ethos-u55-128/int8", "sm8550/int8",
    "e9955/int8", "imxrt700/int8",
)  # fmt: skip
EXACT = 60.0  # and above, quantization costs nothing worth comparing with


def listed(default: bool) -> list[Any]:
    """Idioms and settings: those of every run, or the others."""
    pairs = [(n, s) for n, case in IDIOMS.items() for s in SETTINGS if (s in case.default) == default]
    wrong = {pair: IDIOMS[pair[0]].wrong.get(pair[1]) for pair in pairs}
    marks = {pair: [pytest.mark.xfail(reason=why, strict=True)] if why else [] for pair, why in wrong.items()}
    return [pytest.param(*pair, marks=marks[pair]) for pair in pairs]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "setting"), listed(default=True))
def test_compiled_idioms_give_what_the_model_gives(name: str, setting: str) -> None:
    check(name, setting)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting"), listed(default=False))
def test_compiled_idioms_give_what_the_model_gives_on_all_targets(name: str, setting: str) -> None:
    check(name, setting)


def check(name: str, setting: str) -> None:
    case = IDIOMS[name]
    module, inputs = case.module().eval(), case.inputs()
    target, _, preset = setting.partition("/")
    options: dict[str, Any] = {} if preset == "float" else {"quantize": preset, "calibration": [inputs]}
    result = ew.compile(module, inputs, target, dynamic_shapes=case.shapes, quiet=True, **options)
    eager = leaves(copy.deepcopy(module), inputs)
    outputs = [np.asarray(o) for o in result.method().execute(pytree.tree_leaves(copied(inputs))) if o is not None]
    assert [(o.dtype, o.shape) for o in outputs] == [(o.dtype, o.shape) for o in eager]
    quantized = eager if preset == "float" else leaves(result.exported.module(), inputs)
    for output, want, fake in zip(outputs, eager, quantized, strict=True):
        if preset == "float":
            np.testing.assert_allclose(output, want, 0, case.exact * max(np.abs(want).max(), 1e-6))
        elif output.dtype.kind == "f":
            assert sqnr(want, output) >= min(sqnr(want, fake), EXACT) - case.margin
        else:
            assert np.mean(output == fake) >= 0.9


def leaves(module: Any, inputs: Any) -> list[Any]:
    """The tensors that a module gives, as arrays."""
    with torch.no_grad():
        return [np.asarray(leaf) for leaf in pytree.tree_leaves(module(*copied(inputs))) if leaf is not None]


def copied(inputs: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, inputs)


def sqnr(wanted: Any, given: Any) -> float:
    """Decibels of a result's power over that of its error, where it is finite."""
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(given[~finite], wanted[~finite])
    noise = np.square(given[finite].astype(np.float64) - wanted[finite]).sum()
    power = np.square(wanted[finite].astype(np.float64)).sum()
    return float("inf") if noise == 0 else float(10 * np.log10(max(power, 1e-30) / noise))

"""Methods that are one compiled graph: from the caller's arrays to new ones, with results as the long way has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright.engine.profile import Profile
from edgewright.errors import EdgewrightError, InputError
from edgewright.runtime import Runtime
from edgewright.runtime.example_inputs import ones
from edgewright.runtime.method import Method

GOLDEN = Path(__file__).parents[1] / "golden"
STRAIGHT = ("conv_relu_fp32_xnnpack", "conv_relu_int8_pc_xnnpack", "linear_int8_pc_xnnpack",
            "mlp_dynq_int8_xnnpack", "conv_fp16_xnnpack")  # fmt: skip
AROUND = ("mutable_buffer", "cond", "mlp_dynshape_xnnpack", "symint_portable")


def load(name: str) -> Method:
    return Runtime.get().load_program(GOLDEN / f"{name}.pte").load_method("forward")


def inputs(method: Method, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(x.shape).astype(x.dtype) for x in ones(method.metadata)]


def the_long_way(method: Method, given: list[Any]) -> list[Any]:
    kept, method._fast_path = method._fast_path, None
    try:
        return method.execute(given)
    finally:
        method._fast_path = kept


@pytest.mark.parametrize("name", STRAIGHT)
def test_results_are_those_of_the_long_way(name: str) -> None:
    method = load(name)
    assert method._fast_path is not None
    for seed in range(3):
        given = inputs(method, seed)
        assert method._fast_path.run(given) is not None
        for got, want in zip(method.execute(given), the_long_way(method, given), strict=True):
            assert (got.dtype, got.shape, got.flags.c_contiguous) == (want.dtype, want.shape, True)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", AROUND)
def test_what_is_more_than_a_graph_goes_the_long_way(name: str) -> None:
    assert load(name)._fast_path is None


def test_outputs_are_the_callers_to_keep() -> None:
    method = load("conv_relu_fp32_xnnpack")
    first = method.execute(inputs(method, 1))[0]
    kept = first.copy()
    second = method.execute(inputs(method, 2))[0]
    np.testing.assert_array_equal(first, kept)
    assert not np.may_share_memory(first, second)


def test_inputs_that_lie_otherwise() -> None:
    method = load("conv_relu_fp32_xnnpack")
    (x,) = inputs(method)
    want = method.execute([x])[0]
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    apart = np.repeat(x, 2, axis=-1)[..., ::2]
    for other in (turned, apart, torch.from_numpy(x)):
        np.testing.assert_array_equal(np.asarray(method.execute([other])[0]), want)
    assert isinstance(method.execute([torch.from_numpy(x)])[0], torch.Tensor)
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    np.testing.assert_array_equal(method.execute([unaligned])[0], want)


@pytest.mark.parametrize("wrong", [lambda x: x.astype(np.float64), lambda x: x[:, :1], lambda x: x.tolist()])
def test_wrong_inputs_are_named(wrong: Any) -> None:
    method = load("conv_relu_fp32_xnnpack")
    (x,) = inputs(method)
    with pytest.raises(InputError, match="input 0"):
        method.execute([wrong(x)])
    with pytest.raises(InputError, match="takes 1 inputs"):
        method.execute([x, x])


def test_profiles_and_closing() -> None:
    method = load("conv_relu_int8_pc_xnnpack")
    given = inputs(method)
    profile = Profile()
    np.testing.assert_array_equal(method.execute(given, profile=profile)[0], method.execute(given)[0])
    assert profile.runs
    method.close()
    assert method._fast_path is None


def test_the_reference_is_never_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    method = load("conv_relu_fp32_xnnpack")
    assert method._fast_path is None
    with pytest.raises(EdgewrightError):
        method.execute([])

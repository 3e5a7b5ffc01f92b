"""Passes of scripts that make a program's ends integers: the file works on them, and says how to convert."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright import Runtime, to_edge
from edgewright.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewright.compat.quantize_io import QuantizeInputs, QuantizeOutputs
from edgewright.errors import UsageError
from tests.support.stock import stock


@pytest.fixture(scope="module")
def lowered() -> tuple[Any, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU()).eval(), torch.randn(2, 6)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    converted = convert_pt2e(prepared)
    exported = torch.export.export(converted, (x,))
    return to_edge(exported), x, converted(x)


def test_integers_in_and_out(lowered: tuple[Any, torch.Tensor, torch.Tensor]) -> None:
    manager, x, wanted = lowered
    program = manager.transform([QuantizeInputs(manager, [0]), QuantizeOutputs(manager, [0])]).to_executorch()
    loaded = Runtime.get().load_program(program.buffer)
    facts = loaded.metadata("forward")
    assert [end.dtype for end in (*facts.inputs, *facts.outputs)] == ["int8", "int8"]
    told = {name: loaded.load_method(name).execute()[0] for name in loaded.method_names if name != "forward"}
    assert told["input0_dtype"] == told["output0_dtype"] == 1
    stored = np.clip(np.round(x.numpy() / told["input0_scale"]) + told["input0_zp"], -128, 127).astype(np.int8)
    (ours,) = loaded.load_method("forward").execute([stored])
    (theirs,) = stock().run(program.buffer, "forward", [stored])
    assert np.array_equal(ours, theirs)
    real = (ours.astype(np.float32) - told["output0_zp"]) * told["output0_scale"]
    np.testing.assert_allclose(real, wanted.detach().numpy(), atol=told["output0_scale"])


def test_what_is_refused(lowered: tuple[Any, torch.Tensor, torch.Tensor]) -> None:
    manager, *_ = lowered
    with pytest.raises(UsageError, match="indices from 0 to 0"):
        manager.transform([QuantizeInputs(manager, [1])])
    with pytest.raises(UsageError, match="no parameters of its own"):
        QuantizeInputs(manager, {0: {"scale": 1.0}})

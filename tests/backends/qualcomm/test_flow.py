"""The page's own call, and what it is asked to leave alone."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

from edgewright.backends.qualcomm import (
    QcomChipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    partitioner,
    to_edge_transform_and_lower_to_qnn,
)
from edgewright.errors import UsageError
from edgewright.runtime import Runtime

SPECS = generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, generate_htp_compiler_spec(use_fp16=True))
INPUTS = (torch.linspace(-1, 1, 32).reshape(4, 8),)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), nn.Tanh()).eval()


def test_one_module_becomes_forward() -> None:
    model = net()
    made = to_edge_transform_and_lower_to_qnn(model, INPUTS, SPECS)
    assert not made.partition_reports["forward"].refused
    (found,) = Runtime.get().load_program(made.to_executorch().buffer).load_method("forward").execute(INPUTS)
    assert np.allclose(np.asarray(found), model(*INPUTS).detach().numpy(), atol=1e-2)


def test_what_devices_need_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    partitioner._say_release.cache_clear()
    for _ in range(2):
        to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS)
    said = [r.getMessage() for r in caplog.records if r.name == "edgewright.qualcomm"]
    assert len(said) == 1
    assert re.fullmatch(r"compiled with QNN 2\.\d+: needs QNN >= 2\.\d+ on the device", said[0])


def test_several_modules_become_methods() -> None:
    models = {"first": net(), "second": nn.Sequential(nn.Linear(8, 2)).eval()}
    made = to_edge_transform_and_lower_to_qnn(models, {"first": INPUTS, "second": INPUTS}, SPECS, {"version": 3})
    program = Runtime.get().load_program(made.to_executorch().buffer)
    for name, model in models.items():
        (found,) = program.load_method(name).execute(INPUTS)
        assert np.allclose(np.asarray(found), model(*INPUTS).detach().numpy(), atol=1e-2)
    assert program.load_method("version").execute([])[0] == 3


def test_operators_and_nodes_are_left_alone() -> None:
    made = to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS, skip_node_op_set={"aten.tanh.default"})
    (verdict,) = made.partition_reports["forward"].refused
    assert (verdict.operator, verdict.refusals) == ("tanh", ["is in skip_node_op_set"])
    made = to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS, skip_node_id_set={verdict.node})
    (again,) = made.partition_reports["forward"].refused
    assert (again.operator, again.refusals) == ("tanh", ["is in skip_node_id_set"])


def test_bad_calls_are_refused() -> None:
    with pytest.raises(UsageError, match="must be a tuple; got Tensor"):
        to_edge_transform_and_lower_to_qnn(net(), INPUTS[0], SPECS)
    with pytest.raises(UsageError, match="method 'a': must be among those given"):
        to_edge_transform_and_lower_to_qnn({"a": net()}, {"b": INPUTS}, SPECS)
    with pytest.raises(UsageError, match="skip_node_op_set: must be a set of names"):
        to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS, skip_node_op_set="aten.tanh.default")

"""Who runs what: exclusions, priorities, options and reports of the partitioners."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.passes.operator_support import OperatorSupportBase

from edgewright import to_edge_transform_and_lower
from edgewright.backends.xnnpack import (
    AddConfig,
    ConfigPrecisionType,
    ConvolutionConfig,
    LinearConfig,
    ReLUConfig,
    SigmoidConfig,
    XnnpackDynamicallyQuantizedPartitioner,
    XnnpackFloatingPointPartitioner,
    XnnpackPartitioner,
    XnnpackQuantizedPartitioner,
)
from edgewright.errors import UsageError
from edgewright.lowering.partition import DontPartition, DontPartitionModule, DontPartitionName
from edgewright.runtime import Runtime
from tests.support.stock import stock


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.conv(x))


class Net(nn.Module):
    """Two blocks' worth of what XNNPACK takes, around a cumulative sum, which it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.fc = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).mean([2, 3])
        return self.fc(torch.sigmoid(x) + torch.cumsum(x, 1))


def exported(model: nn.Module | None = None) -> Any:
    torch.manual_seed(0)
    return torch.export.export((model or Net()).eval(), (torch.randn(1, 3, 6, 6),))


def lower(partitioner: Any, program: Any = None) -> Any:
    return to_edge_transform_and_lower(program or exported(), partitioner=partitioner)


def taken(manager: Any, method: str = "forward") -> list[str]:
    return [v.operator for v in manager.partition_reports[method].delegated]


def check_outputs(manager: Any, program: Any) -> None:
    """The same outputs in eager torch, here, and in stock."""
    x = torch.randn(1, 3, 6, 6)
    data = manager.to_executorch().buffer
    want = program.module()(x).detach().numpy()
    ours = Runtime.get().load_program(data).load_method("forward").execute([x.numpy()])
    np.testing.assert_allclose(ours[0], want, 1e-4, 1e-5)
    np.testing.assert_allclose(stock().run(data, "forward", [x.numpy()])[0], want, 1e-4, 1e-5)


def test_what_is_taken_and_why_not() -> None:
    program = exported()
    manager = lower([XnnpackPartitioner()], program)
    report = manager.partition_reports["forward"]
    assert taken(manager) == ["conv2d", "mean", "sigmoid", "add", "linear"]
    assert [(v.operator, v.rejections) for v in report.rejected] == [("cumsum", ["xnnpack has no row for cumsum"])]
    assert {v.node: v.module for v in report.verdicts}["linear"] == "fc"
    assert report.groups == 2  # the sum depends on the first and feeds the second
    check_outputs(manager, program)


def test_coverage_counts_operators_products_and_bytes() -> None:
    report = lower([XnnpackPartitioner(exclude=[DontPartition("linear")])]).partition_reports["forward"]
    conv, linear = 4 * 36 * 27, 5 * 4
    assert report.coverage()["operators"] == 4 / 6
    assert report.coverage()["macs"] == conv / (conv + linear)
    assert 0 < report.coverage()["bytes"] < 1


def test_a_report_is_text_and_json() -> None:
    report = lower([XnnpackPartitioner()]).partition_reports["forward"]
    first, *rest = str(report).splitlines()
    assert first.startswith(
        "forward: 5 of 6 operators delegated to xnnpack in 2 groups (100.0% of multiply-accumulates"
    )
    assert rest == ["  cumsum 'cumsum': xnnpack has no row for cumsum"]
    content = json.loads(report.to_json())
    assert content["coverage"]["macs"] == 1.0
    assert content["groups"] == 2
    assert [o["backend"] for o in content["operators"]].count("xnnpack") == 5


def test_a_rule_is_told_with_its_value_and_module() -> None:
    model = nn.Sequential(nn.AvgPool2d(3, padding=1), nn.ReLU())
    report = lower([XnnpackPartitioner()], exported(model)).partition_reports["forward"]
    (refused,) = report.rejected
    assert refused.module == "0"
    assert refused.rejections == [
        "average pooling must exclude padding, round sizes down, and divide by the window size; got count_include_pad"
    ]


class NoAdd(OperatorSupportBase):
    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return node.target is not torch.ops.aten.add.Tensor


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("exclusion", "left"),
    [
        (DontPartition("linear"), ["linear"]),
        (DontPartition("aten.linear.default"), ["linear"]),
        (DontPartition(torch.ops.aten.linear.default), ["linear"]),
        (DontPartition(torch.ops.aten.linear), ["linear"]),
        (DontPartition("lin", exact=False), ["linear"]),
        (DontPartition("relu"), ["relu"]),  # the convolution is taken, without it
        (DontPartitionModule("first"), ["conv2d", "relu"]),
        (DontPartitionModule("first.conv"), ["conv2d"]),
        (DontPartitionModule(Block), ["conv2d", "relu"]),
        (DontPartitionModule(module_name="Block"), ["conv2d", "relu"]),
        (DontPartitionModule(instance_name="fc"), ["linear"]),
        (DontPartitionName("sigmoid", "linear"), ["sigmoid", "linear"]),
        (DontPartitionName("sigm", exact=False), ["sigmoid"]),
        (NoAdd(), ["add"]),
        (lambda op: "not today" if op.kind == "aten.linear.default" else None, ["linear"]),
    ],
)
def test_exclusions(exclusion: Any, left: list[str]) -> None:
    program = exported()
    manager = lower([XnnpackPartitioner(exclude=[exclusion])], program)
    report = manager.partition_reports["forward"]
    refused = {v.operator: v.rejections for v in report.rejected if v.operator != "cumsum"}
    assert list(refused) == left
    assert all("excluded by" in why or why == "not today" for (why,) in refused.values())
    check_outputs(manager, program)


def test_partitioners_take_turns_in_order_of_priority() -> None:
    program = exported()
    first, second = XnnpackPartitioner([ConvolutionConfig, AddConfig]), XnnpackPartitioner([LinearConfig, AddConfig])
    manager = lower([first, second], program)
    assert [v.operator for v in first.reports["forward"].delegated] == ["conv2d", "add"]
    assert [v.operator for v in second.reports["forward"].delegated] == ["linear"]
    report = manager.partition_reports["forward"]
    assert taken(manager) == ["conv2d", "add", "linear"]
    assert len({v.group for v in report.delegated}) == 3
    assert {v.operator for v in report.rejected} == {"mean", "sigmoid", "cumsum"}
    check_outputs(manager, program)


def test_refusals_of_all_partitioners_are_told() -> None:
    refused = lower([XnnpackPartitioner([AddConfig]), XnnpackPartitioner([LinearConfig])])
    (sigmoid,) = (v for v in refused.partition_reports["forward"].rejected if v.operator == "sigmoid")
    assert sigmoid.rejections == ["SigmoidConfig is not among the requested configs"]


def test_methods_have_partitioners_of_their_own() -> None:
    programs = {"one": exported(), "two": exported(), "three": exported()}
    chosen = {"one": XnnpackPartitioner([LinearConfig]),
              "two": [XnnpackPartitioner([AddConfig]), XnnpackPartitioner([SigmoidConfig])]}  # fmt: skip
    manager = to_edge_transform_and_lower(programs, partitioner=chosen)
    assert {name: taken(manager, name) for name in manager.partition_reports} == {
        "one": ["linear"],
        "two": ["add", "sigmoid"],
    }
    plans = {p.name: len(p.delegates) for p in manager.to_executorch().executorch_program.execution_plan}
    assert plans == {"one": 1, "two": 2, "three": 0}
    assert manager.to_executorch().partition_reports is manager.partition_reports


def test_reports_outlive_passes() -> None:
    manager = lower([XnnpackPartitioner()])
    assert taken(manager.transform([lambda module: None])) == taken(manager) != []


def test_per_op_mode_makes_a_delegate_of_every_operator() -> None:
    program = exported()
    manager = lower([XnnpackPartitioner(per_op_mode=True)], program)
    report = manager.partition_reports["forward"]
    assert report.groups == len(report.delegated) == 5
    check_outputs(manager, program)


@pytest.mark.parametrize(
    ("partitioner", "count"),
    [
        (XnnpackPartitioner(config_precisions=ConfigPrecisionType.FP32), 5),
        (XnnpackPartitioner(config_precisions=[ConfigPrecisionType.STATIC_QUANT]), 0),
        (XnnpackFloatingPointPartitioner(), 5),
        (XnnpackQuantizedPartitioner(), 0),
        (XnnpackDynamicallyQuantizedPartitioner(), 0),
        (XnnpackPartitioner(configs=[]), 5),  # all, as in ExecuTorch
        (XnnpackPartitioner(configs=["LinearConfig", ReLUConfig]), 1),
    ],
)
def test_precisions_and_configs_restrict(partitioner: Any, count: int) -> None:
    assert len(taken(lower([partitioner]))) == count


def test_verbose_prints_and_the_verdict_is_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "edgewright.lowering.partition"):
        lower([XnnpackPartitioner()])
    assert caplog.messages[0].startswith("forward: 5 of 6 operators delegated to xnnpack")
    assert "\n" not in caplog.messages[0]
    assert not capsys.readouterr().out
    lower([XnnpackPartitioner(verbose=True)])
    assert "no row for cumsum" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "subject"),
    [
        (lambda: XnnpackPartitioner(configs=["NoSuchConfig"]), "configs"),
        (lambda: XnnpackPartitioner(configs=LinearConfig), "configs"),
        (lambda: XnnpackPartitioner(configs=[3]), "configs"),
        (lambda: XnnpackPartitioner(config_precisions="fp32"), "config_precisions"),
        (lambda: XnnpackPartitioner(config_precisions=3), "config_precisions"),
        (lambda: XnnpackPartitioner(per_op_mode=1), "per_op_mode"),
        (lambda: XnnpackPartitioner(verbose="yes"), "verbose"),
        (lambda: XnnpackPartitioner(exclude=DontPartition("add")), "exclude"),
        (lambda: XnnpackPartitioner(exclude=["add"]), "exclude"),
        (lambda: XnnpackPartitioner(exclude=[NoAdd]), "exclude"),
        (lambda: DontPartition(), "DontPartition"),
        (lambda: DontPartitionModule(), "DontPartitionModule"),
        (lambda: DontPartitionName("a", exact="yes"), "exact"),
        (lambda: lower(["xnnpack"]), "partitioner"),
        (lambda: lower({"nothing": XnnpackPartitioner()}), "partitioner"),
    ],
)
def test_wrong_options_are_refused(make: Any, subject: str) -> None:
    with pytest.raises(UsageError, match=subject):
        make()

"""The page's own call, and what it is asked to leave alone."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from edgewright.backends.qualcomm import (
    QcomChipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    partitioner,
    to_edge_transform_and_lower_to_qnn,
)
from edgewright.backends.qualcomm.blob import read_blob
from edgewright.backends.qualcomm.compat import QnnQuantizer, update_spill_fill_size
from edgewright.backends.qualcomm.options import read_options
from edgewright.backends.qualcomm.qnn.info import BinaryReader, compiler_settings, spill_bytes
from edgewright.errors import ExportError, UsageError, VendorError
from edgewright.formats.pte_reader import read_program
from edgewright.runtime import Runtime

SPECS = generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, generate_htp_compiler_spec(use_fp16=True))
INPUTS = (torch.linspace(-1, 1, 32).reshape(4, 8),)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), nn.Tanh()).eval()


def test_one_module_becomes_forward() -> None:
    model = net()
    made = to_edge_transform_and_lower_to_qnn(model, INPUTS, SPECS)
    assert not made.partition_reports["forward"].rejected
    (found,) = Runtime.get().load_program(made.to_executorch().buffer).load_method("forward").execute(INPUTS)
    assert np.allclose(np.asarray(found), model(*INPUTS).detach().numpy(), atol=1e-2)


def test_what_devices_need_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    partitioner._warn_release.cache_clear()
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
    (verdict,) = made.partition_reports["forward"].rejected
    assert (verdict.operator, verdict.rejections) == ("tanh", ["is in skip_node_op_set"])
    made = to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS, skip_node_id_set={verdict.node})
    (again,) = made.partition_reports["forward"].rejected
    assert (again.operator, again.rejections) == ("tanh", ["is in skip_node_id_set"])


class Fused(nn.Module):
    """An activation that the HTP computes with the convolution before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.relu(self.conv(x)))


IMAGE = (torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)),)


@pytest.mark.parametrize("skipped", [{"skip_node_op_set": {"aten.relu.default"}}, {"skip_node_id_set": {"relu"}}])
def test_what_would_be_fused_is_left_alone_too(skipped: dict[str, set[str]]) -> None:
    model = Fused().eval()
    made = to_edge_transform_and_lower_to_qnn(model, IMAGE, SPECS, **skipped)
    report = made.partition_reports["forward"]
    (verdict,) = report.rejected
    assert (verdict.operator, verdict.rejections) == ("relu", [f"is in {next(iter(skipped))}"])
    assert report.groups == 2
    (found,) = Runtime.get().load_program(made.to_executorch().buffer).load_method("forward").execute(IMAGE)
    assert np.allclose(np.asarray(found), model(*IMAGE).detach().numpy(), atol=1e-2)


def test_names_that_are_nowhere_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """With several methods, those that none of them has."""
    models = {"first": net(), "second": Fused().eval()}
    sets = {"skip_node_id_set": {"rellu", "tanh"}, "skip_node_op_set": {"aten.relu.default", "aten.tan.default"}}
    with caplog.at_level(logging.WARNING, "edgewright.qualcomm"):
        to_edge_transform_and_lower_to_qnn(models, {"first": INPUTS, "second": IMAGE}, SPECS, **sets)
    said = [r.getMessage() for r in caplog.records if "nothing is called" in r.getMessage()]
    assert [re.findall(r"'(.+?)'.*(Did you mean .+)", text)[0] for text in said] == [
        ("rellu", "Did you mean relu?"), ("aten.tan.default", "Did you mean aten.tanh.default?"),
    ]  # fmt: skip


def test_shapes_that_vary_are_said_as_for_torch_export(caplog: pytest.LogCaptureFixture) -> None:
    """By argument, or by place; of several modules, by method. The HTP has none, and a file without it says so."""
    shapes: list[Any] = [{"input": {0: Dim("n", max=8)}}, ({0: Dim("n", max=8)},)]
    for given in (*shapes, {"forward": shapes[0]}):
        made = to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS, dynamic_shapes=given)
        report = made.partition_reports["forward"]
        assert not report.delegated and all("shapes must be static" in str(v.rejections) for v in report.rejected), str(
            report
        )
    said = [r.getMessage() for r in caplog.records if "nothing of" in r.getMessage()]
    wanted = "needs sizes that are known in advance: leave out dynamic_shapes, or compile per size"
    assert said[0] == f"nothing of 'forward' runs on qualcomm, which {wanted}"
    with pytest.raises(UsageError, match="method 'a': must be one of"):
        to_edge_transform_and_lower_to_qnn({"a": net()}, INPUTS, SPECS, dynamic_shapes=shapes[0])


def test_bad_calls_are_refused() -> None:
    for wrong in (None, torch.export.export(net(), INPUTS)):
        with pytest.raises(UsageError, match=r"module of 'forward': must be a torch\.nn\.Module; got"):
            to_edge_transform_and_lower_to_qnn(wrong, INPUTS, SPECS)
    with pytest.raises(ExportError, match="cannot be captured"):
        to_edge_transform_and_lower_to_qnn(net(), (torch.ones(1, 3),), SPECS)
    with pytest.raises(UsageError, match="must be a tuple; got Tensor"):
        to_edge_transform_and_lower_to_qnn(net(), INPUTS[0], SPECS)
    with pytest.raises(UsageError, match="method 'a': must be one of"):
        to_edge_transform_and_lower_to_qnn({"a": net()}, {"b": INPUTS}, SPECS)
    with pytest.raises(UsageError, match="skip_node_op_set: must be a set of names"):
        to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS, skip_node_op_set="aten.tanh.default")


def _wide() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU()).eval()


def test_methods_that_share_weights_have_one_context() -> None:
    models = {"one": _wide(), "many": _wide()}
    inputs = {"one": (torch.ones(1, 256),), "many": (torch.linspace(-1, 1, 2048).reshape(8, 256),)}
    sizes = {}
    for sharing in (True, False):
        htp = generate_htp_compiler_spec(use_fp16=True, use_weight_sharing=sharing)
        specs = generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, htp)
        made = to_edge_transform_and_lower_to_qnn(models, inputs, specs).to_executorch().buffer
        blobs = set(_blobs(made))
        assert len(blobs) == (1 if sharing else 2)
        sizes[sharing] = len(made)
        if sharing:
            graphs = BinaryReader(read_blob(next(iter(blobs))).context)
            assert [g.name for g in graphs.info.graphs] == ["one", "many"]
            graphs.close()
            with pytest.raises(VendorError, match="compile it without use_weight_sharing=True"):
                Runtime.get().load_program(made).load_method("one")
    assert sizes[True] < 0.7 * sizes[False]


def _blobs(file: bytes) -> list[bytes]:
    program = read_program(file)
    return [bytes(program.blob(d)) for plan in program.execution_plan for d in plan.delegates]


def test_what_the_compiler_is_told_is_what_its_context_says() -> None:
    htp = generate_htp_compiler_spec(use_fp16=True, use_dlbc=True, use_slc_allocator=True)
    specs = generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, htp, profile_level=2, vtcm_mb=4)
    made = to_edge_transform_and_lower_to_qnn(net(), INPUTS, specs, optimization_level=2).to_executorch().buffer
    (blob,) = _blobs(made)
    said = compiler_settings(read_blob(blob).context)
    assert {n: said[n] for n in ("enable_dlbc", "slc_allocate")} == {"enable_dlbc": {"true"}, "slc_allocate": {"true"}}
    assert said["vtcm_size"] == {str(4 << 20)} and "2" in said["O"]


def test_contexts_that_take_turns_all_say_what_the_largest_needs() -> None:
    torch.manual_seed(0)
    convs = [nn.Conv2d(a, b, 3, 1, 1) for a, b in ((3, 32), (32, 32), (32, 8))]
    model = nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.Tanh(), convs[2]).eval()
    htp = generate_htp_compiler_spec(use_fp16=True, use_multi_contexts=True)
    specs = generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, htp, vtcm_mb=1)
    inputs = (torch.zeros(1, 3, 96, 96),)
    made = to_edge_transform_and_lower_to_qnn(model, inputs, specs, skip_node_op_set={"aten.tanh.default"})
    file = bytes(made.to_executorch().buffer)
    needed = [spill_bytes(read_blob(blob).context) for blob in _blobs(file)]
    assert len(needed) == 2 and max(needed) > 0
    for delegate in read_program(file).execution_plan[0].delegates:
        (spec,) = delegate.compile_specs
        assert read_options(spec.value).backend_options.htp_options.max_sf_buf_size == max(needed)
    assert update_spill_fill_size(made.exported_program()) == max(needed)  # as scripts ask for it


def test_options_out_of_range_are_refused() -> None:
    htp = generate_htp_compiler_spec(use_fp16=True)
    with pytest.raises(UsageError, match="vtcm_mb: must be 1 to 8 on SM8650; got 64"):
        generate_qnn_executorch_compiler_spec(QcomChipset.SM8650, htp, vtcm_mb=64)
    with pytest.raises(UsageError, match="optimization_level: must be 1, 2 or 3; got 4"):
        to_edge_transform_and_lower_to_qnn(net(), INPUTS, SPECS, optimization_level=4)


def test_methods_that_share_weights_are_for_one_soc() -> None:
    htp = generate_htp_compiler_spec(use_fp16=True, use_weight_sharing=True)
    specs = {n: generate_qnn_executorch_compiler_spec(s, htp) for n, s in (("a", "SM8650"), ("b", "SM8550"))}
    with pytest.raises(UsageError, match="of methods that share weights must be the same"):
        to_edge_transform_and_lower_to_qnn({"a": net(), "b": net()}, INPUTS, specs)


def test_recipes_of_others_are_refused() -> None:
    with pytest.raises(UsageError, match="set_recipe: is not supported; got dict"):
        QnnQuantizer(strict=False).set_recipe({})

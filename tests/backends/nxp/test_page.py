"""The manual page's code, as people type it, and the options of the compile spec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright.backends.nxp import (
    CustomDelegationOptions,
    NeutronCompileSpecBuilder,
    NeutronEdgePassManager,
    NeutronPartitioner,
    NeutronQuantizer,
    NeutronTargetSpec,
    calibrate_and_quantize,
    export_tflite,
    generate_neutron_compile_spec,
    remove_io_quant_ops,
)  # fmt: skip
from edgewright.backends.nxp.target import read_options
from edgewright.errors import UsageError
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.nxp.litert import run
from tests.backends.nxp.lowered import Lowered
from tests.backends.nxp.networks import CifarNet

KEYS = [
    "output_format", "compile_flags", "target", "intermediates_dir", "operators_not_to_delegate",
    "use_neutron_for_format_conversion", "fetch_constants_to_sram", "dump_kernel_selection_code", "use_profiling",
]  # fmt: skip


def test_the_pages_example() -> None:
    x = torch.randn(1, 3, 32, 32)
    aten_model = torch.export.export(CifarNet().eval(), (x,)).module()
    calibration_inputs: list[tuple[Tensor, ...]] = [(torch.randn(1, 3, 32, 32),) for _ in range(2)]
    quantizer = NeutronQuantizer()
    m = prepare_pt2e(aten_model, quantizer)
    for data in calibration_inputs:
        m(*data)
    m = convert_pt2e(m)
    partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700", simulate_only=True))
    edge = to_edge_transform_and_lower(
        torch.export.export(m, (x,)), transform_passes=[NeutronEdgePassManager()], partitioner=[partitioner]
    )
    assert edge.partition_reports["forward"].coverage()["macs"] == 1.0


def test_compile_specs_have_stocks_keys_in_stocks_order() -> None:
    specs = generate_neutron_compile_spec("imxrt700", operators_not_to_delegate=["aten::convolution", "add"])
    assert [s.key for s in specs] == KEYS
    held = {s.key: bytes(s.value) for s in specs}
    assert held["intermediates_dir"] == b"None"
    assert held["operators_not_to_delegate"] == b"aten_convolution,add"
    assert held["use_neutron_for_format_conversion"] == b"True"
    assert NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700").build() == generate_neutron_compile_spec()


@pytest.mark.parametrize("given", [{"config": "imx0"}, {"config": 3}, {"use_profiling": 1}])
def test_wrong_options_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        generate_neutron_compile_spec(**given)


def test_wrong_specs_and_targets_are_refused() -> None:
    with pytest.raises(UsageError, match="keys and values"):
        NeutronPartitioner(["imxrt700"])
    with pytest.raises(UsageError, match="NeutronTargetSpec"):
        NeutronPartitioner(generate_neutron_compile_spec(), "imxrt700")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="before build"):
        NeutronCompileSpecBuilder().build()
    assert read_options(generate_neutron_compile_spec(neutron_converter_flavor="SDK_25_06")).flavor == "SDK_25_06"


def test_targets_say_what_they_are() -> None:
    spec = NeutronTargetSpec("imxrt700")
    assert (spec.get_name(), spec.is_subsystem(), spec.get_num_pipes(), spec.get_num_macs()) == (
        "imxrt700",
        False,
        8,
        8,
    )
    assert (spec.get_num_units(), spec.get_hw_version()) == (1, 2)


def test_operators_can_be_left_out() -> None:
    torch.manual_seed(0)
    lowered = Lowered(CifarNet(), (torch.randn(1, 3, 32, 32),), operators_not_to_delegate=["aten::convolution"])
    refused = {v.operator for v in lowered.report.rejected}
    assert "conv2d" in refused and "linear" not in refused


class _Moves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x).reshape(2, -1)


def test_movement_alone_is_delegated_only_on_request() -> None:
    x = torch.randn(1, 4, 4)
    quantized = calibrate_and_quantize(torch.export.export(_Moves(), (x,)), [(x,)], NeutronQuantizer())
    exported = torch.export.export(quantized, (x,))
    spec = generate_neutron_compile_spec(simulate_only=True, operators_not_to_delegate=["relu"])
    taken = []
    for allowed in (False, True):
        partitioner = NeutronPartitioner(
            spec, custom_delegation_options=CustomDelegationOptions(allow_no_op_partitions=allowed)
        )
        report = to_edge_transform_and_lower(exported, partitioner=[partitioner]).partition_reports["forward"]
        taken.append(len(report.delegated))
    assert taken == [0, 1]


def test_integer_ends() -> None:
    torch.manual_seed(0)
    lowered = Lowered(CifarNet(), (torch.randn(1, 3, 32, 32),))
    exported, ends = remove_io_quant_ops(lowered.exported)
    assert ends["output0"].scale == pytest.approx(1 / 256)
    partitioner = NeutronPartitioner(generate_neutron_compile_spec(simulate_only=True))
    made = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch()
    x = torch.randint(-128, 128, (1, 3, 32, 32), dtype=torch.int8)
    found = Runtime.get().load_program(made.buffer).load_method("forward").execute([x.numpy()])[0]
    assert (found == run(partitioner.files[0], [x.numpy()])[0]).all()


def test_tflite_alone() -> None:
    torch.manual_seed(0)
    lowered = Lowered(CifarNet(), (torch.randn(1, 3, 32, 32),))
    assert export_tflite(lowered.exported) == lowered.partitioner.files


def test_training_aware_quantization() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 32, 32)
    exported = torch.export.export(CifarNet().train(), (x,))
    quantizer = NeutronQuantizer(NeutronTargetSpec("imxrt700"), is_qat=True)

    def train(module: Any) -> None:
        optimizer = torch.optim.SGD(module.parameters(), 1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()

    quantized = calibrate_and_quantize(exported, [], quantizer, is_qat=True, train_fn=train)
    report = _report(quantized, x)
    assert report.coverage()["macs"] == 1.0
    with pytest.raises(UsageError, match="train_fn"):
        calibrate_and_quantize(exported, [], quantizer, is_qat=True)


def _report(quantized: Any, x: Tensor) -> Any:
    partitioner = NeutronPartitioner(generate_neutron_compile_spec(simulate_only=True))
    exported = torch.export.export(quantized, (x,))
    return to_edge_transform_and_lower(exported, partitioner=[partitioner]).partition_reports["forward"]


class _TwoReaders(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        pooled = nn.functional.max_pool2d(nn.functional.leaky_relu(x), 2)
        return (pooled + y) * torch.tanh(pooled)


class _Products(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.bmm(torch.relu(x), torch.sigmoid(y)) / 3.0 - 0.5


@pytest.mark.parametrize(
    ("model", "shapes"),
    [(_TwoReaders(), ((1, 4, 8, 8), (1, 4, 4, 4))), (_Products(), ((2, 4, 8), (2, 8, 3)))],
    ids=["pool of two readers", "products"],
)
def test_what_stock_gets_wrong_or_does_not_take(model: nn.Module, shapes: Any) -> None:
    torch.manual_seed(0)
    samples = [tuple(torch.randn(s) for s in shapes) for _ in range(4)]
    lowered = Lowered(model, samples[0], samples)
    assert lowered.whole, str(lowered.report)
    for sample in samples:
        assert (lowered.host(*sample) == lowered.litert(*sample)).all()
        assert abs(lowered.host(*sample) - model(*sample).numpy()).max() < 0.2


def test_programs_run_without_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    lowered = Lowered(CifarNet(), (torch.randn(1, 3, 32, 32),))
    (tmp_path / "m.pte").write_bytes(lowered.buffer)
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\nfrom edgewright import Runtime\n"
        f"method = Runtime.get().load_program({str(tmp_path / 'm.pte')!r}).load_method('forward')\n"
        "print(np.asarray(method.execute([np.zeros((1, 3, 32, 32), np.float32)])[0]).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == str(lowered.host(torch.zeros(1, 3, 32, 32)).tolist())

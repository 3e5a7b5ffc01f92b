"""The public page's own flow, as it is written there but for its imports."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from edgewright.backends.ethos_u import (
    ArmCompileSpecBuilder,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_quantization_config,
)
from edgewright.backends.ethos_u.target import ACCELERATORS, DEFAULTS, EthosUCompileSpec
from edgewright.lowering.partition.exclude import DontPartition, DontPartitionModule, DontPartitionName
from edgewright.quantize.integer_io import integer_io
from edgewright.runtime import Runtime
from tests.backends.ethos_u.lowered import lower, network, quantize
from tests.backends.ethos_u.networks import NETWORKS, lively
from tests.program.networks import MobileNetV2


def page(target: str, path: Path, size: int = 224) -> None:
    mobilenet_v2, _ = lively(MobileNetV2(), ())
    example_inputs = (torch.randn(1, 3, size, size),)
    system_config, memory_mode = DEFAULTS[ACCELERATORS[target][0]]

    compile_spec = ArmCompileSpecBuilder().ethosu_compile_spec(
            target,
            system_config=system_config,
            memory_mode=memory_mode,
            extra_flags="--output-format=raw --debug-force-regor",
        ).build()  # fmt: skip

    # Post training quantization
    graph_module = torch.export.export(mobilenet_v2, example_inputs).module()
    quantizer = EthosUQuantizer(compile_spec)
    operator_config = get_symmetric_quantization_config(is_per_channel=False)
    quantizer.set_global(operator_config)
    graph_module = prepare_pt2e(graph_module, quantizer)
    graph_module(*example_inputs)
    graph_module = convert_pt2e(graph_module)
    exported_program = torch.export.export(graph_module, example_inputs)

    # Lower the exported program to the Ethos-U backend and save pte file.
    edge_program_manager = to_edge_transform_and_lower(
        exported_program,
        partitioner=[EthosUPartitioner(compile_spec)],
        compile_config=EdgeCompileConfig(
            _check_ir_validity=False,
        ),
    ).to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=False))

    with open(path, "wb") as file:
        edge_program_manager.write_to_file(file)


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    path = tmp_path / "mv2_arm_ethos_u55.pte"
    page("ethos-u55-128", path, size=64)
    (found,) = Runtime().load_program(path).load_method("forward").execute((torch.randn(1, 3, 64, 64),))
    assert found.shape == (1, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("target", ACCELERATORS)
def test_the_page_on_every_accelerator(target: str, tmp_path: Path) -> None:
    page(target, tmp_path / "m.pte")
    assert (tmp_path / "m.pte").stat().st_size > 3_000_000


def test_checks_of_the_user_keep_operators_out() -> None:
    pools = DontPartition(torch.ops.aten.max_pool2d.default)
    made = lower(network("cifarnet"), "ethos-u55-128", additional_checks=[pools])
    refused = {v.operator for v in made.report.rejected}
    assert "max_pool2d" in refused and len(made.groups) > 1
    by_module = lower(network("cifarnet"), "ethos-u55-128", additional_checks=[DontPartitionModule(instance_name="fc")])
    assert "linear" in {v.operator for v in by_module.report.rejected}
    name = next(v.node for v in made.report.delegated if v.operator == "linear")
    by_name = lower(network("cifarnet"), "ethos-u55-128", additional_checks=[DontPartitionName(name)])
    assert "linear" in {v.operator for v in by_name.report.rejected}


def test_integer_ends() -> None:
    quantized = network("cifarnet")
    opened, parameters = integer_io(quantized.exported)
    assert set(parameters) == {"input0", "output0"}
    quantized = type(quantized)(quantized.model, quantized.inputs, quantized.converted, opened)
    made = lower(quantized, "ethos-u55-128")
    assert [v.operator for v in made.report.rejected] == []
    p = parameters["input0"]
    stored = torch.clamp(torch.round(quantized.inputs[0] / p.scale) + p.zero_point, p.qmin, p.qmax).to(p.dtype)
    (found,) = Runtime().load_program(made.program).load_method("forward").execute((stored,))
    (wanted,) = made.reference([stored.numpy()])
    assert found.dtype == torch.int8
    assert torch.equal(torch.as_tensor(found), torch.from_numpy(wanted.copy()))


def test_unsigned_ends() -> None:
    from edgewright.backends.ethos_u import get_uint8_io_quantization_config

    quantized = quantize(NETWORKS["cifarnet"](), "a8w8", "ethos-u55-128", io=(get_uint8_io_quantization_config(),))
    opened, parameters = integer_io(quantized.exported)
    assert parameters["input0"].dtype == parameters["output0"].dtype == torch.uint8
    made = lower(type(quantized)(quantized.model, quantized.inputs, quantized.converted, opened), "ethos-u55-128")
    assert [v.operator for v in made.report.rejected] == []
    random = torch.randint(0, 256, quantized.inputs[0].shape, dtype=torch.uint8)
    (found,) = Runtime().load_program(made.program).load_method("forward").execute((random,))
    (wanted,) = made.reference([random.numpy().view("int8")])
    assert found.dtype == torch.uint8
    assert torch.equal(torch.as_tensor(found).view(torch.int8), torch.from_numpy(wanted.copy()))


def test_what_vela_made_can_be_proved() -> None:
    assert len(lower(network("cifarnet"), "ethos-u55-128", verify=True).groups) == 1


def test_a_spec_must_be_one() -> None:
    from edgewright.errors import UsageError

    with pytest.raises(UsageError, match="must be an EthosUCompileSpec; got str"):
        EthosUPartitioner("ethos-u55-128")  # type: ignore[arg-type]
    assert EthosUCompileSpec("ethos-u55-128").family == "u55"

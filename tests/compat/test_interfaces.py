"""Interfaces of ExecuTorch's partitioners, quantizers and compile specs, as scripts use them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright import to_edge, to_edge_transform_and_lower
from edgewright.backends.ethos_u import (
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_quantization_config,
)
from edgewright.backends.nxp import NeutronPartitioner, generate_neutron_compile_spec
from edgewright.backends.qualcomm import (
    QnnPartitioner,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.backends.qualcomm.export_utils import setup_common_args_and_variables
from edgewright.backends.qualcomm.target import UNSUPPORTED
from edgewright.backends.samsung import gen_samsung_backend_compile_spec, to_edge_transform_and_lower_to_enn
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.compat.finder import installed
from edgewright.errors import UsageError
from edgewright.lowering.partition import DontPartition, DontPartitionModule, DontPartitionName
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e
from edgewright.runtime import Runtime

X = (torch.linspace(-1, 1, 3 * 64).reshape(1, 3, 8, 8),)


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 4)]
    return torch.nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    return torch.export.export(net(), X)


# --------------------------------------------------------------------------------------------------------- XNNPACK


def test_the_config_modules_of_xnnpack() -> None:
    with installed():
        from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS, LinearConfig
        from executorch.backends.xnnpack.partition.config.gemm_configs import LinearConfig as Linear
        from executorch.backends.xnnpack.partition.config.xnnpack_config import XNNPartitionerConfig
    assert LinearConfig is Linear and LinearConfig in ALL_PARTITIONER_CONFIGS
    assert all(issubclass(config, XNNPartitionerConfig) for config in ALL_PARTITIONER_CONFIGS)


def delegated(exported: torch.export.ExportedProgram, **options: Any) -> set[str]:
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner(**options)])
    return {verdict.operator for verdict in lowered.partition_reports["forward"].delegated}


def test_no_configs_are_all_configs(exported: torch.export.ExportedProgram) -> None:
    from edgewright.backends.xnnpack.configs import ALL_PARTITIONER_CONFIGS, CONFIGS

    everything = delegated(exported)
    assert delegated(exported, configs=[]) == delegated(exported, configs=ALL_PARTITIONER_CONFIGS) == everything
    assert delegated(exported, configs=[c for c in ALL_PARTITIONER_CONFIGS if c is not CONFIGS["LinearConfig"]]) == (
        everything - {"linear"}
    )


def test_weights_of_linear_layers_outside_of_the_delegate(exported: torch.export.ExportedProgram) -> None:
    option: Any = {"force_non_static_weights_for_f32_linear": True}
    files, sizes = {}, {}
    for name, options in (("inside", {}), ("outside", option)):
        manager = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner(**options)])
        program = manager.to_executorch().executorch_program
        files[name] = manager.to_executorch().buffer
        sizes[name] = len(program.execution_plan[0].delegates), len(program.named_data or ())
    assert sizes["outside"][1] == sizes["inside"][1] - 2  # the weight and the bias
    expected = net()(*X).detach().numpy()
    for data in files.values():
        (found,) = Runtime.get().load_program(data).load_method("forward").execute([X[0].numpy()])
        assert np.abs(np.asarray(found) - expected).max() < 1e-6
    with pytest.raises(UsageError, match="True or False"):
        XnnpackPartitioner(force_non_static_weights_for_f32_linear=1)  # type: ignore[arg-type]


@pytest.mark.slow
def test_stock_runs_linear_layers_whose_weights_are_outside(
    exported: torch.export.ExportedProgram, tmp_path: Path
) -> None:
    from executorch.runtime import Runtime as Stock

    partitioner = XnnpackPartitioner(force_non_static_weights_for_f32_linear=True)
    program = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch()
    program.save(tmp_path / "net.pte")
    (found,) = Stock.get().load_program(tmp_path / "net.pte").load_method("forward").execute(X)
    assert torch.allclose(found, net()(*X), atol=1e-6)


# ----------------------------------------------------------------------------------------------------- partitioners


def tags(program: torch.export.ExportedProgram) -> dict[str, str]:
    return {n.name: n.meta["delegation_tag"] for n in program.graph.nodes if "delegation_tag" in n.meta}


@pytest.mark.parametrize("edge", [False, True])
def test_partition_tags_nodes(exported: torch.export.ExportedProgram, edge: bool) -> None:
    program = to_edge(exported).exported_program() if edge else exported
    result = XnnpackPartitioner(per_op_mode=True).partition(program)
    found = tags(result.tagged_exported_program)
    assert (
        set(found.values()) == set(result.partition_tags) and len(result.partition_tags) == 2
    )  # relu is fused; a view alone stays
    assert {spec.backend_id for spec in result.partition_tags.values()} == {"XnnpackBackend"}
    (together,) = XnnpackPartitioner().partition(program).partition_tags
    assert together == "xnnpack_0"


def test_partition_needs_no_vendor_software(exported: torch.export.ExportedProgram) -> None:
    from edgewright.backends.samsung import EnnPartitioner, gen_samsung_backend_compile_spec

    result = EnnPartitioner([gen_samsung_backend_compile_spec("E9955")]).partition(exported)
    ((_, spec),) = result.partition_tags.items()
    assert [s.key for s in spec.compile_specs] == ["enn_compile_options"]


def test_operators_that_are_not_decomposed(exported: torch.export.ExportedProgram) -> None:
    operators, keep = XnnpackPartitioner().ops_to_not_decompose(exported)
    assert torch.ops.aten.linear.default in operators and torch.ops.aten.flatten.using_ints not in operators
    assert keep is None


def test_custom_operators_have_no_lowering_to_tosa() -> None:
    partitioner = EthosUPartitioner(EthosUCompileSpec("ethos-u55-128"))
    partitioner.register_custom_partition_op(torch.ops.aten.linear.default)
    with pytest.raises(UsageError, match="has no lowering to TOSA"):
        partitioner.register_custom_partition_op(torch.ops.aten.histc.default)


def test_debugging_information_beside_the_tosa_graph(exported: torch.export.ExportedProgram, tmp_path: Path) -> None:
    spec = EthosUCompileSpec("ethos-u55-128")
    spec.dump_debug_info(EthosUCompileSpec.DebugMode.JSON)
    quantizer = EthosUQuantizer(spec).set_global(quantization_config=get_symmetric_quantization_config())
    prepared = prepare_pt2e(exported.module(), quantizer)
    prepared(*X)
    quantized = torch.export.export(convert_pt2e(prepared), X)
    with pytest.raises(UsageError, match="needs a folder"):
        to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)])
    spec.dump_intermediate_artifacts_to(str(tmp_path))  # changes the spec, as in ExecuTorch
    to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)])
    (graph,) = tmp_path.glob("*.tosa")
    events = json.loads(graph.with_suffix(".debug.json").read_text())
    convolution = next(e for e in events if e["tosa_info"]["operator_name"] == "conv2d")
    assert convolution["aten_info"]["node_name"] == "conv2d" and convolution["torch_info"]["nn_module_stack"] == "0"
    with pytest.raises(UsageError, match=r"DebugMode\.JSON"):
        spec.dump_debug_info("tosa")  # type: ignore[arg-type]


def test_debugging_information_in_the_tosa_graph(exported: torch.export.ExportedProgram, tmp_path: Path) -> None:
    from tosa.TosaGraph import TosaGraph

    prepared = prepare_pt2e(exported.module(), _everywhere())
    prepared(*X)
    quantized = torch.export.export(convert_pt2e(prepared), X)
    spec = EthosUCompileSpec("ethos-u55-128").dump_debug_info(EthosUCompileSpec.DebugMode.TOSA)
    with pytest.raises(UsageError, match="needs a folder"):
        to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)])
    spec.dump_intermediate_artifacts_to(tmp_path)
    to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)])
    (graph,) = tmp_path.iterdir()
    block = TosaGraph.GetRootAs(graph.read_bytes(), 0).Regions(0).Blocks(0)
    operators = [block.Operators(i) for i in range(block.OperatorsLength())]
    found = [json.loads(o.Location().Text()) for o in operators if o.Location() and o.Location().Text()]
    assert {"conv2d", "linear"} <= {event["aten_info"]["node_name"] for event in found}
    assert {"0", "3"} <= {event["torch_info"]["nn_module_stack"] for event in found}
    assert [event["event_id"] for event in found] == list(range(len(found)))


class Relus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.tanh(torch.relu(x)) - 0.5)


def qualcomm(nodes: set[str]) -> QnnPartitioner:
    specs = generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(use_fp16=True))
    return QnnPartitioner(specs, skip_node_id_set=nodes, simulate_only=True)


@pytest.mark.parametrize("make", [qualcomm, lambda nodes: XnnpackPartitioner(exclude=[DontPartitionName(*nodes)])])
def test_nodes_by_the_names_that_executorch_gives_them(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    program = torch.export.export(Relus(), (torch.ones(2, 4),))
    lowered = to_edge_transform_and_lower(program, partitioner=[make({"aten_relu_default_1", "aten_rellu_default"})])
    (left,) = lowered.partition_reports["forward"].rejected
    assert (left.operator, left.node) == ("relu", "relu_1")
    (warning,) = (r.getMessage() for r in caplog.records if "nothing is called" in r.getMessage())
    assert "'aten_rellu_default'" in warning and "Did you mean" in warning and "aten_relu_default" in warning


@pytest.mark.parametrize("excluded", [DontPartition("conv3d"), DontPartitionModule("features.9")])
def test_exclusions_that_match_nothing(
    excluded: Any, exported: torch.export.ExportedProgram, caplog: pytest.LogCaptureFixture
) -> None:
    to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner(exclude=[excluded])])
    assert f"{type(excluded).__name__}: nothing is called" in caplog.text


@pytest.mark.parametrize("make", [
    lambda: EthosUPartitioner(EthosUCompileSpec("ethos-u55-128")),
    lambda: NeutronPartitioner(generate_neutron_compile_spec("imxrt700", simulate_only=True)),
])  # fmt: skip
def test_a_float_model_for_an_integer_chip(
    make: Any, exported: torch.export.ExportedProgram, caplog: pytest.LogCaptureFixture
) -> None:
    lowered = to_edge_transform_and_lower(exported, partitioner=[make()])
    assert not lowered.partition_reports["forward"].delegated
    (warning,) = (r.getMessage() for r in caplog.records if "nothing of" in r.getMessage())
    assert warning.endswith("quantize the model first")


def test_nothing_is_said_where_another_backend_takes_it(
    exported: torch.export.ExportedProgram, caplog: pytest.LogCaptureFixture
) -> None:
    chain = [EthosUPartitioner(EthosUCompileSpec("ethos-u55-128")), XnnpackPartitioner()]
    to_edge_transform_and_lower(exported, partitioner=chain)
    assert "nothing of" not in caplog.text


def test_options_of_neutron_that_have_no_effect_elsewhere() -> None:
    with pytest.raises(UsageError, match="system_config: has no effect: "):
        generate_neutron_compile_spec("imxrt700", system_config="x")
    with pytest.raises(UsageError, match="must be operators that Neutron supports"):
        NeutronPartitioner(preserve_ops=[torch.ops.aten.histc.default])
    NeutronPartitioner(preserve_ops=[torch.ops.aten.linear.default])
    with pytest.raises(UsageError, match="check_op_support: is not supported"):
        NeutronPartitioner(check_op_support=lambda node: True)


@pytest.mark.parametrize("option", ["saver", "online_prepare", "dump_intermediate_outputs", "is_from_context_binary",
                                    "op_package_options", "use_mha2sha"])  # fmt: skip
def test_options_of_qnn_are_rejected_with_a_reason_of_their_own(option: str) -> None:
    with pytest.raises(UsageError) as caught:
        generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(use_fp16=True), **{option: True})
    reason, remedy = UNSUPPORTED[option]
    assert reason in str(caught.value) and remedy in str(caught.value)
    assert sum(reason == other for other, _ in UNSUPPORTED.values()) == 1


def test_passes_of_a_script_run_before_samsungs_compiler() -> None:
    calls = []
    spec = gen_samsung_backend_compile_spec("E9955", simulate_only=True)
    to_edge_transform_and_lower_to_enn(net(), X, custom_pass_config=[calls.append], compile_specs=[spec])
    assert len(calls) == 1 and isinstance(calls[0], torch.fx.GraphModule)


# ------------------------------------------------------------------------------------------------------- quantizers


class Finder:
    def find_nodes(self, model: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
        return (n for n in model.graph.nodes if "linear" in n.name)


def test_choices_of_executorchs_passes(caplog: pytest.LogCaptureFixture) -> None:
    """The table of a leaky ReLU, the softmax and the masks are what they are; a choice is answered with the reason."""
    with installed():
        from executorch.backends.arm.common.pipeline_config import (
            ArmPassPipelineConfig,
            LeakyReLULoweringConfig,
            QuantizeInfConfig,
            SDPASafeSoftmaxGuardPolicy,
            SoftmaxDecompositionConfig,
        )
    spec = EthosUCompileSpec("ethos-u55-128")
    assert ArmPassPipelineConfig().is_default()
    spec.set_pass_pipeline_config(ArmPassPipelineConfig())
    assert not caplog.records
    config = ArmPassPipelineConfig(
        SoftmaxDecompositionConfig.STABLE, LeakyReLULoweringConfig.TABLE, QuantizeInfConfig(neg_inf=-100.0),
        SDPASafeSoftmaxGuardPolicy.REMOVE,
    )  # fmt: skip
    spec.set_pass_pipeline_config(config)
    names = [r.getMessage().split(": ")[1].split("=")[0] for r in caplog.records]
    assert names == ["softmax", "leaky_relu", "quantize_inf", "sdpa_safe_softmax_guard"]
    assert all("makes no difference: " in r.getMessage() for r in caplog.records)
    with pytest.raises(UsageError, match="must be a SoftmaxDecompositionConfig"):
        spec.set_pass_pipeline_config(ArmPassPipelineConfig(softmax="stable"))


def test_results_need_no_workaround_for_their_order(caplog: pytest.LogCaptureFixture) -> None:
    spec = EthosUCompileSpec("ethos-u55-128")
    spec.set_output_order_workaround(False)
    assert not spec.get_output_order_workaround() and not caplog.records
    spec.set_output_order_workaround(True)
    assert spec.get_output_order_workaround()
    assert "results are in the model's order without it" in caplog.text
    with pytest.raises(UsageError, match="must be True or False"):
        spec.set_output_order_workaround(1)  # type: ignore[arg-type]


def test_there_is_one_quantizer(exported: torch.export.ExportedProgram, caplog: pytest.LogCaptureFixture) -> None:
    config, spec = get_symmetric_quantization_config(), EthosUCompileSpec("ethos-u55-128")
    both = [EthosUQuantizer(spec, use_composable_quantizer=choice).set_global(config) for choice in (True, False)]
    first, second = (prepare_pt2e(exported.module(), quantizer).code for quantizer in both)
    assert first == second and "there is one quantizer" in caplog.text


def test_the_pass_for_folded_biases_is_not_needed(exported: torch.export.ExportedProgram) -> None:
    with installed():
        from executorch.backends.nxp.quantizer.neutron_quantizer import NeutronQuantizer, NeutronTargetSpec
        from executorch.backends.transforms.quantize_fused_convbn_bias_pass import QuantizeFusedConvBnBiasAtenPass
    module = exported.module()
    assert QuantizeFusedConvBnBiasAtenPass(default_zero_bias=True)(module).graph_module is module
    assert NeutronQuantizer(NeutronTargetSpec(target="imxrt700"))


def finders() -> Iterator[tuple[Any, ...]]:
    yield lambda node: "linear" in node.name, None
    yield None, lambda node: "linear" in node.name
    yield Finder(), None
    yield None, Finder()


@pytest.mark.parametrize("number", range(4))
def test_node_finders_in_either_order(exported: torch.export.ExportedProgram, number: int) -> None:
    arguments = list(finders())[number]
    config = get_symmetric_quantization_config()
    quantizer = EthosUQuantizer(EthosUCompileSpec("ethos-u55-128")).set_global(config)
    quantizer.set_node_finder(*arguments)
    names = {n.name for n in prepare_pt2e(exported.module(), quantizer).graph.nodes}
    other = {n.name for n in prepare_pt2e(exported.module(), _everywhere()).graph.nodes}
    assert len([n for n in names if "activation_post_process" in n]) < len(
        [n for n in other if "activation_post_process" in n]
    )


def _everywhere() -> EthosUQuantizer:
    return EthosUQuantizer(EthosUCompileSpec("ethos-u55-128")).set_global(get_symmetric_quantization_config())


def test_what_is_no_finder_is_rejected() -> None:
    quantizer = _everywhere()
    for arguments in ((3, None), (None, None), (get_symmetric_quantization_config(), "linear")):
        with pytest.raises(UsageError, match="find_nodes"):
            quantizer.set_node_finder(*arguments)


# --------------------------------------------------------------------------------------------- Qualcomm's scripts


def test_short_options_give_way_to_a_scripts_own() -> None:
    found = setup_common_args_and_variables().parse_args(["-b", "build-android", "-m", "SM8550", "-s", "abc"])
    assert (found.build_folder, found.soc_model, found.device) == ("build-android", "SM8550", "abc")
    later = setup_common_args_and_variables()
    later.add_argument("-m", "--model_name")
    earlier = argparse.ArgumentParser()
    earlier.add_argument("-m", "--model_name")
    for parser in (later, setup_common_args_and_variables(earlier)):
        found = parser.parse_args(["-m", "mv2", "--soc_model", "SM8550"])
        assert (found.model_name, found.soc_model) == ("mv2", "SM8550")

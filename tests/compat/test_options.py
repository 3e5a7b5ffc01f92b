"""Nothing is ignored in silence, under ExecuTorch's names too: every option of every function and class that a backend
has only for scripts changes what is seen of it, or is rejected with a typed error that is about it.

``tests/backends/test_options.py`` does so for the names of the backends' own packages, ``tests/program/test_config.py``
for those of no backend.
"""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torchao.quantization.pt2e import MinMaxObserver

from edgewright.backends.ethos_u import compat as arm
from edgewright.backends.nxp.passes import QuantizeFusedConvBnBiasAtenPass
from edgewright.backends.qualcomm import QuantDtype, export_utils, script_helpers
from edgewright.backends.qualcomm import compat as qnn
from edgewright.backends.xnnpack import compat as xnnpack
from edgewright.errors import EdgewrightError
from edgewright.lowering.partition import DontPartition
from edgewright.lowering.partition.simulation import simulate_only
from tests.backends import flip_bench as bench
from tests.backends.flips import _annotate_nothing, _without_relu
from tests.backends.test_options import BACKENDS, optional, public
from tests.compat.test_qualcomm_helpers import Doubled

compat = import_module("edgewright.compat.table")
ROOT = "edgewright.backends."
OURS = {value for backend in BACKENDS for _, value in public(backend)}


def found() -> Iterator[tuple[str, Any]]:
    """The functions and classes that backends have for ExecuTorch's names only, by module and name."""
    names = {compat.counterpart(m, name) for m, entries in compat.table().names.items() for name in entries}
    for module, name in sorted(names):
        value = getattr(import_module(module), name) if module.startswith(ROOT) else None
        is_enum = isinstance(value, type) and issubclass(value, enum.Enum | BaseException)
        if callable(value) and value not in OURS and not is_enum and value.__module__.startswith(ROOT):
            yield f"{module.removeprefix(ROOT)}.{name}", value


OPTIONS = sorted({f"{path}.{name}" for path, value in found() for name in optional(value)})


def quantizer_of(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **options: bench.seen(lambda: bench_manager(make(**options)))


def bench_manager(quantizer: Any) -> Any:
    from edgewright import to_edge_transform_and_lower

    partitioner = bench.PARTITIONERS["qualcomm"]()
    return to_edge_transform_and_lower(bench.quantized(quantizer), partitioner=[partitioner])


def lowered_to_qnn(**options: Any) -> Any:
    model = bench.Net().eval()
    with simulate_only(True):
        return bench.seen(lambda: qnn.to_edge_transform_and_lower_to_qnn(model, bench.X, bench.QNN, **options))


def per_channel(**options: Any) -> Any:
    return bench.with_config("qualcomm", qnn.get_ptq_per_channel_quant_config(**options))


def binary(config: Any = None, **options: Any) -> Any:
    """The file that a script makes."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder, simulate_only(True), bench.logged(lines):
        chosen = config or export_utils.QnnConfig("SM8650")
        code = None
        try:
            export_utils.build_executorch_binary(bench.Net().eval(), chosen, f"{folder}/m", [bench.X], **options)
        except SystemExit as end:
            code = end.code
        return code, [path.read_bytes() for path in sorted(Path(folder).iterdir())], lines


def config(**options: Any) -> Any:
    """A configuration, the file that it makes, what runs it, and the seed that it sets."""
    lines: list[str] = []
    torch.manual_seed(0)
    with bench.logged(lines):
        chosen = export_utils.QnnConfig("SM8650", **options)
        export_utils.SimpleADB(chosen, "m.pte", "folder")
    return torch.initial_seed(), lines, binary(chosen)


def adb(**options: Any) -> Any:
    lines: list[str] = []
    with bench.logged(lines):
        export_utils.SimpleADB(export_utils.QnnConfig("SM8650"), "m.pte", "folder", **options)
    return lines


def inputs(**options: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        export_utils.generate_inputs(folder, "list.txt", **{"inputs": [bench.X], **options})
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def said(make: Callable[..., Any]) -> Callable[..., Any]:
    """What a class logs."""

    def run(**options: Any) -> list[str]:
        lines: list[str] = []
        with bench.logged(lines):
            make(**options)
        return lines

    return run


def arm_choices(**options: Any) -> Any:
    return arm.ArmPassPipelineConfig(**options).differences()


def arm_partitioner(**options: Any) -> Any:
    return bench.lowered(bench.quantized_for("ethos_u"), lambda: arm.create_partitioner(bench.ETHOS, **options))


def infinities(**options: Any) -> Any:
    return arm_choices(quantize_inf=arm.QuantizeInfConfig(**options))


def xnnpack_config(**options: Any) -> Any:
    return bench.seen(lambda: _edge(xnnpack.get_xnnpack_edge_compile_config(**options)))


def _edge(options: Any) -> Any:
    from edgewright import to_edge

    class Copy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.int32).clone() + 1

    return to_edge(torch.export.export(Copy(), (torch.ones(2),)), compile_config=options)


SCHEMES = {
    "quant_dtype": QuantDtype.use_16a8w, "custom_annotations": [_annotate_nothing],
    "per_channel_conv": False, "per_channel_linear": True, "per_channel_embedding": True,
    "act_observer": MinMaxObserver, "act_symmetric": True, "is_qat": True,
    "submodule_qconfig_list": [(lambda node: "linear" in node.name, None)],
    "backend": qnn.QnnExecuTorchBackendType.kGpuBackend, "eps": 0.5,
}  # fmt: skip


GPU = qnn.QnnExecuTorchBackendType.kGpuBackend
PASSES = {Doubled: {script_helpers.QCOM_PASS_ACTIVATE_KEY: True, script_helpers.QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY: {}}}
BENCHES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "ethos_u.compat.ArmPassPipelineConfig": (arm_choices, {
        "softmax": arm.SoftmaxDecompositionConfig.STABLE, "leaky_relu": arm.LeakyReLULoweringConfig.TABLE,
        "quantize_inf": arm.QuantizeInfConfig(-1.0, 1.0),
        "sdpa_safe_softmax_guard": arm.SDPASafeSoftmaxGuardPolicy.REMOVE,
    }),
    "ethos_u.compat.QuantizeInfConfig": (infinities, {"neg_inf": -1.0, "pos_inf": 1.0}),
    "ethos_u.compat.create_partitioner": (arm_partitioner, {"additional_checks": [DontPartition("linear")]}),
    "nxp.passes.QuantizeFusedConvBnBiasAtenPass": (said(QuantizeFusedConvBnBiasAtenPass), {
        "default_zero_bias": True, "symmetric_quant": True,
    }),
    "qualcomm.compat.QnnQuantizer": (
        lambda **options: (said(qnn.QnnQuantizer)(**options), quantizer_of(_sixteen_bits)(**options)),
        {"backend": GPU, "soc_model": "SM8350", "strict": False},
    ),
    "qualcomm.compat.get_ptq_per_channel_quant_config": (per_channel, {
        "act_dtype": torch.uint16, "weight_dtype": torch.float32,
    }),
    "qualcomm.compat.to_edge_transform_and_lower_to_qnn": (lowered_to_qnn, {
        "constant_methods": {"length": 3}, "dynamic_shapes": ({2: torch.export.Dim.AUTO},), "dep_table": {Doubled: []},
        "passes_job": PASSES, "skip_node_id_set": {"linear"}, "skip_node_op_set": {"aten.linear.default"},
        "skip_mutable_buffer": True, "convert_linear_to_conv2d": True,
    }),
    "qualcomm.export_utils.QnnConfig": (config, {
        "direct_build_folder": "x", "backend": "gpu", "target": "aarch64-oe-linux-gcc-9.3", "online_prepare": True,
        "shared_buffer": True, "dump_intermediate_outputs": True, "profile_level": 2, "host": "h",
        "skip_delegate_node_ids": "linear", "skip_delegate_node_ops": "aten.linear.default", "compile_only": True,
        "pre_gen_pte": "folder", "skip_push": True, "seed": 7, "htp_performance_mode": 1,
    }),
    "qualcomm.export_utils.SimpleADB": (adb, {"error_only": True, "runner": "mine"}),
    "qualcomm.export_utils.build_executorch_binary": (binary, {
        "quant_dtype": QuantDtype.use_8a8w, "custom_quantizer": export_utils.make_quantizer(),
        "metadata": {"length": 3}, "qnn_intermediate_debugger": object(), "passes_job": PASSES,
        "passes_dependency": {Doubled: []}, "qat_training_data": [bench.X], "op_package_options": object(),
    }),
    "qualcomm.export_utils.generate_inputs": (inputs, {"inputs": None, "prefix_input_filename": "a"}),
    "qualcomm.export_utils.make_quantizer": (quantizer_of(export_utils.make_quantizer), SCHEMES),
    "qualcomm.script_helpers.get_qnn_pass_manager_cls": (
        script_helpers.get_qnn_pass_manager_cls, {"backend_type": GPU},
    ),
    "xnnpack.compat.get_transform_passes": (xnnpack.get_transform_passes, {"additional_passes": [_without_relu]}),
    "xnnpack.compat.get_xnnpack_edge_compile_config": (xnnpack_config, {"skip_dim_order": True}),
    "xnnpack.compat.get_xnnpack_executorch_backend_config": (
        xnnpack.get_xnnpack_executorch_backend_config, {"additional_passes": [_without_relu]},
    ),
}  # fmt: skip

_PHONE = "of a phone: tests/compat/test_qualcomm_scripts.py::test_a_script_runs_on_the_phone_that_it_names"
_SCRIPT = "scripts read it; nothing here does"
# Words of the error, where it has neither the option's name nor the value.
ABOUT: dict[str, tuple[str, ...]] = {}
EXEMPT = {
    "nxp.passes.QuantizeFusedConvBnBiasAtenPass.exported_program": "the pass reads the module that it is called with",
    "qualcomm.compat.to_edge_transform_and_lower_to_qnn.generate_etrecord": "get_etrecord of the program always works",
    "qualcomm.export_utils.QnnConfig.build_folder": _PHONE,
    "qualcomm.export_utils.QnnConfig.device": _PHONE,
    "qualcomm.export_utils.QnnConfig.enable_x86_64": "without a device, programs run on this machine",
    "qualcomm.export_utils.QnnConfig.ci": _SCRIPT,
    "qualcomm.export_utils.QnnConfig.ip": _SCRIPT,
    "qualcomm.export_utils.QnnConfig.port": _SCRIPT,
    "qualcomm.export_utils.make_quantizer.soc_model": "as that of QnnQuantizer",
    "qualcomm.export_utils.setup_common_args_and_variables.parser": "the parser that gets the options",
}
FLIPS = sorted(f"{path}.{name}" for path, (_, values) in BENCHES.items() for name in values)


def _sixteen_bits(**options: Any) -> Any:
    quantizer = qnn.QnnQuantizer(**options)
    quantizer.set_default_quant_config(QuantDtype.use_16a16w)  # which older chips do not have
    return quantizer


def test_every_option_has_an_entry() -> None:
    assert len(OPTIONS) > 60
    assert sorted(set(OPTIONS) - set(FLIPS) - set(EXEMPT)) == []
    assert sorted({*FLIPS, *EXEMPT} - set(OPTIONS)) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("option", FLIPS)
def test_an_option_makes_a_difference(option: str) -> None:
    path, _, name = option.rpartition(".")
    run, values = BENCHES[path]
    without = run()
    try:
        changed = run(**{name: values[name]})
    except EdgewrightError as error:
        bench.require_about(error, name, values[name], *ABOUT.get(option, ()))
        return
    assert changed != without, f"{option}={values[name]!r} makes no difference"


@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("push", {"backends": ["gpu"]}, "backends"),
        ("push", {"init_env": False}, "init_env"),
        ("pull", {"host_output_path": "", "device_output_path": "there"}, "device_output_path"),
    ],
)
def test_arguments_of_a_run_without_effect_are_logged(
    method: str, arguments: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    run = export_utils.SimpleADB(export_utils.QnnConfig("SM8650"), "m.pte", "folder")
    with bench.logged(lines):
        getattr(run, method)(**arguments)
    assert any(line.startswith(name) and "is not used" in line for line in lines)

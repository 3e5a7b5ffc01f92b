"""Names from closed sets that were given wrongly: each error lists what there is, or hints at the nearest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from edgewright.api.recipe import apply_recipe, as_recipe, config_of
from edgewright.backends import find_partitioner
from edgewright.backends.ethos_u import EthosUCompileSpec
from edgewright.backends.nxp.target import NeutronTargetSpec
from edgewright.backends.qualcomm.delegate import why_twin
from edgewright.backends.qualcomm.schemes import get_qnn_quantization_config
from edgewright.backends.qualcomm.target import chipset
from edgewright.backends.samsung.quantizer import parse_precision
from edgewright.backends.samsung.target import gen_samsung_backend_compile_spec
from edgewright.backends.targets import find_target
from edgewright.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
from edgewright.engine import isa
from edgewright.errors import EdgewrightError, UsageError
from edgewright.frontend.model_spec import load_object
from edgewright.hints import did_you_mean
from edgewright.ir.dtypes import to_scalar_type
from edgewright.lowering.kernel_resolution import kernel_set
from edgewright.program.methods import check_methods
from edgewright.runtime import Runtime
from tests.cli.cli import GOLDEN, Cli

QUANTIZER = XNNPACKQuantizer()


def _method() -> object:
    return Runtime.get().load_program(GOLDEN / "conv_relu_fp32_portable.pte").load_method("forwrd")


def _module() -> None:
    apply_recipe(QUANTIZER, as_recipe({"modules": {"hed": "float"}}, None), ["body", "head"], "xnnpack")


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "target": (lambda: find_target("xnpack"), "xnnpack"),
    "target of a backend": (lambda: find_target("ethos_u:ethos-u55-64x"), "ethos-u55-64"),
    "backend": (lambda: find_partitioner("qualcom"), "qualcomm"),
    "SoC": (lambda: chipset("SM865O"), "SM8650"),
    "scheme": (lambda: get_qnn_quantization_config("use_8a8w8"), "use_8a8w"),  # type: ignore[arg-type]
    "chip": (lambda: gen_samsung_backend_compile_spec("E99555"), "E9955"),
    "performance": (lambda: gen_samsung_backend_compile_spec("E9955", "high"), "HIGH_PERFORMANCE"),  # type: ignore[arg-type]
    "precision": (lambda: parse_precision("a8w8"), "A8W8"),
    "Neutron target": (lambda: NeutronTargetSpec("imxrt7oo"), "imxrt700"),
    "accelerator": (lambda: EthosUCompileSpec("ethos-u55-129"), "ethos-u55-128"),
    "system": (lambda: EthosUCompileSpec("ethos-u55-128", system_config="Ethos_U55_High"), "Ethos_U55_High_End"),
    "memory mode": (lambda: EthosUCompileSpec("ethos-u55-128", memory_mode="shared_sram"), "Shared_Sram"),
    "Vela's option": (lambda: EthosUCompileSpec("ethos-u55-128", extra_flags=["--optimize=Size"]), "--optimise"),
    "Vela's choice": (lambda: EthosUCompileSpec("ethos-u55-128", extra_flags=["--optimise=size"]), "Size"),
    "XNNPACK's config": (lambda: XnnpackPartitioner(configs=["AddsConfig"]), "AddConfig"),
    "dtype": (lambda: to_scalar_type("float128"), "float"),
    "runtime": (lambda: kernel_set("weel"), "wheel"),
    "methods": (lambda: check_methods("memory", {"fowrard": 1}, {"forward"}), "forward"),
    "method": (_method, "forward"),
    "preset": (lambda: config_of(QUANTIZER, "int88", "xnnpack"), "int8"),
    "recipe's key": (lambda: as_recipe({"quantise": "int8"}, None), "quantize"),
    "recipe's target": (lambda: as_recipe({"targets": {"ethos-u55": {}}}, None), "ethos-u55-32"),
    "recipe's module": (_module, "head"),
    "operator": (lambda: QUANTIZER.set_operator_type("softmx", None), "softmax"),
    "model": (lambda: load_object("torch.nn:Linaer"), "Linear"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_the_nearest_is_named(what: str) -> None:
    call, meant = WRONG[what]
    with pytest.raises(EdgewrightError) as raised:
        call()
    assert f"Did you mean {meant}" in raised.value.remedy


@pytest.mark.parametrize("what", ["EDGEWRIGHT_CPU", "EDGEWRIGHT_QNN"])
def test_so_it_is_for_variables(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"EDGEWRIGHT_CPU": isa.host_isa, "EDGEWRIGHT_QNN": why_twin}[what]
    meant = (isa.ARM_LEVELS if isa.is_aarch64() else isa.X86_LEVELS)[0] if what == "EDGEWRIGHT_CPU" else "twin"
    monkeypatch.setenv(what, meant + "s")
    with pytest.raises(
        EdgewrightError, match=rf"must be one of [^;]*{meant}[^;]*; got {meant}s\n  Did you mean {meant}"
    ):
        call()


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["compil", "m.pte"], "compile"),
        (["inspect", "m.pte", "--jsn"], "--json"),
        (["bench", "m.pte", "--secs=3"], "--seconds"),
        (["completion", "zhs"], "zsh"),
        (["run", GOLDEN / "conv_relu_fp32_portable.pte", "--method", "foward"], "forward"),
        (["compile", "m:n", "-o", "m.pte", "--backend", "xnpack"], "xnnpack"),
    ],
)
def test_so_it_is_for_commands_and_options(
    arguments: list[object], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Cli(capsys)(*arguments)
    assert done.code == 2
    assert f"\n  Did you mean {meant}?" in done.err


def test_what_is_like_nothing_gets_no_hint() -> None:
    assert did_you_mean("tpu", ["xnnpack", "nxp"]) == ""
    assert did_you_mean("", ["xnnpack"]) == ""
    assert did_you_mean(torch.float32, ["forward"]) == ""
    assert did_you_mean("x" * 100_000, ["x" * 50]) == ""


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("accuracy", "Write accuracy:NAME, with the name of the function in it."),
        ("metrics/net.py:accuracy", "Write metrics.net:accuracy."),
        ("my-metrics:accuracy", ""),
        ("scores.bin", ""),
    ],
)
def test_a_function_is_not_advised_as_a_model(text: str, remedy: str) -> None:
    """Metrics and calibration data are named as models are; where the file is, they differ."""
    with pytest.raises(UsageError) as raised:
        load_object(text)
    assert raised.value.remedy == remedy

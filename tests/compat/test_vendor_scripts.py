"""Scripts in the manner of ExecuTorch's examples for Samsung and NXP, with stand-ins for the vendors' compilers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.formats.pte_reader import read_program
from edgewright.runtime import Runtime
from edgewright.runtime.metadata import TensorInfo
from tests.backends.samsung.standin_sdk import build_sdk

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "tests" / "backends" / "nxp" / "standin"
SAMSUNG = """
import logging, sys, torch
from executorch.backends.samsung.partition.enn_partitioner import EnnPartitioner
from executorch.backends.samsung.quantizer import Precision
from executorch.backends.samsung.serialization.compile_options import gen_samsung_backend_compile_spec, PerformanceMode
from executorch.backends.samsung.utils.export_utils import quantize_module, to_edge_transform_and_lower_to_enn
from executorch.exir import ExecutorchBackendConfig
from executorch.extension.export_util.utils import save_pte_program

torch.manual_seed(0)
layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)]
model = torch.nn.Sequential(*layers).eval()
inputs = [(torch.randn(1, 3, 8, 8),) for _ in range(4)]
compile_specs = [gen_samsung_backend_compile_spec("E9955", PerformanceMode.DEFAULT)]
if sys.argv[1] == "A8W8":
    model = quantize_module(model, inputs[0], inputs, getattr(Precision, sys.argv[1]))
edge = to_edge_transform_and_lower_to_enn(model, inputs[0], compile_specs=compile_specs)
edge = edge.to_backend(EnnPartitioner(compile_specs))
program = edge.to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=True))
print(save_pte_program(program, "net", "."))
"""


NXP = """
import executorch.extension.pybindings.portable_lib
import executorch.kernels.quantized
import torch
from executorch.backends.nxp.backend.neutron_target_spec import NeutronTargetSpec
from executorch.backends.nxp.edge_passes.neutron_edge_pass_manager import NeutronEdgePassManager
from executorch.backends.nxp.edge_passes.remove_additional_quantize_dequantize_nodes_pass import (
    RemoveAdditionalQDQClustersPass,
)
from executorch.backends.nxp.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from executorch.backends.nxp.neutron_partitioner import NeutronPartitioner
from executorch.backends.nxp.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from executorch.backends.nxp.quantizer.neutron_quantizer import NeutronQuantizer
from executorch.backends.nxp.quantizer.utils import calibrate_and_quantize
from executorch.devtools.visualization.visualization_utils import visualize_with_clusters
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.extension.export_util import save_pte_program

torch.manual_seed(0)
layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)]
example = (torch.randn(1, 3, 8, 8),)
module = torch.export.export(torch.nn.Sequential(*layers).eval(), example, strict=True).module()
target = NeutronTargetSpec(target="imxrt700")
module = calibrate_and_quantize(module, [example] * 4, NeutronQuantizer(target, is_qat=False))
spec = generate_neutron_compile_spec("imxrt700", operators_not_to_delegate=[], use_profiling=False)
edge = to_edge_transform_and_lower(
    torch.export.export(module, example, strict=True),
    transform_passes=NeutronEdgePassManager(),
    generate_etrecord=False,
    partitioner=[NeutronPartitioner(spec, target, post_quantization_state_dict=module.state_dict())],
    compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=core_aten_ops_exception_list),
)
edge = edge.transform([RemoveIOQuantOpsPass(edge_program_manager=edge)])
edge = edge.transform(NeutronEdgePassManager([RemoveAdditionalQDQClustersPass()]))
program = edge.to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=False))
print(save_pte_program(program, "net"))
"""


def run(folder: Path, script: str, *arguments: str, **environment: str) -> list[str]:
    """The delegates of the program that a script saves. Options before the script's name are the command's."""
    (folder / "export.py").write_text(script)
    options = [a for a in arguments if a == "--simulate-only"]
    words = [sys.executable, "-m", "edgewright.compat", *options, "export.py", *arguments[len(options) :]]
    done = subprocess.run(
        words, cwd=folder, text=True, timeout=300, capture_output=True, check=False, env=os.environ | environment
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["net.pte"]), done.stderr
    (plan,) = read_program(folder / "net.pte").execution_plan
    return [d.id for d in plan.delegates]


@pytest.mark.slow
def test_nxp(tmp_path: Path) -> None:
    assert run(tmp_path, NXP, PYTHONPATH=f"{STANDIN}:{ROOT}") == ["NeutronBackend"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", [pytest.param("float", marks=pytest.mark.slow), "A8W8"])
def test_samsung(precision: str, tmp_path: Path) -> None:
    sdk = build_sdk(tmp_path / "sdk")
    assert run(tmp_path, SAMSUNG, precision, EXYNOS_AI_LITECORE_ROOT=str(sdk)) == ["EnnBackend"]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "argument"), [(NXP, ""), (SAMSUNG, "A8W8"), (SAMSUNG, "float")])
def test_without_a_compiler(script: str, argument: str, tmp_path: Path) -> None:
    """The program runs here, and says that it is for this machine only."""
    (backend,) = run(tmp_path, script, "--simulate-only", argument, EXYNOS_AI_LITECORE_ROOT="", PYTHONPATH=str(ROOT))
    assert backend == ("NeutronBackend" if script == NXP else "EnnBackend")
    assert b"simulation only" in (tmp_path / "net.pte").read_bytes()
    method = Runtime.get().load_program(tmp_path / "net.pte").load_method("forward")
    (info,) = method.metadata.inputs
    assert isinstance(info, TensorInfo)
    assert len(method.execute([np.ones(info.shape, info.dtype)])) == 1

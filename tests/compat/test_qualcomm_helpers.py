"""Helpers of Qualcomm's example scripts: layers as convolutions, passes of a script's own, drawings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from edgewright.backends.qualcomm.compat import to_edge_transform_and_lower_to_qnn
from edgewright.backends.qualcomm.export_utils import QnnConfig, build_executorch_binary
from edgewright.backends.qualcomm.qnn.info import compiler_settings
from edgewright.backends.qualcomm.script_helpers import (
    QCOM_PASS_ACTIVATE_KEY,
    QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY,
    active_passes,
    convert_linear_to_conv2d,
    draw_graph,
    dump_context_from_pte,
    get_qnn_pass_manager_cls,
)
from edgewright.backends.qualcomm.target import generate_htp_compiler_spec, generate_qnn_executorch_compiler_spec
from edgewright.errors import UsageError


@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 8), (1, 2, 3, 8), (8,)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_as_convolutions(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6, bias=bias), torch.nn.Sequential(torch.nn.Linear(6, 3))).eval()
    x = torch.randn(shape)
    wanted = model(x)
    converted = convert_linear_to_conv2d(model)
    assert not any(isinstance(m, torch.nn.Linear) for m in converted.modules())
    assert torch.allclose(converted(x), wanted, atol=1e-6)


class Doubled:
    """A pass: results of relu are doubled."""

    def __init__(self, times: float = 2.0) -> None:
        self.times = times

    def __call__(self, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        for node in list(module.graph.nodes):
            if node.target is torch.ops.aten.relu.default:
                with module.graph.inserting_after(node):
                    made = module.graph.call_function(torch.ops.aten.mul.Tensor, (node, self.times))
                made.meta.update(val=node.meta["val"])
                node.replace_all_uses_with(made, delete_user_cb=lambda user, made=made: user is not made)
        module.recompile()
        return module


def test_passes_of_a_script(tmp_path: Path) -> None:
    jobs = get_qnn_pass_manager_cls().get_capture_program_passes()
    jobs[Doubled] = {QCOM_PASS_ACTIVATE_KEY: True, QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY: {"times": 3.0}}
    jobs[Path] = {QCOM_PASS_ACTIVATE_KEY: False}
    (made,) = active_passes(jobs)
    assert made.times == 3.0
    with pytest.raises(UsageError, match="ExecuTorch's own, which"):
        jobs[type("FoldQDQ", (), {})][QCOM_PASS_ACTIVATE_KEY] = True
    specs = generate_qnn_executorch_compiler_spec("SM8650", generate_htp_compiler_spec(True))
    x = torch.randn(1, 8)
    manager: Any = to_edge_transform_and_lower_to_qnn(torch.nn.ReLU(), (x,), specs, passes_job=jobs)
    manager.to_executorch().save(tmp_path / "m.pte")
    draw_graph("m", tmp_path, manager.exported_program().graph_module)
    assert "executorch_call_delegate" in (tmp_path / "m.svg").read_text()
    (context,) = dump_context_from_pte(tmp_path / "m.pte")
    assert Path(context).name == "forward_0.bin" and compiler_settings(Path(context).read_bytes())
    from edgewright.runtime import Runtime

    (found,) = Runtime.get().load_program(tmp_path / "m.pte").load_method("forward").execute([x.numpy()])
    assert torch.allclose(torch.as_tensor(found), 3 * x.relu(), atol=1e-2)


@pytest.mark.parametrize("name", ["qnn_intermediate_debugger", "qat_training_data", "op_package_options"])
def test_what_is_not_supported_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: is not supported"):
        build_executorch_binary(torch.nn.ReLU(), QnnConfig("SM8650"), "m", [(torch.ones(1),)], **{name: []})

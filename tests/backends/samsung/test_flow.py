"""From a module to a file and its run: the page's code, rejections in words, order of results, manifest, host twin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from edgewright import Runtime
from edgewright.backends.samsung import (
    EnnPartitioner,
    gen_samsung_backend_compile_spec,
    get_edge_compile_config,
    to_edge_transform_and_lower_to_enn,
)
from edgewright.errors import MissingDataError, UsageError
from edgewright.formats.pte_reader import read_program
from edgewright.program import manifest
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower
from tests.backends.samsung.networks import mixed, quantized

SIMULATED = [gen_samsung_backend_compile_spec("E9955", simulate_only=True)]


def lowered(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    return to_edge_transform_and_lower_to_enn(model, inputs, compile_specs=SIMULATED)


def results(program: Any, *inputs: torch.Tensor) -> list[Any]:
    method = Runtime.get().load_program(program).load_method("forward")
    return [np.asarray(a) for a in method.execute([x.numpy() for x in inputs])]


def test_the_pages_way_runs_to_the_end(installed: Path, tmp_path: Path) -> None:
    """Beside imports, names of files and the network, these are the page's lines."""
    mobilenet_v2, sample_inputs = mixed()
    chipset = "E9955"
    compile_specs = [gen_samsung_backend_compile_spec(chipset)]

    et_program = to_edge_transform_and_lower(
        torch.export.export(mobilenet_v2, sample_inputs),
        partitioner=[EnnPartitioner(compile_specs)],
    ).to_executorch()

    with open(tmp_path / "mv2_xnnpack.pte", "wb") as file:
        et_program.write_to_file(file)
    (plan,) = read_program(tmp_path / "mv2_xnnpack.pte").execution_plan
    assert [d.id for d in plan.delegates] == ["EnnBackend"] and not plan.operators


def test_without_its_twin_a_file_for_the_chip_says_what_is_missing(installed: Path, tmp_path: Path) -> None:
    model, inputs = mixed()
    edge = to_edge_transform_and_lower(
        torch.export.export(model, inputs), partitioner=[EnnPartitioner([gen_samsung_backend_compile_spec("E9955")])]
    )
    program = edge.to_executorch()
    with pytest.raises(MissingDataError, match="has no host twin"):
        results(program.buffer, *inputs)
    program.save(tmp_path / "m.pte")
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    assert np.abs(results(tmp_path / "m.pte", *inputs)[0] - wanted).max() < 1e-3


def test_results_keep_the_models_order_and_numbers_alone_their_shape() -> None:
    """Stock gives results in the order in which they are made."""

    class Several(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first = torch.relu(x)
            second = first + y
            return second, x * 2, first, second.mean((0, 1)), x

    model, inputs = Several(), (torch.randn(3, 4), torch.randn(3, 4))
    made = results(lowered(model, inputs).to_executorch().buffer, *inputs)
    wanted = [t.numpy() for t in model(*inputs)]
    assert [m.shape for m in made] == [w.shape for w in wanted]
    assert max(np.abs(m - w).max() for m, w in zip(made, wanted, strict=True)) < 5e-3


def test_channels_last_images_are_transposed_inside_the_delegate() -> None:
    model, _ = mixed()
    x = torch.randn(1, 3, 16, 16).to(memory_format=torch.channels_last)
    edge = lowered(model.to(memory_format=torch.channels_last), (x,))
    (plan,) = read_program(edge.to_executorch().buffer).execution_plan
    assert len(plan.delegates) == 1 and not plan.operators
    with torch.no_grad():
        wanted = model(x).numpy()
    assert np.abs(results(edge.to_executorch().buffer, x)[0] - wanted).max() < 1e-3


class _Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 2, ceil_mode=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(self.stem(x), (1, 1), value=1.0)
        x = F.avg_pool2d(x, 2, divisor_override=3)
        return torch.add(x, x, alpha=2).topk(2, 2)[0]


def test_every_refusal_says_rule_value_and_where() -> None:
    """Stock's lowering ends with an assertion for the first of these, or computes something else."""
    x = torch.randn(1, 3, 16, 16)
    edge = lowered(_Refused().eval(), (x,))
    report = edge.partition_reports["forward"]
    said = {v.operator: (v.module, *v.rejections) for v in report.rejected}
    assert said["max_pool2d"][0] == "stem.1" and said["max_pool2d"][1].endswith("ceil_mode False; got ceil_mode")
    assert said["pad"][1] == "padding must not be negative, and its value must be 0; got 1.0"
    assert said["avg_pool2d"][1] == "divisor_override must be the window size; got divisor 3"
    assert said["add"][1] == "alpha must be 1; got 2"
    assert said["topk"][1].startswith(
        "topk must be over the last dimension, with largest=True and sorted=True; got dim 2"
    )
    assert results(edge.to_executorch().buffer, x)[0].shape == (1, 4, 2, 4)


@pytest.mark.parametrize(("precision", "note"), [(None, ""), ("A16W16", "16-bit"), ("UA8W8", "unsigned")])
def test_the_manifest_says_that_a_file_is_for_this_machine_and_what_no_chip_is_known_to_take(
    precision: str | None, note: str
) -> None:
    model, inputs = mixed()
    made = model if precision is None else quantized(model, inputs, precision)
    program = read_program(lowered(made, inputs).to_executorch().buffer)
    found = manifest.read(program)
    assert found is not None
    (target,) = found["targets"]
    assert target.startswith("e9955 (simulation only: will not run on the chip") and note in target


def test_the_same_model_gives_the_same_bytes() -> None:
    model, inputs = mixed()
    first, second = (lowered(model, inputs).to_executorch().buffer for _ in range(2))
    assert first == second


def test_programs_run_without_torch(tmp_path: Path) -> None:
    model, inputs = mixed()
    lowered(quantized(model, inputs, "A8W8"), inputs).to_executorch().save(tmp_path / "m.pte")
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np; from edgewright import Runtime\n"
        "x = np.zeros((1, 3, 16, 16), np.float32)\n"
        "(y,) = Runtime.get().load_program('m.pte').load_method('forward').execute([x]); print(y.shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 5)\n"


def test_an_estimate_says_whose_it_is() -> None:
    model, inputs = mixed()
    (found,) = lowered(model, inputs).partition_reports["forward"].estimates
    assert (found["basis"], found["target"]) == (
        "Edgewright's analytic bound",
        "E9955",
    )
    by_kind = {layer["operator"]: layer for layer in found["layers"]}
    assert by_kind["DWCONV2D"]["macs"] == 8 * 8 * 8 * 9 and by_kind["FC"]["macs"] == 8 * 5
    assert found["cycles"] == sum(layer["cycles"] for layer in found["layers"]) > 0


def test_calls_that_lack_something_say_so() -> None:
    model, inputs = mixed()
    with pytest.raises(UsageError, match="compile_specs: is required"):
        to_edge_transform_and_lower_to_enn(model, inputs)
    assert get_edge_compile_config()._skip_dim_order
    embedded = lowered(model, inputs).to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    assert results(embedded.buffer, *inputs)[0].shape == (1, 5)

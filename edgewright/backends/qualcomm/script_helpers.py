"""Helpers of ExecuTorch's Qualcomm folder that example scripts call, on Edgewright's own graphs and files."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from edgewright.backends.qualcomm.blob import read_blob
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats.pte_reader import read_program

QCOM_PASS_ACTIVATE_KEY = "activate"
QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY = "args_kwargs_defaults"
_BACKEND = "QnnBackend"
_LINE, _CHARACTER, _EDGE = 18, 7.3, 12  # of a drawing, in pixels


class PassJobs(dict[Any, Any]):
    """Custom passes of a script, with their settings. ExecuTorch's passes are not needed, and cannot be set."""

    def __missing__(self, key: Any) -> Any:
        name = getattr(key, "__name__", str(key))
        remedy = "Leave it out: rows and layouts need no passes."
        raise UsageError(f"pass {name}", "is ExecuTorch's own, which Edgewright does not have", remedy=remedy)


class QnnPassManager:
    """ExecuTorch's pass manager, to which scripts add custom passes."""

    @classmethod
    def get_capture_program_passes(cls) -> PassJobs:
        """No passes; custom passes run before lowering."""
        return PassJobs()

    @classmethod
    def get_passes_dependency_for_capture_program(cls) -> dict[Any, Any]:
        """No dependencies."""
        return {}


def get_qnn_pass_manager_cls(backend_type: Any = None) -> type[QnnPassManager]:
    """The one of the HTP, the only backend here."""
    if backend_type is not None and getattr(backend_type, "name", backend_type) != "kHtpBackend":
        name = getattr(backend_type, "name", backend_type)
        raise UsageError("backend_type", "must be kHtpBackend: Edgewright compiles for the HTP", value=name)
    return QnnPassManager


class _Convolution(torch.nn.Module):
    """A linear layer as a 1x1 convolution over its rows."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(linear.in_features, linear.out_features, 1, bias=linear.bias is not None)
        with torch.no_grad():
            self.conv.weight.copy_(linear.weight[:, :, None, None])
            if self.conv.bias is not None:
                self.conv.bias.copy_(linear.bias)
        self.train(linear.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
        passes: torch.Tensor = self.conv(rows)
        return passes.permute(0, 2, 3, 1).reshape(*x.shape[:-1], self.conv.out_channels)


def convert_linear_to_conv2d(module: torch.nn.Module) -> torch.nn.Module:
    """Replace linear layers with 1x1 convolutions, in place."""
    if isinstance(module, torch.nn.Linear):
        return _Convolution(module)
    for name, child in list(module.named_children()):
        setattr(module, name, convert_linear_to_conv2d(child))
    return module


def dump_context_from_pte(pte_path: str | os.PathLike[str]) -> list[str]:
    """Write the context binaries of a program next to it as ``method_number.bin``; returns their paths."""
    program, paths = read_program(pte_path), []
    for plan in program.execution_plan:
        for number, delegate in enumerate(plan.delegates):
            if delegate.id == _BACKEND:
                path = Path(pte_path).parent / f"{Path(plan.name).name}_{number}.bin"
                write_file(path, [read_blob(program.blob(delegate)).context])
                paths.append(str(path))
    return paths


def draw_graph(title: str, path: str | os.PathLike[str], graph_module: Any) -> None:
    """Write ``title.svg`` with one line per node: operator, operands and shape."""
    lines = [_node_text(node) for node in graph_module.graph.nodes]
    width, height = int(max(map(len, lines)) * _CHARACTER) + 2 * _EDGE, (len(lines) + 1) * _LINE
    texts = "".join(
        f'<text x="{_EDGE}" y="{(i + 1) * _LINE}">{html.escape(line)}</text>\n' for i, line in enumerate(lines)
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace"'
    write_file(Path(path) / f"{title}.svg", [f'{head} font-size="12">\n{texts}</svg>\n'.encode()])


def _node_text(node: Any) -> str:
    value = node.meta.get("val")
    shape = f" -> {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}" if hasattr(value, "shape") else ""
    operands = ", ".join(str(operand) for operand in node.all_input_nodes)
    target = str(node.target) if node.op == "call_function" else node.op
    return f"{node.name} = {target}({operands}){shape}"


def active_passes(jobs: Mapping[Any, Any] | None) -> list[Any]:
    """Instantiate the custom passes that a script activated."""
    passes = []
    for kind, job in (jobs or {}).items():
        if str(getattr(kind, "__module__", "")).startswith("executorch.backends.qualcomm"):
            raise UsageError(f"pass {kind.__name__}", "is ExecuTorch's own", remedy="Leave it out.")
        if job.get(QCOM_PASS_ACTIVATE_KEY):
            passes.append(kind(**job.get(QCOM_PASS_ARGS_KWARGS_DEFAULTS_KEY, {})))
    return passes

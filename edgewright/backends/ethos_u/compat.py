"""Names of ExecuTorch's Arm folder that its scripts import."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)

from edgewright.backends.ethos_u.partitioner import EthosUPartitioner, check_spec
from edgewright.backends.ethos_u.quantizer import EthosUQuantizer

_ARGUMENTS = "Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype"


def create_partitioner(compile_spec: Any, additional_checks: Sequence[Any] | None = None) -> EthosUPartitioner:
    """The partitioner for a compile spec."""
    return EthosUPartitioner(check_spec(compile_spec), additional_checks or ())


def create_quantizer(compile_spec: Any) -> EthosUQuantizer:
    """The quantizer for a compile spec."""
    return EthosUQuantizer(check_spec(compile_spec))


class ReplaceQuantNodesPass:
    """Replaces quantize and dequantize outside the NPU by the kernels of Arm's Cortex-M runtime."""

    def __call__(self, graph_module: Any) -> Any:
        kernels = _cortex_m()
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and node.target in kernels and _fits(node):
                node.target = kernels[node.target]
                node.kwargs = {}
        graph_module.recompile()
        return graph_module


def _fits(node: Any) -> bool:
    """True if the Cortex-M kernels support the node: int8 or int16, float32 output."""
    low, high, dtype = node.args[3:6]
    limits = torch.iinfo(dtype)
    float32_output = node.kwargs.get("out_dtype") in (None, torch.float32)
    return float32_output and dtype in (torch.int8, torch.int16) and limits.min <= low and high <= limits.max


@cache
def _cortex_m() -> dict[Any, Any]:
    """The Cortex-M operator of each torch operator; registered unless ExecuTorch has done it."""
    kernels: dict[Any, Any] = {}
    for name in ("quantize_per_tensor", "dequantize_per_tensor"):
        reference = getattr(torch.ops.quantized_decomposed, name).default
        if not hasattr(torch.ops.cortex_m, name):
            torch.library.define(f"cortex_m::{name}", f"({_ARGUMENTS}) -> Tensor")
            torch.library.define(f"cortex_m::{name}.out", f"({_ARGUMENTS}, *, Tensor(a!) out) -> Tensor(a!)")
            torch.library.impl(f"cortex_m::{name}", "CompositeExplicitAutograd", reference)
            torch.library.register_fake(f"cortex_m::{name}", reference)
        kernels[reference] = getattr(torch.ops.cortex_m, name).default
    return kernels

"""Names of ExecuTorch's Arm folder that its scripts import."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (declares the operators)

from edgewright.backends.ethos_u.partitioner import EthosUPartitioner, check_spec
from edgewright.backends.ethos_u.quantizer import EthosUQuantizer
from edgewright.errors import UsageError

_ARGUMENTS = "Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype"


def create_partitioner(compile_spec: Any, additional_checks: Sequence[Any] | None = None) -> EthosUPartitioner:
    """The partitioner for a compile spec."""
    return EthosUPartitioner(check_spec(compile_spec), additional_checks or ())


def create_quantizer(compile_spec: Any) -> EthosUQuantizer:
    """The quantizer for a compile spec."""
    return EthosUQuantizer(check_spec(compile_spec))


class SoftmaxDecompositionConfig(enum.Enum):
    """How softmax is decomposed; numbered as in ExecuTorch."""

    MASKED = 1
    STABLE = 2


class LeakyReLULoweringConfig(enum.Enum):
    """What a quantized leaky ReLU becomes."""

    TABLE = 1
    DECOMPOSE = 2


class SDPASafeSoftmaxGuardPolicy(enum.Enum):
    """What becomes of the guard for rows of attention that are masked completely."""

    PRESERVE = 1
    REMOVE = 2
    REMOVE_WHEN_PROVEN = 3


@dataclass
class QuantizeInfConfig:
    """What infinities become before they are quantized."""

    neg_inf: float = -256.0
    pos_inf: float = 255.0


@dataclass
class ArmPassPipelineConfig:
    """ExecuTorch's choices of its passes. None changes what is compiled here: a compile spec that gets one says why."""

    softmax: SoftmaxDecompositionConfig = SoftmaxDecompositionConfig.MASKED
    leaky_relu: LeakyReLULoweringConfig = LeakyReLULoweringConfig.DECOMPOSE
    quantize_inf: QuantizeInfConfig = field(default_factory=QuantizeInfConfig)
    sdpa_safe_softmax_guard: SDPASafeSoftmaxGuardPolicy = SDPASafeSoftmaxGuardPolicy.PRESERVE

    def is_default(self) -> bool:
        """True if nothing was chosen."""
        return self == ArmPassPipelineConfig()

    def differences(self) -> list[str]:
        """Every choice that is not the default, with the reason why it makes no difference. Raise for a value of
        another type."""
        sentences = []
        for item in fields(self):
            value, default = getattr(self, item.name), getattr(ArmPassPipelineConfig(), item.name)
            if not isinstance(value, type(default)):
                rule = f"must be a {type(default).__name__}"
                raise UsageError(f"ArmPassPipelineConfig: {item.name}", rule, value=value)
            if value != default:
                name = getattr(value, "name", value)
                sentences.append(f"{item.name}={name} makes no difference: {_WITHOUT_CHOICE[item.name]}")
        return sentences


# What happens here, whatever is chosen.
_WITHOUT_CHOICE = {
    "softmax": "the maximum is always subtracted, and masks are added to the scores",
    "leaky_relu": "a quantized leaky ReLU is a table, the same for both",
    "quantize_inf": "infinite masks become finite, and do not widen the range that calibration finds",
    "sdpa_safe_softmax_guard": "rows that are masked completely are zero, as in torch",
}


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

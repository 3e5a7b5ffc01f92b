"""Convenience functions: quantize a module, and export and lower a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx

import edgewright.quantize  # noqa: F401  (before torchao, which logs when it is imported)

# isort: split
from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

from edgewright.backends.samsung.partitioner import EnnPartitioner
from edgewright.backends.samsung.quantizer import EnnQuantizer, Precision
from edgewright.backends.samsung.target import REMEDY
from edgewright.errors import UsageError
from edgewright.program.config import EdgeCompileConfig
from edgewright.program.edge import EdgeProgramManager, to_edge_transform_and_lower
from edgewright.quantize.batching import calibrate
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e


def get_edge_compile_config() -> EdgeCompileConfig:
    """Edge options for Exynos NPUs. Supported operators are never decomposed and need not be listed."""
    return EdgeCompileConfig(_skip_dim_order=True)


def quantize_module(
    module: torch.nn.Module, inputs: tuple[Any, ...], calibration_dataset: Iterable[tuple[Any, ...]],
    precision: Precision | str, is_per_channel: bool = True, is_qat: bool = False,
    train_fn: Callable[[fx.GraphModule], Any] | None = None,
) -> fx.GraphModule:  # fmt: skip
    """Quantize a module: calibrate it with a dataset or, with ``is_qat``, train it by ``train_fn``.

    With ``is_qat`` and without ``train_fn`` the dataset is run through the fake-quantized module.
    """
    quantizer = EnnQuantizer()
    quantizer.setup_quant_params(precision, is_per_channel, is_qat)
    exported: Any = torch.export.export(module, inputs).module()
    prepared: Any = prepare_qat_pt2e(exported, quantizer) if is_qat else prepare_pt2e(exported, quantizer, inputs)
    if train_fn is not None:
        if not is_qat:
            raise UsageError("train_fn", "is for quantization-aware training: is_qat=True")
        trained = train_fn(prepared)
        prepared = prepared if trained is None else trained
    calibrate(prepared, calibration_dataset)
    return convert_pt2e(prepared)


def to_edge_transform_and_lower_to_enn(
    module: torch.nn.Module, inputs: tuple[Any, ...], custom_pass_config: Any = None,
    compile_specs: Sequence[Any] | None = None,
) -> EdgeProgramManager:  # fmt: skip
    """Export and lower a module. ``custom_pass_config``: passes over the graph module, which run before lowering."""
    if compile_specs is None:
        raise UsageError("compile_specs", "is required", remedy=REMEDY)
    program = torch.export.export(module, inputs)
    passes, config = list(custom_pass_config or ()), get_edge_compile_config()
    return to_edge_transform_and_lower(program, passes, [EnnPartitioner(compile_specs)], compile_config=config)

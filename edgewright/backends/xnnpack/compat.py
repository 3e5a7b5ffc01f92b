"""Names of ExecuTorch's XNNPACK folder that scripts import and that need nothing here: lowering does all of it."""

from __future__ import annotations

from typing import Any

from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig


def get_transform_passes(additional_passes: list[Any] | None = None) -> list[Any]:
    """Only those given: rows and layouts need none before partitioning."""
    return list(additional_passes or ())


def get_xnnpack_edge_compile_config(skip_dim_order: bool = False) -> EdgeCompileConfig:
    """The options that ExecuTorch's scripts lower with."""
    return EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=skip_dim_order)


def get_xnnpack_executorch_backend_config(additional_passes: list[Any] | None = None) -> ExecutorchBackendConfig:
    """The options that ExecuTorch's scripts make a file with."""
    return ExecutorchBackendConfig(passes=list(additional_passes or ()), extract_delegate_segments=True)

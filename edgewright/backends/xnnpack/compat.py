"""Functions of ExecuTorch's XNNPACK package that scripts import; lowering here needs no such configuration."""

from __future__ import annotations

from typing import Any

from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig


def get_transform_passes(additional_passes: list[Any] | None = None) -> list[Any]:
    """``additional_passes`` unchanged: no backend passes run before partitioning."""
    return list(additional_passes or ())


def get_xnnpack_edge_compile_config(skip_dim_order: bool = False) -> EdgeCompileConfig:
    """The edge options used by ExecuTorch's scripts."""
    return EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=skip_dim_order)


def get_xnnpack_executorch_backend_config(additional_passes: list[Any] | None = None) -> ExecutorchBackendConfig:
    """The serialization options used by ExecuTorch's scripts."""
    return ExecutorchBackendConfig(passes=list(additional_passes or ()), extract_delegate_segments=True)

"""``executorch.extension.export_util``: export, lower and save in one call."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch

from edgewright.program.config import EdgeCompileConfig, ExecutorchBackendConfig
from edgewright.program.edge import EdgeProgramManager, ExecutorchProgramManager, to_edge

log = logging.getLogger(__name__)


def export_to_edge(
    model: torch.nn.Module, example_inputs: tuple[Any, ...], *, example_kwarg_inputs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None, edge_constant_methods: dict[str, Any] | None = None,
    edge_compile_config: EdgeCompileConfig | None = None, strict: bool = True, verbose: bool = True,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:  # fmt: skip
    """Export a module to an edge program manager."""
    exported = torch.export.export(
        model, example_inputs, example_kwarg_inputs, dynamic_shapes=dynamic_shapes, strict=strict
    )
    config = edge_compile_config or EdgeCompileConfig(_skip_dim_order=True)
    manager = to_edge(exported, edge_constant_methods, config, generate_etrecord)
    if verbose:
        log.info("exported graph:\n%s", manager)
    return manager


def export_to_exec_prog(
    model: torch.nn.Module, example_inputs: tuple[Any, ...], *, backend_config: ExecutorchBackendConfig | None = None,
    **options: Any,
) -> ExecutorchProgramManager:  # fmt: skip
    """Export and lower a module to a program."""
    return export_to_edge(model.eval(), example_inputs, **options).to_executorch(backend_config)


def save_pte_program(prog: ExecutorchProgramManager, model_name: str, output_dir: str | os.PathLike[str] = "") -> str:
    """Write a program and its external data, and return the path. ``.pte`` is appended if missing.

    A program that only a device can run gets its host twin next to it.
    """
    path = Path(model_name) if model_name.endswith(".pte") else Path(output_dir) / f"{model_name}.pte"
    prog.save(path)
    prog.write_tensor_data_to_file(output_dir or path.parent)
    log.info("saved %s", path)
    return str(path)

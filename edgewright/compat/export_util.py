"""``executorch.extension.export_util``: export and lower in one call, and save."""

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
    """A module as a manager of its graph."""
    exported = torch.export.export(
        model, example_inputs, example_kwarg_inputs, dynamic_shapes=dynamic_shapes, strict=strict
    )
    config = edge_compile_config or EdgeCompileConfig(_skip_dim_order=True)
    made = to_edge(exported, edge_constant_methods, config, generate_etrecord)
    if verbose:
        log.info("exported graph:\n%s", made)
    return made


def export_to_exec_prog(
    model: torch.nn.Module, example_inputs: tuple[Any, ...], *, backend_config: ExecutorchBackendConfig | None = None,
    **options: Any,
) -> ExecutorchProgramManager:  # fmt: skip
    """A module as a finished program."""
    return export_to_edge(model.eval(), example_inputs, **options).to_executorch(backend_config)


def save_pte_program(prog: ExecutorchProgramManager, model_name: str, output_dir: str | os.PathLike[str] = "") -> str:
    """Write a program, and its external data beside it; the path. ``.pte`` is added if the name lacks it.

    A program that a device alone can run has its host twin written beside it, too.
    """
    path = Path(model_name) if model_name.endswith(".pte") else Path(output_dir) / f"{model_name}.pte"
    prog.save(path)
    prog.write_tensor_data_to_file(output_dir or path.parent)
    log.info("saved %s", path)
    return str(path)

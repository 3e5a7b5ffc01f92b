"""A small module to compile, and what is checked of it: eager == our runtime == stock."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.frontend.tensors import to_array
from edgewright.program.config import EdgeCompileConfig
from edgewright.program.edge import to_edge_transform_and_lower


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass
class Case:
    """One module. ``inputs`` makes the arguments, given a size for every name in ``dims``.

    ``dynamic``: per argument, which dimension has which name. ``steps``: how often one loaded method is called in a
    row. ``factory``: ``module`` makes it.
    """

    name: str
    module: nn.Module | Callable[..., Any]
    inputs: Callable[..., tuple[Any, ...]]
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    dynamic: Any = None
    kwargs: Callable[[], dict[str, Any]] = dict
    factory: bool = False
    steps: int = 1
    rtol: float = 1e-4
    atol: float = 1e-5
    runtime: str = "wheel"  # of the oldest release that has kernels for it

    def make(self) -> nn.Module:
        """The module, with the same weights every time."""
        torch.manual_seed(zlib.crc32(self.name.encode()))
        module = self.module() if isinstance(self.module, type) or self.factory else self.module
        if isinstance(module, fx.GraphModule):  # exported ones have no modes
            return module
        for part in module.modules() if isinstance(module, nn.Module) else ():
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.running_mean is not None:
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2.0)
        return (module if isinstance(module, nn.Module) else Call(module)).eval()

    def arguments(self, sizes: Mapping[str, int], step: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Random arguments of these sizes."""
        torch.manual_seed(zlib.crc32(f"{self.name} {sorted(sizes.items())} {step}".encode()))
        return self.inputs(**sizes), self.kwargs()

    def points(self) -> list[dict[str, int]]:
        """Every dynamic dimension at its minimum, middle and maximum."""
        ranges = [(low, (low + high) // 2, high) for low, high in self.dims.values()]
        return [dict(zip(self.dims, sizes, strict=True)) for sizes in itertools.product(*ranges)]

    def export(self) -> ExportedProgram:
        """Export it at the middle of every range."""
        points = self.points()
        args, kwargs = self.arguments(points[len(points) // 2])
        module = self.make()
        shapes = self.dynamic
        if shapes is not None:
            named = {name: Dim(name, min=low, max=high) for name, (low, high) in self.dims.items()}
            shapes = _named(shapes, named)
            shapes = (shapes,) if isinstance(module, Call) else shapes
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)

    def expected(self, sizes: Mapping[str, int]) -> list[list[Any]]:
        """What eager torch gives, step by step."""
        module = self.make()
        with torch.no_grad():
            return [leaves(_called(module, *self.arguments(sizes, step))) for step in range(self.steps)]

    def calls(self, sizes: Mapping[str, int]) -> list[list[Any]]:
        """The inputs of each step, flat."""
        return [leaves(self.arguments(sizes, step)) for step in range(self.steps)]


def _called(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return module(*args, **kwargs)


def _named(tree: Any, dims: Mapping[str, Any]) -> Any:
    """Names replaced by Dims; ``2*n`` and ``n+1`` are derived from ``n``."""
    if isinstance(tree, str):
        return eval(tree, {}, dict(dims))
    if isinstance(tree, dict):
        return {key: _named(value, dims) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_named(item, dims) for item in tree)
    return tree


def leaves(tree: Any) -> list[Any]:
    """Arguments or results, flat, tensors as arrays."""
    return [_plain(leaf) for leaf in pytree.tree_leaves(tree)]


def _plain(leaf: Any) -> Any:
    return np.array(to_array(leaf), order="K") if isinstance(leaf, torch.Tensor) else leaf


def compile_exported(exported: ExportedProgram, runtime: str = "wheel") -> bytes:
    config = EdgeCompileConfig(runtime=runtime)
    return to_edge_transform_and_lower(exported, compile_config=config).to_executorch().buffer


def assert_same(given: Sequence[Any], wanted: Sequence[Any], case: Case, who: str) -> None:
    """Outputs that agree in number, type, shape and, within the case's tolerance, in value."""
    assert len(given) == len(wanted), f"{who}: {len(given)} outputs, not {len(wanted)}"
    for index, (have, want) in enumerate(zip(given, wanted, strict=True)):
        label = f"{who}: output {index}"
        if not isinstance(want, np.ndarray):
            assert have == want, label
            continue
        have = np.asarray(have)
        assert (have.dtype, have.shape) == (want.dtype, want.shape), label
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(have, want, err_msg=label)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(have.astype(wide), want.astype(wide), case.rtol, case.atol, err_msg=label)

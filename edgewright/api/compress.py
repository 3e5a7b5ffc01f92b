"""``edgewright.compress``: a model with pruned or clustered weights, which Vela stores in less memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from edgewright.api.data import MAX_SAMPLES, Call, load_calls
from edgewright.api.image_data import ImageOptions
from edgewright.errors import UsageError
from edgewright.frontend.eval_mode import eval_mode
from edgewright.hints import did_you_mean
from edgewright.quantize.compression import CompressedLayer, Compression, compress_weights, prunable

_MIN_CLUSTERS, _MAX_CLUSTERS = 4, 255


def compress(
    model: torch.nn.Module, inputs: Any = None, calibration: Any = None, *, sparsity: float = 0.0,
    clusters: int | None = None, exclude: Sequence[str] = (), samples: int = MAX_SAMPLES,
    images: ImageOptions | None = None,
) -> torch.nn.Module:  # fmt: skip
    """A copy of ``model`` in which the share ``sparsity`` of each layer's weights is zero, or the weights of each layer
    have at most ``clusters`` different values, or both.

    ``inputs`` and ``calibration``: as for ``compile``; the data decide which weights matter, and how the others
    compensate. ``exclude``: names of modules to leave unchanged. Depthwise convolutions are never changed.

    >>> import torch, edgewright as ew
    >>> net, x = torch.nn.Linear(8, 4), torch.randn(32, 8)
    >>> small = ew.compress(net, x, [x], sparsity=0.5)
    >>> int((small.weight == 0).sum())
    16
    """
    compression = make_compression({"sparsity": sparsity, "clusters": clusters, "exclude": exclude}, "compress")
    if inputs is None or calibration is None:
        rule = "needs example inputs and calibration data: compress(model, inputs, calibration, sparsity=0.5)"
        raise UsageError("compress", rule)
    example = _example(inputs)
    return compressed_copy(model, load_calls(calibration, example, samples, images), compression)[0]


def compressed_copy(
    model: Any, calls: Sequence[Call], compression: Compression
) -> tuple[torch.nn.Module, list[CompressedLayer]]:
    """A compressed copy of a model, and what became of its layers."""
    if not isinstance(model, torch.nn.Module):
        remedy = "Compress the nn.Module before torch.export."
        raise UsageError("compress", "is for models that are an nn.Module", value=type(model).__name__, remedy=remedy)
    names = dict(model.named_modules())
    for name in compression.exclude:
        if name not in names:
            raise UsageError("compress: exclude", "must name modules of the model", value=name,
                             remedy=did_you_mean(name, sorted(names)))  # fmt: skip
    if not prunable(model, compression.exclude):
        rule = "must have a linear layer or a convolution without groups"
        raise UsageError("compress: model", rule)
    small = copy.deepcopy(model)
    with eval_mode(small):
        layers = compress_weights(small, [partial(_call, call) for call in calls], compression)
    return small, layers


def make_compression(options: Mapping[str, Any], source: str) -> Compression:
    """A ``Compression`` from options by name, of a call or a recipe."""
    sparsity, clusters = options.get("sparsity", 0.0), options.get("clusters")
    exclude = options.get("exclude", ())
    if isinstance(sparsity, bool) or not isinstance(sparsity, int | float) or not 0 <= sparsity < 1:
        raise UsageError(f"{source}: sparsity", "must be a share from 0 to less than 1, such as 0.5", value=sparsity)
    if clusters is not None and (
        isinstance(clusters, bool) or not isinstance(clusters, int) or not _MIN_CLUSTERS <= clusters <= _MAX_CLUSTERS
    ):
        raise UsageError(f"{source}: clusters", f"must be from {_MIN_CLUSTERS} to {_MAX_CLUSTERS}", value=clusters)
    if isinstance(exclude, str) or not all(isinstance(name, str) for name in exclude):
        raise UsageError(f"{source}: exclude", "must be a list of module names", value=exclude)
    if not sparsity and clusters is None:
        remedy = "For example sparsity=0.5, or clusters=32."
        raise UsageError(source, "must be told a sparsity or a number of clusters", remedy=remedy)
    return Compression(float(sparsity), clusters, tuple(exclude))


def _example(inputs: Any) -> Call:
    if isinstance(inputs, Mapping):
        return Call((), dict(inputs))
    return Call(tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,))


def _call(call: Call, model: torch.nn.Module) -> Any:
    return model(*call.args, **call.kwargs)

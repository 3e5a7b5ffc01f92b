"""Pruning and clustering of weights after training, for compilers that store weights compressed (Vela for Ethos-U).

Layer by layer, in the order of execution, and on calibration data that passes the layers compressed before. Within a
layer, weights are decided input by input, and the error of each decision is compensated by the weights that are still
free: optimal brain surgeon, in the form of SparseGPT (Frantar and Alistarh, 2023). Afterwards the statistics of batch
norms follow the change that compression makes to the layers before them.

Clusters are chosen in units of each output channel's largest weight, because weights are quantized with a scale per
channel: int8 weights of a layer then take no more than ``clusters`` values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from edgewright.errors import UsageError

_BLOCK = 64  # inputs whose pruning is decided together
_DAMPING = 0.01  # share of the mean diagonal that is added to second moments, which few inputs leave singular
_LEVELS = 127  # of int8, on each side of zero
_MAX_COLUMNS = 65_536  # positions of all inputs that second moments are taken from


@dataclass(frozen=True)
class Compression:
    """``sparsity``: the share of each layer's weights that become zero. ``clusters``: how many different values the
    weights of a layer may have. ``exclude``: modules that are left unchanged, with those inside them."""

    sparsity: float = 0.0
    clusters: int | None = None
    exclude: tuple[str, ...] = ()


@dataclass
class CompressedLayer:
    """What became of a layer: its weights, zeros among them, and their different values in int8."""

    name: str
    weights: int
    zeros: int
    values: int


@dataclass
class _Moments:
    """Of a batch norm's input, per channel."""

    mean: Tensor
    variance: Tensor


Calls = Sequence[Callable[[nn.Module], Any]]  # each calls the model with one input


def prunable(model: nn.Module, exclude: Sequence[str] = ()) -> dict[str, nn.Module]:
    """Layers whose weights are compressed: convolutions without groups and linear layers. Depthwise convolutions are
    not: they have few weights, and each output depends on a few of them."""
    return {name: m for name, m in model.named_modules() if _is_prunable(m) and not _is_excluded(name, exclude)}


def _is_prunable(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (isinstance(module, nn.Conv1d | nn.Conv2d) and module.groups == 1)


def _is_excluded(name: str, exclude: Sequence[str]) -> bool:
    return any(name == other or name.startswith(f"{other}.") for other in exclude)


def compress_weights(model: nn.Module, calls: Calls, compression: Compression) -> list[CompressedLayer]:
    """Compress the layers of ``model`` in place, which must be in evaluation mode."""
    layers = prunable(model, compression.exclude)
    norms = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None
    }
    original: dict[str, _Moments] = {}
    done: dict[str, CompressedLayer] = {}

    def observe(name: str, inputs: Sequence[Tensor]) -> None:
        original.setdefault(name, _moments(inputs))

    def decide(name: str, inputs: Sequence[Tensor]) -> None:
        if name in layers and name not in done:
            layer = layers[name]
            done[name] = _compress_layer(name, layer, _second_moments(layer, inputs), compression)
        elif name in original and done:
            _follow(norms[name], original.pop(name), _moments(inputs))

    if norms:
        _InLockstep(norms, observe).run(model, calls)
    _InLockstep({**layers, **norms}, decide).run(model, calls)
    return list(done.values())


class _InLockstep:
    """Runs calls of a model at the same time, each in a thread, and stops them all before a module of ``modules`` runs:
    ``visit(name, inputs)`` then sees the module's inputs in all calls, and may change its weights."""

    def __init__(self, modules: Mapping[str, nn.Module], visit: Callable[[str, Sequence[Tensor]], None]) -> None:
        self.modules, self.visit = modules, visit
        self.errors: list[BaseException] = []
        self.arrived: dict[int, tuple[str, Tensor]] = {}
        self.local, self.finished = threading.local(), False

    def run(self, model: nn.Module, calls: Calls) -> None:
        self.barrier = threading.Barrier(len(calls), action=self._visit)
        hooks = [module.register_forward_pre_hook(partial(self._wait, name)) for name, module in self.modules.items()]
        threads = [threading.Thread(target=self._call, args=(model, n, call)) for n, call in enumerate(calls)]
        count = torch.get_num_threads()
        torch.set_num_threads(1 if len(calls) > 1 else count)  # each thread would have a pool of its own
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            torch.set_num_threads(count)
            for hook in hooks:
                hook.remove()
        if self.errors:
            raise next((e for e in self.errors if not isinstance(e, threading.BrokenBarrierError)), self.errors[0])

    def _call(self, model: nn.Module, number: int, call: Callable[[nn.Module], Any]) -> None:
        self.local.number = number
        try:
            with torch.no_grad():
                call(model)
            self.finished = True
            if self.barrier.n_waiting:  # in a layer that this call does not have
                self.barrier.abort()
        except BaseException as error:  # raised again by run()
            self.errors.append(error)
            self.barrier.abort()

    def _wait(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.arrived[self.local.number] = name, args[0]
        if self.finished:
            self.barrier.abort()
        try:
            self.barrier.wait()
        except threading.BrokenBarrierError:
            rule = "must run the same layers for every input"
            raise UsageError(f"compress: {name}", rule, remedy="Pass inputs that take the same branches.") from None

    def _visit(self) -> None:
        names = {name for name, _ in self.arrived.values()}
        if len(names) > 1:
            rule = "must run the same layers for every input"
            raise UsageError(f"compress: {' and '.join(sorted(names))}", rule)
        self.visit(names.pop(), [self.arrived[number][1] for number in sorted(self.arrived)])


# ---------------------------------------------------------------------------------------------------------- batch norms


def _moments(inputs: Sequence[Tensor]) -> _Moments:
    """Mean and variance of each channel."""
    rows = torch.cat([x.transpose(0, 1).flatten(1) for x in inputs], 1).double()
    return _Moments(rows.mean(1), rows.var(1, correction=0))


def _follow(norm: nn.Module, before: _Moments, after: _Moments) -> None:
    """Move a batch norm's statistics by the change of its input's, which calibration data estimate better than the
    statistics themselves."""
    mean, variance, epsilon = norm.running_mean, norm.running_var, norm.eps
    assert isinstance(mean, Tensor) and isinstance(variance, Tensor) and isinstance(epsilon, float)
    mean += (after.mean - before.mean).to(mean.dtype)
    ratio = (after.variance + epsilon) / (before.variance + epsilon)
    variance *= ratio.to(variance.dtype)


# --------------------------------------------------------------------------------------------------------------- layers


def _second_moments(layer: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    """X transposed times X, of the inputs of a layer's matrix product: [inputs, inputs]."""
    total: Tensor | None = None
    for x in inputs:
        columns = _columns(layer, x)
        rows = columns[:: max(1, len(columns) * len(inputs) // _MAX_COLUMNS)]
        total = rows.T @ rows if total is None else total + rows.T @ rows
    assert total is not None
    return total


def _columns(layer: nn.Module, x: Tensor) -> Tensor:
    """A layer's input as the rows of a matrix: [positions, inputs]."""
    if isinstance(layer, nn.Linear):
        return x.reshape(-1, x.shape[-1])
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    size, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    padded = F.pad(x, layer._reversed_padding_repeated_twice)
    if isinstance(layer, nn.Conv1d):
        padded, size, stride, dilation = padded.unsqueeze(2), (1, *size), (1, *stride), (1, *dilation)
    return F.unfold(padded, size, dilation, 0, stride).transpose(1, 2).flatten(0, 1)


def _compress_layer(name: str, layer: nn.Module, moments: Tensor, compression: Compression) -> CompressedLayer:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    matrix = weight.detach().flatten(1).double()
    limits = matrix.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    levels = None
    if compression.clusters is not None:
        levels = _choose_levels(matrix / limits, compression)
    result = _Surgeon(matrix, limits, moments.double(), compression.sparsity, levels).run()
    weight.copy_(result.reshape(weight.shape))
    stored = (weight.flatten(1) / weight.flatten(1).abs().amax(1, keepdim=True) * _LEVELS).round()
    return CompressedLayer(name, weight.numel(), int((weight == 0).sum()), len(_distinct(stored)[0]))


class _Surgeon:
    """Decides the weights of one layer, input by input."""

    def __init__(self, matrix: Tensor, limits: Tensor, moments: Tensor, sparsity: float, levels: Tensor | None) -> None:
        self.free = matrix.clone()
        self.limits, self.sparsity, self.levels = limits, sparsity, levels
        dead = moments.diagonal() == 0  # inputs that are always zero
        moments = moments + torch.diag(dead.double() + _DAMPING * moments.diagonal().mean())
        self.inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(moments)), upper=True)
        largest = matrix.abs().argmax(1)
        self.kept = torch.zeros_like(matrix, dtype=torch.bool)  # the largest weight of a channel, which sets its scale
        self.kept[torch.arange(len(matrix)), largest] = True
        self.scale = matrix.gather(1, largest[:, None])

    def run(self) -> Tensor:
        result = torch.empty_like(self.free)
        for start in range(0, self.free.shape[1], _BLOCK):
            block = slice(start, min(start + _BLOCK, self.free.shape[1]))
            pruned, errors = self._choose_pruned(block), torch.zeros_like(self.free[:, block])
            for i in range(block.start, block.stop):
                result[:, i] = self._decide(i, pruned[:, i - start])
                errors[:, i - start] = (self.free[:, i] - result[:, i]) / self.inverse[i, i]
                self.free[:, i : block.stop] -= errors[:, i - start, None] * self.inverse[i, i : block.stop]
            self.free[:, block.stop :] -= errors @ self.inverse[block, block.stop :]
        return result

    def _choose_pruned(self, block: slice) -> Tensor:
        """The weights of a block of inputs whose removal costs least, as many as the sparsity requires."""
        cost = (self.free[:, block] / self.inverse.diagonal()[block]).square()
        cost[self.kept[:, block]] = torch.inf
        count = round(self.sparsity * cost.numel())
        pruned = torch.zeros_like(cost, dtype=torch.bool)
        pruned.view(-1)[cost.flatten().topk(count, largest=False).indices] = True
        return pruned

    def _decide(self, i: int, pruned: Tensor) -> Tensor:
        """The weights of one input: zero, the nearest cluster, or unchanged within the channel's range."""
        limits = self.limits[:, 0]
        value = self.free[:, i].clamp(-limits, limits)
        if self.levels is not None:
            distance = (value[:, None] / limits[:, None] - self.levels[None]).abs()
            value = self.levels[distance.argmin(1)] * limits
        value = torch.where(self.kept[:, i], self.scale[:, 0], value)
        return torch.where(pruned & ~self.kept[:, i], 0.0, value)


def _choose_levels(normalized: Tensor, compression: Compression) -> Tensor:
    """Cluster centers by k-means (Lloyd's algorithm) over the weights that remain; zero and both ends of the range are
    among them, and all are multiples of 1/127."""
    clusters = compression.clusters
    assert clusters is not None
    remaining = normalized.flatten()
    order = remaining.abs().argsort(descending=True)
    remaining = remaining[order[: max(1, round((1 - compression.sparsity) * len(order)))]]
    fixed = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    ranks = torch.linspace(0, len(remaining) - 1, clusters - 1)[1:-1].round().long()
    centers = remaining.sort().values[ranks]
    values, counts = _distinct((remaining * _LEVELS).round() / _LEVELS)
    for _ in range(50):
        candidates = torch.cat((fixed, centers))
        nearest = (values[:, None] - candidates[None]).abs().argmin(1)
        weights = torch.zeros(len(candidates), dtype=torch.float64).index_add_(0, nearest, counts.double())
        sums = torch.zeros(len(candidates), dtype=torch.float64).index_add_(0, nearest, values * counts)
        moved = torch.where(weights > 0, sums / weights.clamp(min=1), candidates)[3:]
        if torch.equal(moved, centers):
            break
        centers = moved
    return _distinct(torch.cat((fixed, (centers * _LEVELS).round() / _LEVELS)))[0]


def _distinct(values: Tensor) -> tuple[Tensor, Tensor]:
    """The different values in ascending order, and how often each occurs."""
    found, counts = np.unique(values.numpy(), return_counts=True)
    return torch.from_numpy(found), torch.from_numpy(counts)

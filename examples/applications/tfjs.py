"""Graph models of TensorFlow.js (``model.json`` and files of weights) as torch modules.

The graph is built for one size of its inputs, channels first: ``SAME`` padding becomes explicit, and what multiplies or
is added to the channels of a convolution becomes part of its weights and its bias, as TensorFlow's converters do it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

Node = Mapping[str, Any]
Step = tuple[str, Callable[..., torch.Tensor], tuple[str, ...]]


class TfjsGraph:
    """The nodes and the weights of a graph model."""

    def __init__(self, path: Path, fetch: Callable[[str], Path]) -> None:
        """``fetch`` finds a file of weights by its name."""
        model = json.loads(path.read_text())
        self.nodes: dict[str, Node] = {node["name"]: node for node in model["modelTopology"]["node"]}
        self.weights: dict[str, np.ndarray[Any, Any]] = {}
        for group in model["weightsManifest"]:
            data, offset = b"".join(fetch(name).read_bytes() for name in group["paths"]), 0
            for weight in group["weights"]:
                stored = np.dtype(weight.get("quantization", {}).get("dtype", weight["dtype"]))
                count = int(np.prod(weight["shape"]))
                values = np.frombuffer(data, stored, count, offset).reshape(weight["shape"])
                self.weights[weight["name"]] = values.astype(weight["dtype"])
                offset += count * stored.itemsize


class TfjsNetwork(nn.Module):
    """The part of a graph between ``inputs`` (name: example, channels first) and ``outputs``."""

    def __init__(self, graph: TfjsGraph, inputs: Mapping[str, torch.Tensor], outputs: Sequence[str]) -> None:
        super().__init__()
        self._graph, self._inputs, self._outputs = graph, list(inputs), list(outputs)
        self.layers = nn.ModuleList()
        self._steps: list[Step] = []
        self._alias: dict[str, str] = {}
        self._values: dict[str, torch.Tensor] = dict(inputs)
        self._readers: dict[str, list[str]] = {}
        for name in self._needed():
            for source in graph.nodes[name]["input"]:
                self._readers.setdefault(source, []).append(name)
        with torch.no_grad():
            for name in self._needed():
                if name not in self._values and name not in self._alias:
                    self._build(name)
        del self._values

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = dict(zip(self._inputs, inputs, strict=True))
        for name, function, sources in self._steps:
            values[name] = function(*(values[source] for source in sources))
        return tuple(values[self._alias.get(name, name)] for name in self._outputs)

    def _needed(self) -> list[str]:
        """The nodes between inputs and outputs, each after its sources."""
        order: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in order or name in self._inputs or name in self._graph.weights:
                return
            for source in self._graph.nodes[name]["input"]:
                visit(source)
            order[name] = None

        for output in self._outputs:
            visit(output)
        return list(order)

    def _constant(self, name: str) -> np.ndarray[Any, Any] | None:
        return self._graph.weights.get(name)

    def _add(self, name: str, function: Callable[..., torch.Tensor], *sources: str) -> None:
        names = tuple(self._alias.get(source, source) for source in sources)
        self._values[name] = function(*(self._values[source] for source in names))
        self._steps.append((name, function, names))

    def _build(self, name: str) -> None:
        node = self._graph.nodes[name]
        kind, sources = node["op"], node["input"]
        if kind in ("Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput"):
            self._build_convolution(name, node)
        elif kind in ("Relu", "Relu6", "Sigmoid"):
            function = {"Relu": torch.relu, "Relu6": nn.functional.relu6, "Sigmoid": torch.sigmoid}[kind]
            self._add(name, function, sources[0])
        elif kind in ("Add", "AddV2", "AddN", "Mul") and not any(s in self._graph.weights for s in sources):
            self._build_arithmetic(name, kind, sources)
        elif kind in ("Add", "AddV2", "Mul"):
            self._build_with_constant(name, kind, sources)
        elif kind == "AvgPool":
            size = _attribute(node, "ksize")[1:3]
            self._add(name, nn.AvgPool2d(size, _attribute(node, "strides")[1:3]), sources[0])
        elif kind == "ResizeBilinear":
            size = [int(v) for v in self._graph.weights[sources[1]]]
            assert node["attr"]["half_pixel_centers"]["b"], name
            self._add(name, nn.Upsample(size, mode="bilinear"), sources[0])
        else:
            raise ValueError(f"{name}: operators of kind {kind} are not read")

    def _build_arithmetic(self, name: str, kind: str, sources: Sequence[str]) -> None:
        hardswish = self._hardswish(sources) if kind == "Mul" else None
        if hardswish is not None:
            self._add(name, nn.functional.hardswish, hardswish)
        elif kind == "Mul":
            self._add(name, torch.mul, *sources)
        else:
            self._add(name, torch.add, *sources)

    def _hardswish(self, sources: Sequence[str]) -> str | None:
        """x, if the sources are x / 6 and relu6(x + 3)."""
        names = [self._alias.get(s, s) for s in sources]
        scaled, clamped = (self._graph.nodes.get(n, {}) for n in names)
        if scaled.get("op") != "Mul" or clamped.get("op") != "Relu6":
            return None
        shifted = self._graph.nodes[self._alias.get(clamped["input"][0], clamped["input"][0])]
        return str(self._variable(scaled["input"])) if shifted["op"] in ("Add", "AddV2") else None

    def _variable(self, sources: Sequence[str]) -> str:
        (name,) = (self._alias.get(s, s) for s in sources if s not in self._graph.weights)
        return name

    def _build_with_constant(self, name: str, kind: str, sources: Sequence[str]) -> None:
        (constant,) = (self._graph.weights[s] for s in sources if s in self._graph.weights)
        value = torch.from_numpy(np.array(constant))
        shaped = value if value.ndim == 0 else value.reshape(1, -1, 1, 1)
        number: Any = float(value) if value.numel() == 1 else shaped
        function = torch.mul if kind == "Mul" else torch.add
        self._add(name, lambda x: function(x, number), self._variable(sources))

    def _build_convolution(self, name: str, node: Node) -> None:
        transposed = node["op"] == "Conv2DBackpropInput"
        source = self._alias.get(node["input"][2 if transposed else 0], node["input"][2 if transposed else 0])
        weight = torch.from_numpy(np.array(self._graph.weights[node["input"][1]]))  # height, width, in, out
        x, stride = self._values[source], _attribute(node, "strides")[1:3]
        depthwise = node["op"] == "DepthwiseConv2dNative"
        weight = weight.flatten(2)[:, :, None].permute(3, 2, 0, 1) if depthwise else weight.permute(3, 2, 0, 1)
        last, scale, bias = self._fold(name, weight.shape[1 if transposed else 0])
        layer: nn.Module
        if transposed:
            assert tuple(weight.shape[2:]) == tuple(stride), name
            layer = nn.ConvTranspose2d(weight.shape[0], weight.shape[1], tuple(stride), tuple(stride))
            layer.weight = nn.Parameter(weight * scale[None, :, None, None])
            padding = [0, 0, 0, 0]
        else:
            padding = _padding(x.shape[2:], weight.shape[2:], stride, _attribute(node, "padding"))
            even = padding[0] == padding[1] and padding[2] == padding[3]
            layer = nn.Conv2d(
                x.shape[1], weight.shape[0], tuple(weight.shape[2:]), tuple(stride),
                (padding[2], padding[0]) if even else 0, groups=x.shape[1] if depthwise else 1,
            )  # fmt: skip
            layer.weight = nn.Parameter(weight * scale[:, None, None, None])
            padding = [0, 0, 0, 0] if even else padding
        layer.bias = nn.Parameter(bias)
        layer = nn.Sequential(nn.ZeroPad2d(tuple(padding)), layer) if any(padding) else layer
        self.layers.append(layer)
        self._add(last, layer, source)

    def _fold(self, name: str, channels: int) -> tuple[str, torch.Tensor, torch.Tensor]:
        """The last of the nodes that only scale a convolution's channels or add to them; scale and bias of all."""
        scale, bias = torch.ones(channels), torch.zeros(channels)
        while True:
            readers = self._readers.get(name, [])
            found = self._affine(readers[0]) if len(readers) == 1 and name not in self._outputs else None
            if found is None:
                return name, scale, bias
            factor, shift = found
            scale, bias = scale * factor, bias * factor + shift
            self._alias[name] = readers[0]
            for folded in [key for key, value in self._alias.items() if value == name]:
                self._alias[folded] = readers[0]
            name = readers[0]

    def _affine(self, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Factor and shift, if a node applies only these to channels."""
        node = self._graph.nodes[name]
        constants = [torch.from_numpy(np.array(v)) for s in node["input"] if (v := self._constant(s)) is not None]
        if node["op"] == "FusedBatchNorm":
            gamma, beta, mean, variance = constants
            factor = gamma / torch.sqrt(variance + node["attr"]["epsilon"]["f"])
            return factor, beta - mean * factor
        if node["op"] not in ("Add", "AddV2", "BiasAdd", "Mul") or len(constants) != 1:
            return None
        value = constants[0].flatten()
        if value.numel() == 1 and constants[0].ndim == 0:  # x + 3 of a hardswish
            return None
        return (value, torch.zeros(())) if node["op"] == "Mul" else (torch.ones(()), value)


def _attribute(node: Node, name: str) -> Any:
    value = node["attr"][name]
    if "list" in value:
        return [int(v) for v in value["list"]["i"]]
    text = value["s"]
    return base64.b64decode(text).decode() if isinstance(text, str) else bytes(text).decode()


def _padding(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], kind: str) -> list[int]:
    """Left, right, top and bottom."""
    if kind == "VALID":
        return [0, 0, 0, 0]
    result = []
    for length, width, step in zip(size, kernel, stride, strict=True):
        total = max((-(-length // step) - 1) * step + width - length, 0)
        result.append((total // 2, total - total // 2))
    return [*result[1], *result[0]]

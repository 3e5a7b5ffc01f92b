"""How much error each layer introduces at the outputs, in each precision; measured once, before a search.

Two sources are measured apart, each with everything else exact: the layer's weights, and the rounding of its result.
Apart, because they meet differently in a mixed model: weights have the precision of their layer, and a result is
rounded to the coarsest precision among the layer and its readers. An error is propagated through the exact model to
the outputs, where its power is what counts: to first order errors of different layers are independent, so that powers
add up, and an error that is a tenth at the layer is a tenth at the outputs, so that one precision is propagated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from edgewright.api.compile import CompileSession
from edgewright.api.layers import QuantizedLayer, QuantizedLayers, Recorded, record
from edgewright.api.recipe import FLOAT, Recipe
from edgewright.backends import find_quantizer
from edgewright.backends.targets import Target
from edgewright.errors import EdgewrightError
from edgewright.explore.units import unit_of
from edgewright.ir.aten.ops import OPS
from edgewright.quantize.batching import one_thread

CALLS = 4  # calibration inputs that errors are measured on


@dataclass
class LayerErrors:
    """A layer, and its errors by preset, as powers relative to the outputs. A preset that the target's rules reject
    for the layer has none. ``weights``: the number of its weights. ``sources``: the layers that it reads. ``moves``:
    its result needs no rounding of its own, as its elements are those of rounded inputs."""

    name: str
    unit: str
    operators: list[str]
    sources: list[str]
    elements: int
    weights: int
    moves: bool
    weight_error: dict[str, float] = field(default_factory=dict)
    rounding_error: dict[str, float] = field(default_factory=dict)


@dataclass
class Sensitivity:
    """``layers`` in the order of execution. ``activations``: by preset, what activations are stored as: layers of
    equal ones need no conversion between them. ``weight_bits``: by preset. ``rejected``: presets that the target
    cannot have, and why."""

    layers: list[LayerErrors]
    activations: dict[str, str]
    weight_bits: dict[str, int]
    rejected: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Sensitivity:
        return cls(**{**plain, "layers": [LayerErrors(**layer) for layer in plain["layers"]]})


def measure(session: CompileSession, target: Target, presets: Sequence[str], seed: int) -> Sensitivity:
    """Quantize the model in every preset, and propagate the error of every layer to the outputs."""
    data = session.calls or [session.example]
    calls = [data[n] for n in sorted(random.Random(seed).sample(range(len(data)), min(CALLS, len(data))))]
    models: dict[str, QuantizedLayers] = {}
    result = Sensitivity([], {FLOAT: FLOAT}, {FLOAT: 32}, {})
    quantizer = find_quantizer(target.backend).for_target(target.argument)
    for preset in presets:
        try:
            models[preset] = _quantize(session, target, preset)
        except EdgewrightError as error:
            result.rejected[preset] = str(error)
            continue
        config = quantizer.presets[preset]()
        kind = config.activation
        result.activations[preset] = (
            FLOAT if config.is_dynamic else f"{kind.dtype} {kind.quant_min} {kind.quant_max} {kind.qscheme}"
        )
        result.weight_bits[preset] = math.ceil(math.log2(int(config.weight.quant_max or 127) + 1)) + 1
    if not models:
        return result
    whole = max(models.values(), key=lambda layers: sum(layer.dequantized is not None for layer in layers.all))
    result.layers = [_describe(whole, layer) for layer in whole.all]
    quantized = {p: _pair(model, whole, result.activations[p] == FLOAT) for p, model in models.items()}
    with torch.no_grad(), one_thread(), session.stages("measure", f"{target.name}: errors", len(calls)) as step:
        for call in calls:
            _add_errors(result.layers, quantized, record(whole.exact, call.leaves()), len(calls))
            step()
    return result


def _quantize(session: CompileSession, target: Target, preset: str) -> QuantizedLayers:
    model = session.quantization.quantize(target, Recipe(preset))
    return QuantizedLayers(model.converted, model.exact)


def _describe(layers: QuantizedLayers, layer: QuantizedLayer) -> LayerErrors:
    nodes = layers.operators(layer)
    names = [entries[0].name for node in nodes if (entries := OPS.matching(str(node.target)))]
    value = next(node for node in layers.exact.graph.nodes if node.name == layer.name).meta.get("val")
    constants = {a for node in nodes for a in layers.exact_node(node.name).all_input_nodes if a.op == "get_attr"}
    weights = sum(_attribute(layers.exact, str(node.target)).numel() for node in constants)
    nameable = bool(nodes) and bool(layer.module or names)  # by a recipe: writes of state are not in the op table
    unit = unit_of(layer.module, next(iter(names), layer.operator)) if nameable else ""
    return LayerErrors(
        layer.name, unit, names, layers.sources(layer),
        int(value.numel()) if isinstance(value, torch.Tensor) else 0, weights, bool(nodes),
    )  # fmt: skip


def _attribute(module: Any, path: str) -> torch.Tensor:
    for name in path.split("."):
        module = getattr(module, name)
    tensor: torch.Tensor = module
    return tensor


@dataclass(frozen=True)
class _Quantized:
    """The model in a preset. ``layers``: by the position in the results that they are measured for."""

    model: QuantizedLayers
    layers: list[tuple[int, QuantizedLayer]]
    is_dynamic: bool


def _pair(model: QuantizedLayers, whole: QuantizedLayers, is_dynamic: bool) -> _Quantized:
    """Find the layers of a preset that the target's rules accept, and those of the whole model that they belong to:
    where activations stay in floating point, layers are longer."""
    at = {node.name: n for n, layer in enumerate(whole.all) for node in whole.operators(layer)}
    at.update({layer.name: n for n, layer in enumerate(whole.all)})
    pairs = []
    for layer in model.all:
        product = model.quantized_product(layer)
        if product is None and (is_dynamic or layer.dequantized is None):
            continue
        position = at.get(product or layer.name)
        if position is not None:
            pairs.append((position, layer))
    return _Quantized(model, pairs, is_dynamic)


def _add_errors(
    results: Sequence[LayerErrors], quantized: Mapping[str, _Quantized], exact: Recorded, count: int
) -> None:
    """Add the errors of one call. The first preset's error of a layer is propagated; to first order, the same source in
    another preset has the power at the outputs that its power at the layer says."""
    gains: dict[tuple[int, str], float] = {}  # of power, from a layer to the outputs

    def power(model: QuantizedLayers, layer: QuantizedLayer, position: int, source: str, error: torch.Tensor) -> float:
        local = float(error.double().square().sum())
        if local == 0.0 or not math.isfinite(local):
            return 0.0 if local == 0.0 else _output_power(model, layer, error, exact) / count
        key = position, source
        if key not in gains:
            gains[key] = _output_power(model, layer, error, exact) / local
        return gains[key] * local / count

    for preset, each in quantized.items():
        for position, layer in each.layers:
            result, model = results[position], each.model
            weights = power(model, layer, position, "weights", model.weight_error(layer, exact))
            if each.is_dynamic:
                rounding = 0.0
            else:
                rounding = power(model, layer, position, "rounding", model.rounding_error(layer, exact))
            result.weight_error[preset] = result.weight_error.get(preset, 0.0) + weights
            result.rounding_error[preset] = result.rounding_error.get(preset, 0.0) + rounding
            if rounding and model.rounds(layer, exact):
                result.moves = False


def _output_power(layers: QuantizedLayers, layer: QuantizedLayer, error: torch.Tensor, exact: Recorded) -> float:
    """The power of the error that a layer's error causes at the outputs, relative to theirs; of an output without
    floats, at the layer itself."""
    total, found = 0.0, False
    for name, value in layers.outputs_with(layer, exact[layer.name] + error, exact).items():
        if value.is_floating_point():
            found = True
            total += _relative(exact[name], value - exact[name])
    return total if found else _relative(exact[layer.name], error)


def _relative(signal: torch.Tensor, error: torch.Tensor) -> float:
    power = float(signal.double().square().sum())
    noise = float(error.double().square().sum())
    return noise / power if power > 0 and math.isfinite(noise) else float(noise > 0)

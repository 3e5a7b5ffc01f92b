"""Finds the layers that quantization hurts: eager, fake-quantized and device side by side, layer by layer.

A layer is what the hardware computes in one go: from quantized values to the next quantized value. ``introduced`` is
the error a layer makes on exact inputs, ``effect`` what that alone does to the model's outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from edgewright.backends.targets import Target
from edgewright.errors import VendorError
from edgewright.quantize.evaluate import BEST, Sqnr
from edgewright.workbench.compile import Bench
from edgewright.workbench.facts import CompileReport
from edgewright.workbench.layers import Layer, Layers, record, result_names
from edgewright.workbench.recipe import HIGHER, Recipe, higher

ENOUGH = 0.6  # of the error, that the layers to raise make up
MOST = 5  # layers to raise at a time


@dataclass
class LayerError:
    """How far a layer's result is from the model's, in decibels. ``share``: of all layers' effects on the outputs.
    ``readers``: modules that read the result, and would round it again if they were not raised with it."""

    name: str
    module: str
    operator: str
    introduced: float
    effect: float
    fake: float
    device: float | None = None
    share: float = 0.0
    readers: list[str] = field(default_factory=list)


@dataclass
class Comparison:
    """Layers, the worst first; and the whole model's outputs."""

    target: str
    precision: str
    layers: list[LayerError] = field(default_factory=list)
    fake: float = BEST
    device: float | None = None
    samples: int = 0
    higher: str = "float"
    raised: float | None = None  # fake-quantized, with the recipe that raises the worst layers
    note: str = ""  # why layers have no values of the device's, if so

    def to_raise(self) -> list[LayerError]:
        """The few modules that make most of the error; none if nothing stands out or nothing is wrong."""
        chosen: list[LayerError] = []
        for layer in self.layers:
            known = layer.module and layer.module not in {c.module for c in chosen}
            if known and layer.effect < BEST and len(chosen) < MOST:
                chosen.append(layer)
            if sum(c.share for c in chosen) >= ENOUGH:
                break
        return chosen

    def modules_to_raise(self) -> list[str]:
        """Modules of those layers and of what reads them: a result kept in 8 bits by its reader gains nothing."""
        chosen = self.to_raise()
        return list(dict.fromkeys([c.module for c in chosen] + [r for c in chosen for r in c.readers]))

    def recipe(self, given: Recipe) -> Recipe:
        """The recipe that was used, with those raised."""
        raised = dict.fromkeys(self.modules_to_raise(), HIGHER)
        own = given.targets.get(self.target, Recipe())
        changed = Recipe(own.quantize, {**own.modules, **raised}, own.operators)
        return Recipe(given.quantize, given.modules, given.operators, {**given.targets, self.target: changed})

    def to_dict(self) -> dict[str, Any]:
        told = {k: v for k, v in vars(self).items() if k != "layers"}
        return {**told, "raise": self.modules_to_raise(), "layers": [vars(layer) for layer in self.layers]}


def compare(bench: Bench, target: Target, *, device: bool = True) -> Comparison:
    """Quantize for a target, and measure every layer on the data that results are compared on."""
    recipe = bench.settings.recipe.for_target(target.name)
    quantization = bench.quantization
    prepared = quantization.prepare(target, recipe)
    quantization.calibrate(target, prepared)
    exact = copy.deepcopy(prepared)
    converted = quantization.convert(target, prepared)
    layers = Layers(converted, exact)
    found = Comparison(target.name, recipe.quantize or "float", higher=higher(_presets(target)))
    found.samples = len(bench.evaluated)
    on_device = _device(bench, target, converted, layers, found) if device else None
    _measure(bench, target, layers, on_device, found)
    total = sum(_noise(layer.effect) for layer in found.layers) or 1.0
    for layer in found.layers:
        layer.share = _noise(layer.effect) / total
    found.layers.sort(key=lambda layer: (layer.effect, layer.introduced))
    if found.to_raise():
        found.raised = _raised(bench, target, found.recipe(bench.settings.recipe))
    return found


def _raised(bench: Bench, target: Target, recipe: Recipe) -> float:
    """What a recipe makes of the model's outputs, fake-quantized."""
    quantization, measure = bench.quantization, Sqnr()
    prepared = quantization.prepare(target, recipe.for_target(target.name))
    quantization.calibrate(target, prepared)
    converted = quantization.convert(target, prepared)
    with torch.no_grad(), bench.stages("compare", f"{target.name}: raised", total=len(bench.evaluated)) as step:
        for call, expected in zip(bench.evaluated, bench.expected(), strict=True):
            outputs = torch.utils._pytree.tree_leaves(converted(*call.args, **call.kwargs))
            for one, other in zip(expected, outputs, strict=True):
                measure.add(one, other)
            step()
    return measure.decibels


def _presets(target: Target) -> Sequence[str]:
    from edgewright.backends import find_quantizer

    return list(find_quantizer(target.backend).presets)


def _noise(decibels: float) -> float:
    return 0.0 if decibels >= BEST else float(10 ** (-decibels / 10))


Run = Callable[[Sequence[Any]], dict[str, Any]]


class _Meters:
    """What is measured of one layer, over all calls."""

    def __init__(self) -> None:
        self.introduced, self.effect, self.fake, self.device = Sqnr(), Sqnr(), Sqnr(), Sqnr()


def _measure(bench: Bench, target: Target, layers: Layers, on_device: Run | None, found: Comparison) -> None:
    meters = {layer.name: _Meters() for layer in layers.found}
    ends, ends_device = Sqnr(), Sqnr()
    calls = [call.leaves() for call in bench.evaluated]
    total = len(calls) * len(layers.found)
    with bench.stages("compare", f"{target.name}: layers", total=total) as step, torch.no_grad():
        for leaves in calls:
            exact = record(layers.exact, leaves)
            fake = record(layers.converted, leaves)
            run = on_device(leaves) if on_device is not None else None
            outputs = result_names(layers.exact)
            for name in outputs:
                ends.add(exact[name], fake[layers.held(name)])
            for name, value in zip(outputs, run["outputs"] if run else (), strict=False):
                ends_device.add(exact[name], value)
            for layer in layers.found:
                meter, own = meters[layer.name], layers.alone(layer, exact)
                meter.introduced.add(exact[layer.name], own)
                meter.fake.add(exact[layer.name], fake[layer.result])
                for name, value in layers.outputs_with(layer, own, exact).items():
                    meter.effect.add(exact[name], value)
                if run is not None and layer.name in run["layers"]:
                    meter.device.add(exact[layer.name], run["layers"][layer.name])
                step()
    found.fake = ends.decibels
    found.device = None if on_device is None else ends_device.decibels
    found.layers = [_told(layer, meters[layer.name], layers.readers(layer)) for layer in layers.found]


def _told(layer: Layer, meter: _Meters, readers: Sequence[Layer]) -> LayerError:
    seen = meter.device.signal > 0 or meter.device.noise > 0
    modules = [r.module for r in readers if r.module]
    return LayerError(
        layer.name, layer.module, layer.operator, meter.introduced.decibels, meter.effect.decibels,
        meter.fake.decibels, meter.device.decibels if seen else None, readers=modules,
    )  # fmt: skip


def _device(bench: Bench, target: Target, converted: Any, layers: Layers, found: Comparison) -> Run:
    """A function of inputs that gives outputs and layers' results, computed as the device does.

    One program gives them all: results that are stored are made outputs of the model. A vendor's compiler may not like
    so many; then there are those of the model alone, and a note says why.
    """
    seen = [layer for layer in layers.found if layer.stored is not None and not layer.moves]
    try:
        return _device_values(bench, target, converted, seen)
    except VendorError as error:
        found.note = f"{error.subject}: {error.rule}"
        return _device_values(bench, target, converted, [])


def _device_values(bench: Bench, target: Target, converted: Any, seen: Sequence[Layer]) -> Run:
    from edgewright.workbench.quantization import quiet_torch
    from edgewright.workbench.result import CompileResult

    module, names = _opened(converted, seen), [layer.name for layer in seen]
    with bench.stages("lower", f"{target.name}: lower with all results"), quiet_torch():
        exported = torch.export.export(module, tuple(bench.example.leaves()))
    with bench.stages("lower", f"{target.name}: lower with all results"):
        edge, _ = bench.lowered(target, exported)
        method = CompileResult(edge.to_executorch(), exported, CompileReport(target.name, target.backend)).method()

    def run(leaves: Sequence[Any]) -> dict[str, Any]:
        made = method.execute(list(leaves))
        split = len(made) - len(names)
        return {"outputs": made[:split], "layers": dict(zip(names, made[split:], strict=True))}

    return run


def _opened(converted: Any, seen: Sequence[Layer]) -> fx.GraphModule:
    """The module with flat inputs and outputs, and some layers' stored results as further outputs."""
    module: fx.GraphModule = copy.deepcopy(converted)
    nodes = {node.name: node for node in module.graph.nodes}
    output = module.graph.output_node()
    results = [r for r in torch.utils._pytree.tree_leaves(output.args[0]) if isinstance(r, fx.Node)]
    output.args = ((*results, *(nodes[str(layer.stored)] for layer in seen)),)
    module.graph.set_codegen(fx.graph.CodeGen())
    module.recompile()
    return module

"""Finds the layers that quantization hurts: eager, fake-quantized and device side by side, layer by layer.

A layer is what the hardware computes in one go: from quantized values to the next quantized value. ``introduced`` is
the error a layer makes on exact inputs, ``effect`` what that alone does to the model's outputs.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from edgewright.api.checked_method import load
from edgewright.api.compile import Bench
from edgewright.api.compile_report import measured_on
from edgewright.api.data import Call
from edgewright.api.layers import Layer, Layers, record, result_names
from edgewright.api.recipe import HIGHER, Recipe, higher
from edgewright.backends.targets import Target
from edgewright.errors import VendorError
from edgewright.quantize.evaluate import BEST, Sqnr

log = logging.getLogger("edgewright.api")

ENOUGH = 0.6  # of the error, that the layers to raise make up
MOST = 5  # layers to raise at a time
_GAIN = 0.5  # decibels that raising must give to be worth it


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
class Attempt:
    """Modules that were raised, and what that gave: fake-quantized, and as the device computes it."""

    modules: list[str]
    fake: float
    device: float | None = None


@dataclass
class Comparison:
    """Layers, the worst first; and the whole model's outputs."""

    target: str
    precision: str
    layers: list[LayerError] = field(default_factory=list)
    fake: float = BEST
    device: float | None = None
    samples: int = 0
    evaluated_on: str = ""
    higher: str = "float"
    chosen: list[str] | None = None  # modules to raise, as measured: empty if raising does not help; None: not tried
    raised: float | None = None  # fake-quantized, with those raised
    raised_device: float | None = None
    tried: list[Attempt] = field(default_factory=list)
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

    def candidates(self) -> list[list[str]]:
        """What to try to raise: the modules that make most of the error, then as many as may be raised at a time. With
        each goes what reads it: a result kept in 8 bits by its reader gains nothing."""
        named = [layer for layer in self.layers if layer.module and layer.effect < BEST]
        worst = list({layer.module: layer for layer in reversed(named)}.values())
        worst.sort(key=lambda layer: (layer.effect, layer.introduced))
        found = [_with_readers(layers) for layers in (self.to_raise(), worst[:MOST]) if layers]
        return [modules for i, modules in enumerate(found) if modules not in found[:i]]

    def modules_to_raise(self) -> list[str]:
        """What is recommended: of what was tried, the first that helps."""
        return list(self.chosen or [])

    @property
    def measured_on(self) -> str:
        """What data the figures are of."""
        return measured_on(self.evaluated_on, self.samples)

    def recipe(self, given: Recipe) -> Recipe:
        """The recipe that was used, with what is recommended raised."""
        return self.raising(given, self.modules_to_raise())

    def raising(self, given: Recipe, modules: Sequence[str]) -> Recipe:
        """A recipe with modules raised for this target."""
        if not modules:
            return given
        raised = dict.fromkeys(modules, HIGHER)
        own = given.targets.get(self.target, Recipe())
        changed = Recipe(own.quantize, {**own.modules, **raised}, own.operators)
        return Recipe(given.quantize, given.modules, given.operators, {**given.targets, self.target: changed})

    def to_dict(self) -> dict[str, Any]:
        told = {k: v for k, v in vars(self).items() if k not in ("layers", "chosen", "tried")}
        tried = [vars(attempt) for attempt in self.tried]
        layers = [vars(layer) for layer in self.layers]
        return {**told, "raise": self.modules_to_raise(), "tried": tried, "layers": layers}


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
    found.samples, found.evaluated_on = len(bench.evaluated), bench.samples.origin
    on_device = _device(bench, target, converted, layers, found) if device else None
    _measure(bench, target, layers, on_device, found)
    total = sum(_noise(layer.effect) for layer in found.layers) or 1.0
    for layer in found.layers:
        layer.share = _noise(layer.effect) / total
    found.layers.sort(key=lambda layer: (layer.effect, layer.introduced))
    _recommend(bench, target, found)
    return found


def _recommend(bench: Bench, target: Target, found: Comparison) -> None:
    """Raise the layers to blame and measure again, on data that was not calibrated with: advice must have helped."""
    found.chosen = []
    for modules in found.candidates():
        attempt = _attempt(bench, target, found, modules)
        found.tried.append(attempt)
        better = attempt.fake >= found.fake + _GAIN
        if found.device is not None and attempt.device is not None:
            better = better and attempt.device >= found.device + _GAIN
        if better:
            found.chosen, found.raised, found.raised_device = modules, attempt.fake, attempt.device
            return


def _attempt(bench: Bench, target: Target, found: Comparison, modules: list[str]) -> Attempt:
    quantization = bench.quantization
    recipe = found.raising(bench.settings.recipe, modules).for_target(target.name)
    prepared = quantization.prepare(target, recipe)
    quantization.calibrate(target, prepared)
    converted = quantization.convert(target, prepared)
    fake = _sqnr(bench, target, lambda call: converted(*call.args, **call.kwargs))
    if found.device is None:
        return Attempt(modules, fake)
    exported = quantization.export(target, converted)
    with bench.stages("lower", f"{target.name}: lower, raised"):
        edge, _ = bench.lowered(target, exported)
        method = load(edge.to_executorch())
    device = _sqnr(bench, target, lambda call: method.execute(call.leaves()))
    method.close()
    return Attempt(modules, fake, device)


def _sqnr(bench: Bench, target: Target, run: Callable[[Call], Any]) -> float:
    """Of a model's outputs, all together, beside the original's."""
    measure = Sqnr()
    with torch.no_grad(), bench.stages("compare", f"{target.name}: raised", total=len(bench.evaluated)) as step:
        for call, expected in zip(bench.evaluated, bench.expected(), strict=True):
            for one, other in zip(expected, torch.utils._pytree.tree_leaves(run(call)), strict=True):
                measure.add(one, other)
            step()
    return measure.decibels


def _with_readers(layers: Sequence[LayerError]) -> list[str]:
    return list(dict.fromkeys([c.module for c in layers] + [r for c in layers for r in c.readers]))


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
    _warn_nonfinite(target, {"quantized model": ends, "file": ends_device})
    found.fake = ends.decibels
    found.device = None if on_device is None else ends_device.decibels
    found.layers = [_told(layer, meters[layer.name], layers.readers(layer)) for layer in layers.found]


def _warn_nonfinite(target: Target, measures: Mapping[str, Sqnr]) -> None:
    told = "%s: %d of %d output elements are infinite or NaN in the original or in the %s, and not the same in both"
    for what, measure in measures.items():
        if measure.mismatched:
            log.warning(told, target.name, measure.mismatched, measure.elements, what)


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
    from edgewright.api.quantization import quiet_torch

    module, names = _opened(converted, seen), [layer.name for layer in seen]
    with bench.stages("lower", f"{target.name}: lower with all results"), quiet_torch():
        exported = torch.export.export(module, tuple(bench.example.leaves()))
    with bench.stages("lower", f"{target.name}: lower with all results"):
        edge, _ = bench.lowered(target, exported)
        method = load(edge.to_executorch())

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

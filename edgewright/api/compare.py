"""Per-layer error attribution: which layers lose accuracy to quantization, in eager, fake-quantized and device runs.

A layer is what the hardware computes in one step: from quantized values to the next quantized value. ``introduced`` is
the error of a layer on exact inputs, ``effect`` the error of the model's outputs if only that layer is quantized.
"""

# The error of a layer's result, compared with the float model, contains the errors of all layers before it and grows
# with depth, so it cannot tell which layer to blame. Each layer is therefore evaluated with everything else exact
# (``QuantizedLayers.with_only_quantized``), and its error alone is propagated through the exact model to the outputs
# (``outputs_with``). To first order errors of different layers are independent, so their noise powers add up, and a
# layer's ``share`` is its part of the sum. The layers with the largest shares are raised to a higher precision together
# with their readers, the model is calibrated again and measured on held-out data; only a measured improvement becomes a
# recommendation.

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from edgewright.api.checked_method import load
from edgewright.api.compile import CompileSession
from edgewright.api.compile_report import measured_on
from edgewright.api.data import Call
from edgewright.api.layers import QuantizedLayer, QuantizedLayers, Recorded, record, result_names
from edgewright.api.recipe import HIGHER, Recipe, higher
from edgewright.backends.targets import Target
from edgewright.errors import VendorError
from edgewright.frontend.buffers import preserve_buffers
from edgewright.quantize.evaluate import BEST, Sqnr

log = logging.getLogger("edgewright.api")

RAISED_SHARE = 0.6  # fraction of the error that the layers to raise account for
MAX_RAISED = 5  # layers to raise at a time
_GAIN = 0.5  # decibels by which raising must improve the result


@dataclass
class LayerError:
    """SQNR of a layer's result against the float model, in decibels. ``share``: its fraction of all layers' effects on
    the outputs. ``readers``: modules that read the result, and would round it again unless raised as well. ``nodes``:
    of the graph before quantization, that the layer computes."""

    name: str
    module: str
    operator: str
    introduced: float
    effect: float
    fake: float
    device: float | None = None
    share: float = 0.0
    readers: list[str] = field(default_factory=list)
    nodes: tuple[str, ...] = ()


@dataclass
class Attempt:
    """Modules that were raised to a higher precision, and the resulting SQNR: fake-quantized and on the device."""

    modules: list[str]
    fake: float
    device: float | None = None


@dataclass
class Comparison:
    """The layers, worst first, and the SQNR of the model's outputs."""

    target: str
    precision: str
    layers: list[LayerError] = field(default_factory=list)
    fake: float = BEST
    device: float | None = None
    samples: int = 0
    evaluated_on: str = ""
    higher: str = "float"
    recommended: list[str] | None = None  # modules to raise: empty if raising does not help; None if not tried
    raised: float | None = None  # SQNR of the fake-quantized model with those modules raised
    raised_device: float | None = None
    tried: list[Attempt] = field(default_factory=list)
    note: str = ""  # why layers have no device results

    def to_raise(self) -> list[LayerError]:
        """The few modules that cause most of the error."""
        modules: list[LayerError] = []
        for layer in self.layers:
            is_new = layer.module and layer.module not in {c.module for c in modules}
            if is_new and layer.effect < BEST and len(modules) < MAX_RAISED:
                modules.append(layer)
            if sum(c.share for c in modules) >= RAISED_SHARE:
                break
        return modules

    def candidates(self) -> list[list[str]]:
        """Sets of modules to try to raise: those that cause most of the error, then the largest allowed number. Readers
        are included: raising a layer gains nothing if its reader requantizes the result to 8 bits."""
        named = [layer for layer in self.layers if layer.module and layer.effect < BEST]
        worst = list({layer.module: layer for layer in reversed(named)}.values())
        worst.sort(key=lambda layer: (layer.effect, layer.introduced))
        groups = [_with_readers(layers) for layers in (self.to_raise(), worst[:MAX_RAISED]) if layers]
        return [modules for i, modules in enumerate(groups) if modules not in groups[:i]]

    def modules_to_raise(self) -> list[str]:
        """The recommended modules: the first attempt that helps."""
        return list(self.recommended or [])

    @property
    def measured_on(self) -> str:
        """The data that the figures were measured on."""
        return measured_on(self.evaluated_on, self.samples)

    def recipe(self, base: Recipe) -> Recipe:
        """The recipe with the recommended modules raised."""
        return self.raising(base, self.modules_to_raise())

    def raising(self, base: Recipe, modules: Sequence[str]) -> Recipe:
        """A recipe with modules raised for this target."""
        if not modules:
            return base
        raised = dict.fromkeys(modules, HIGHER)
        target_recipe = base.targets.get(self.target, Recipe())
        changed = Recipe(target_recipe.quantize, {**target_recipe.modules, **raised}, target_recipe.operators)
        return Recipe(base.quantize, base.modules, base.operators, {**base.targets, self.target: changed})

    def to_dict(self) -> dict[str, Any]:
        fields = {k: v for k, v in vars(self).items() if k not in ("layers", "recommended", "tried")}
        tried = [vars(attempt) for attempt in self.tried]
        layers = [vars(layer) for layer in self.layers]
        return {**fields, "raise": self.modules_to_raise(), "tried": tried, "layers": layers}


def compare(session: CompileSession, target: Target, *, device: bool = True, inputs: int | None = None) -> Comparison:
    """Quantize for a target, and measure every layer on the evaluation data, at most ``inputs`` of it."""
    recipe = session.settings.recipe.for_target(target.name)
    model = session.quantization.quantize(target, recipe)
    layers = QuantizedLayers(model.converted, model.exact)
    comparison = Comparison(target.name, recipe.quantize or "float", higher=higher(_presets(target)))
    comparison.samples, comparison.evaluated_on = len(session.evaluated[:inputs]), session.samples.origin
    on_device = _make_device_run(session, target, model.converted, layers, comparison) if device else None
    _measure(session, target, model.key, layers, on_device, comparison)
    total = sum(_noise_power(layer.effect) for layer in comparison.layers) or 1.0
    for layer in comparison.layers:
        layer.share = _noise_power(layer.effect) / total
    comparison.layers.sort(key=lambda layer: (layer.effect, layer.introduced))
    _recommend(session, target, comparison)
    return comparison


def _recommend(session: CompileSession, target: Target, comparison: Comparison) -> None:
    """Raise candidate modules, measure again on held-out data, and recommend the first set that helps."""
    comparison.recommended = []
    for modules in comparison.candidates():
        attempt = _attempt(session, target, comparison, modules)
        comparison.tried.append(attempt)
        better = attempt.fake >= comparison.fake + _GAIN
        if comparison.device is not None and attempt.device is not None:
            better = better and attempt.device >= comparison.device + _GAIN
        if better:
            comparison.recommended, comparison.raised, comparison.raised_device = modules, attempt.fake, attempt.device
            return


def _attempt(session: CompileSession, target: Target, comparison: Comparison, modules: list[str]) -> Attempt:
    quantization = session.quantization
    recipe = comparison.raising(session.settings.recipe, modules).for_target(target.name)
    converted = quantization.quantize(target, recipe).converted
    fake = _sqnr(session, target, comparison.samples, lambda call: converted(*call.args, **call.kwargs))
    if comparison.device is None:
        return Attempt(modules, fake)
    exported = quantization.export(target, converted)
    with session.stages("lower", f"{target.name}: lower, raised"):
        edge, _ = session.lower_for(target, exported)
        method = load(edge.to_executorch())
    device = _sqnr(session, target, comparison.samples, lambda call: method.execute(call.leaves()))
    method.close()
    return Attempt(modules, fake, device)


def _sqnr(session: CompileSession, target: Target, inputs: int, run: Callable[[Call], Any]) -> float:
    """The SQNR of all outputs of a model against the original, on as many inputs."""
    measure, pairs = Sqnr(), list(zip(session.evaluated, session.reference_results(), strict=True))[:inputs]
    stage = session.stages("compare", f"{target.name}: raised", total=inputs)
    with stage as step, torch.no_grad(), preserve_buffers(session.exported):
        for call, expected in pairs:
            for one, other in zip(expected, torch.utils._pytree.tree_leaves(run(call)), strict=True):
                measure.add(one, other)
            step()
    return measure.decibels


def _with_readers(layers: Sequence[LayerError]) -> list[str]:
    return list(dict.fromkeys([c.module for c in layers] + [r for c in layers for r in c.readers]))


def _presets(target: Target) -> Sequence[str]:
    from edgewright.backends import find_quantizer

    return list(find_quantizer(target.backend).presets)


def _noise_power(decibels: float) -> float:
    return 0.0 if decibels >= BEST else float(10 ** (-decibels / 10))


DeviceRun = Callable[[Sequence[Any]], dict[str, Any]]


@dataclass
class _Meters:
    """Measurements of one layer, over all calls."""

    introduced: Sqnr = field(default_factory=Sqnr)
    effect: Sqnr = field(default_factory=Sqnr)
    fake: Sqnr = field(default_factory=Sqnr)


@dataclass
class Measured:
    """What does not depend on the device: measurements of each layer, and of the model's outputs."""

    layers: dict[str, _Meters]
    outputs: Sqnr = field(default_factory=Sqnr)


def _measure(
    session: CompileSession,
    target: Target,
    key: str,
    layers: QuantizedLayers,
    on_device: DeviceRun | None,
    comparison: Comparison,
) -> None:
    key = f"{key} {comparison.samples}"
    measured: Measured | None = session.measured.get(key)
    known = measured is not None  # of a target that quantizes alike
    measured = measured or Measured({layer.name: _Meters() for layer in layers.all})
    device, device_outputs = {layer.name: Sqnr() for layer in layers.all}, Sqnr()
    calls = [call.leaves() for call in session.evaluated[: comparison.samples]]
    total = 0 if known else len(calls) * len(layers.all)
    stage = session.stages("compare", f"{target.name}: layers", total=total)
    # The exact module is a copy, which another target that quantizes alike starts with as well.
    with stage as step, torch.no_grad(), preserve_buffers(session.exported), preserve_buffers(layers.exact):
        for leaves in calls if not known or on_device is not None else ():
            exact = record(layers.exact, leaves)
            if not known:
                _measure_call(layers, leaves, exact, measured, step)
            if on_device is None:
                continue
            run = on_device(leaves)
            for name, value in zip(result_names(layers.exact), run["outputs"], strict=False):
                device_outputs.add(exact[name], value)
            for name, value in run["layers"].items():
                device[name].add(exact[name], value)
    session.measured[key] = measured
    _warn_nonfinite(target, {"quantized model": measured.outputs, "file": device_outputs})
    comparison.fake = measured.outputs.decibels
    comparison.device = None if on_device is None else device_outputs.decibels
    comparison.layers = [
        _layer_error(layer, measured.layers[layer.name], device[layer.name], layers.readers(layer))
        for layer in layers.all
    ]


def _measure_call(
    layers: QuantizedLayers, leaves: Sequence[Any], exact: Recorded, measured: Measured, step: Any
) -> None:
    """Measure every layer on one of the evaluation inputs."""
    fake = record(layers.converted, leaves)
    for name in result_names(layers.exact):
        measured.outputs.add(exact[name], fake[layers.hardware_node(name)])
    for layer in layers.all:
        meters, result = measured.layers[layer.name], layers.with_only_quantized(layer, exact)
        meters.introduced.add(exact[layer.name], result)
        meters.fake.add(exact[layer.name], fake[layer.result])
        for name, value in layers.outputs_with(layer, result, exact).items():
            meters.effect.add(exact[name], value)
        step()


def _warn_nonfinite(target: Target, measures: Mapping[str, Sqnr]) -> None:
    message = "%s: %d of %d output elements are infinite or NaN in the original or in the %s, and not the same in both"
    for name, measure in measures.items():
        if measure.mismatched:
            log.warning(message, target.name, measure.mismatched, measure.elements, name)


def _layer_error(layer: QuantizedLayer, meters: _Meters, device: Sqnr, readers: Sequence[QuantizedLayer]) -> LayerError:
    has_device = device.signal > 0 or device.noise > 0
    modules = [r.module for r in readers if r.module]
    return LayerError(
        layer.name, layer.module, layer.operator, meters.introduced.decibels, meters.effect.decibels,
        meters.fake.decibels, device.decibels if has_device else None, readers=modules, nodes=layer.nodes,
    )  # fmt: skip


def _make_device_run(
    session: CompileSession, target: Target, converted: Any, layers: QuantizedLayers, comparison: Comparison
) -> DeviceRun:
    """A function from inputs to the outputs and the layers' results, computed as on the device.

    One program computes them all: stored results become outputs of the model. If a vendor's compiler rejects that many
    outputs, only the model's own are available, and a note explains why.
    """
    stored_layers = [layer for layer in layers.all if layer.dequantized is not None and not layer.moves]
    try:
        return _run_with_layer_outputs(session, target, converted, stored_layers)
    except VendorError as error:
        comparison.note = f"{error.subject}: {error.rule}"
        return _run_with_layer_outputs(session, target, converted, [])


def _run_with_layer_outputs(
    session: CompileSession, target: Target, converted: Any, stored_layers: Sequence[QuantizedLayer]
) -> DeviceRun:
    from edgewright.api.quantization import quiet_torch

    module, names = _with_layer_outputs(converted, stored_layers), [layer.name for layer in stored_layers]
    with session.stages("lower", f"{target.name}: lower with all results"), quiet_torch():
        exported = torch.export.export(module, tuple(session.example.leaves()))
    with session.stages("lower", f"{target.name}: lower with all results"):
        edge, _ = session.lower_for(target, exported)
        method = load(edge.to_executorch())

    def run(leaves: Sequence[Any]) -> dict[str, Any]:
        outputs = method.execute(list(leaves))
        split = len(outputs) - len(names)
        return {"outputs": outputs[:split], "layers": dict(zip(names, outputs[split:], strict=True))}

    return run


def _with_layer_outputs(converted: Any, stored_layers: Sequence[QuantizedLayer]) -> fx.GraphModule:
    """A copy of the module with flat inputs and outputs, and some layers' stored results as further outputs."""
    module: fx.GraphModule = copy.deepcopy(converted)
    nodes = {node.name: node for node in module.graph.nodes}
    output = module.graph.output_node()
    results = [r for r in torch.utils._pytree.tree_leaves(output.args[0]) if isinstance(r, fx.Node)]
    output.args = ((*results, *(nodes[str(layer.dequantized)] for layer in stored_layers)),)
    module.graph.set_codegen(fx.graph.CodeGen())
    module.recompile()
    return module

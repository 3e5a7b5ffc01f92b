"""Quantizes an exported model for targets; targets with the same observers share the work."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewright.api.data import Call
from edgewright.api.layers import without_observers
from edgewright.api.progress import Stages
from edgewright.api.recipe import Recipe, apply_recipe
from edgewright.api.state_writes import functionalize_buffer_writes
from edgewright.api.training import Trainer
from edgewright.backends.targets import Target
from edgewright.errors import EdgewrightError, InputError, UsageError
from edgewright.frontend.buffers import preserve_buffers, writes_state
from edgewright.frontend.input_types import type_remedy
from edgewright.frontend.origin import module_path
from edgewright.quantize.batching import one_thread
from edgewright.quantize.methods import ADAROUND, BEST, BIAS, EQUALIZE, SMOOTH
from edgewright.quantize.observer_statistics import CHUNK_CALLS, Statistics, can_merge, merge, observe_chunks

log = logging.getLogger("edgewright.api")
_MEASURED = 8  # calls that decide which values share a scale
_CHECKED = 4  # calls on which a model with scaled channels must compute the same


@dataclass(frozen=True)
class QuantizedModel:
    """A quantized model beside what it was quantized from. ``exact``: without observers; ``converted``: with quantize
    and dequantize operators. ``key``: equal for targets that quantize alike."""

    key: str
    exact: Any
    converted: Any


class QuantizationPipeline:
    """Prepares, calibrates and converts a model. Targets with equal observers share calibration and conversion."""

    def __init__(
        self, exported: ExportedProgram, calls: Sequence[Call], stages: Stages, dynamic_shapes: Any, runtime: Any,
        integer_io: bool = False,
    ) -> None:  # fmt: skip
        self._exported = exported
        self._calls = calls
        self._stages = stages
        self._dynamic_shapes = dynamic_shapes
        self._runtime = runtime
        self._integer_io = integer_io
        self.trainer: Trainer | None = None  # trains the model, instead of calibration alone
        self.statistics: Sequence[Statistics] = ()  # of the calibration data, if other processes observed it
        self._done: dict[str, ExportedProgram] = {}
        self._idle: set[str] = set()  # methods that found nothing to change in the model that was prepared last
        self.keeps_models = False  # keep what ``quantize`` returns, for targets that quantize alike
        self._models: dict[str, QuantizedModel] = {}
        self.unquantized: dict[str, dict[str, str]] = {}  # by target and node: why a layer is not quantized

    def with_calls(self, calls: Sequence[Call]) -> QuantizationPipeline:
        """A pipeline of the same model that learns from other data."""
        of_model = self._exported, calls, self._stages, self._dynamic_shapes, self._runtime, self._integer_io
        return QuantizationPipeline(*of_model)

    def modules(self) -> set[str]:
        """The dotted paths of all modules that contain operators, and of their parents."""
        paths = {module_path(node) for node in self._exported.graph.nodes}
        return {".".join(p.split(".")[:n]) for p in paths if p for n in range(1, p.count(".") + 2)}

    def run(self, target: Target, recipe: Recipe) -> ExportedProgram:
        """The model quantized by a recipe for a target; the model itself for a floating-point recipe."""
        if not recipe.quantizes:
            return self._exported
        if (recipe.quantize or "").endswith(BEST):
            rule = "chooses methods when a model is compiled, and not here"
            raise UsageError(f"quantize: {recipe.quantize}", rule, remedy="Name the methods that it chose: int8+bias.")
        if self.trainer is not None:
            return self._train(self.trainer, target, recipe)
        prepared = self.prepare(target, recipe)
        key = self._key(prepared, recipe)
        if key not in self._done:
            if self.keeps_models:
                converted = self._quantize(target, prepared, recipe, key).converted
            else:
                self.calibrate(target, prepared)
                self.adjust(target, prepared, recipe.methods)
                converted = self.convert(target, prepared)
            self._done[key] = self.export(target, converted)
        return self._done[key]

    def quantize(self, target: Target, recipe: Recipe) -> QuantizedModel:
        """The model quantized by a recipe for a target, layer by layer comparable with what it was."""
        prepared = self.prepare(target, recipe)
        return self._quantize(target, prepared, recipe, self._key(prepared, recipe))

    def _key(self, prepared: Any, recipe: Recipe) -> str:
        """Equal for recipes and targets that quantize alike the model that was prepared last. Methods of observers are
        in the digest; others count if they found something to change."""
        methods = [name for name in (EQUALIZE, SMOOTH, ADAROUND, BIAS) if name in {*recipe.methods} - self._idle]
        return f"{_prepared_digest(prepared)} {methods}"

    def _quantize(self, target: Target, prepared: Any, recipe: Recipe, key: str) -> QuantizedModel:
        model = self._models.get(key)
        if model is None:
            self.calibrate(target, prepared)
            exact = without_observers(copy.deepcopy(prepared))
            self.adjust(target, prepared, recipe.methods)
            model = QuantizedModel(key, exact, self.convert(target, prepared))
            if self.keeps_models:
                self._models[key] = model
        return model

    def _train(self, trainer: Trainer, target: Target, recipe: Recipe) -> ExportedProgram:
        """The model trained for a target, in the shapes of the model that was passed."""
        from edgewright.backends import find_quantizer

        if recipe.methods:
            rule = "is for calibrated models: training learns weights and ranges itself"
            raise UsageError(f"method {recipe.methods[0]!r}", rule, remedy="Leave it out, or leave out train.")
        quantizer = find_quantizer(target.backend).for_target(target.argument)
        quantizer.set_runtime(self._runtime)
        quantizer.integer_io = self._integer_io
        apply_recipe(quantizer, recipe, self.modules(), target.name, trained=True)
        with self._stages("train", f"{target.name}: train"), quiet_torch():
            converted = trainer.run(quantizer, self._exported, self._calls)
        self.unquantized[target.name] = quantizer.unquantized
        with self._stages("quantize", f"{target.name}: export"), quiet_torch():
            example: Any = self._exported.example_inputs
            return torch.export.export(converted, *example, dynamic_shapes=self._dynamic_shapes)

    def prepare(self, target: Target, recipe: Recipe) -> Any:
        """Insert observers into a copy of the model."""
        with self._stages("quantize", f"{target.name}: quantize"), quiet_torch():
            from edgewright.backends import find_quantizer
            from edgewright.quantize.equivalence import float_copy
            from edgewright.quantize.pt2e import prepare_pt2e

            quantizer = find_quantizer(target.backend).for_target(target.argument)
            quantizer.set_runtime(self._runtime)
            quantizer.integer_io = self._integer_io
            quantizer.examples = [call.leaves() for call in self._calls[:_MEASURED]]
            apply_recipe(quantizer, recipe, self.modules(), target.name)
            module: Any = self._exported.module()
            original = float_copy(functionalize_buffer_writes(module))
            prepared = prepare_pt2e(module, quantizer)
            self.unquantized[target.name] = quantizer.unquantized
            example: Any = self._exported.example_inputs
            call = self._calls[0] if self._calls else Call(*example)
            call_model(partial(_require_same_results, original, prepared), call, self._exported)
        self._idle = self._scale(target, prepared, original, recipe.methods)
        return prepared

    def _scale(self, target: Target, prepared: Any, original: Any, methods: Sequence[str]) -> set[str]:
        """Scale channels, before observers see what they become; the model must compute the same in floating point.
        Returns the methods that found nothing to change."""
        from edgewright.quantize.equalization import equalize
        from edgewright.quantize.smoothing import smooth

        idle = set()
        for name, scale in ((EQUALIZE, equalize), (SMOOTH, smooth)):
            if name not in methods:
                continue
            calls = self._method_calls(target, name)
            with self._stages(name, f"{target.name}: {name}"), one_thread(), torch.no_grad():
                changed = scale(prepared, calls, partial(_interpret, self._exported))
                log.info("%s: %s changed %d tensors", target.name, name, changed)
                if not changed:
                    idle.add(name)
                for call in calls[:_CHECKED]:
                    call_model(partial(_require_same_results, original, prepared), call, self._exported)
        return idle

    def adjust(self, target: Target, prepared: Any, methods: Sequence[str]) -> None:
        """Change rounding and biases of a calibrated model, layer by layer."""
        from edgewright.quantize.bias_correction import correct_bias
        from edgewright.quantize.layer_walk import Method, adjust_layers
        from edgewright.quantize.learned_rounding import learn_rounding

        chosen: dict[str, Method] = {ADAROUND: learn_rounding, BIAS: correct_bias}
        names = [name for name in chosen if name in methods]
        if not names:
            return
        calls = [call.leaves() for call in self._method_calls(target, names[0])]
        label = ", ".join(names)
        with self._stages("adjust", f"{target.name}: {label}"), one_thread(), torch.no_grad():
            count = adjust_layers(prepared, calls, [chosen[name] for name in names])
            log.info("%s: %s of %d layers", target.name, label, count)

    def _method_calls(self, target: Target, name: str) -> Sequence[Call]:
        """The calibration data, for a method that learns from it."""
        if not self._calls:
            remedy = (
                "Pass some: calibration=[inputs, ...], or --calibrate with an .npz or a folder of images; a hundred "
                "inputs are enough."
            )
            raise UsageError(f"method {name!r} for {target.name}", "needs calibration data", remedy=remedy)
        return self._calls

    def calibrate(self, target: Target, prepared: Any) -> None:
        """Run the observers on the calibration data."""
        calls = self._calls
        if not calls and _needs_data(prepared):
            remedy = (
                "Pass some: calibration=[inputs, ...], or --calibrate with an .npz or a folder of images; a hundred "
                "inputs are enough."
            )
            raise UsageError(f"quantize for {target.name}", "needs calibration data", remedy=remedy)
        if not calls:  # weights are observed on any run of the model
            example: Any = self._exported.example_inputs
            calls = [Call(*example)]
        with one_thread(), torch.no_grad():
            if self.statistics:
                merge(prepared, self.statistics, _prepared_digest(prepared))
            elif len(calls) > CHUNK_CALLS and self.can_split(prepared):
                merge(prepared, self.observe(target, prepared, calls), _prepared_digest(prepared))
            else:
                with self._observing(target, prepared, calls) as observe:
                    for call in calls:
                        observe(call)

    def can_split(self, prepared: Any) -> bool:
        """True if chunks of calls may be observed apart: no call depends on the state that another one left."""
        return not writes_state(self._exported) and can_merge(prepared)

    def observe(self, target: Target, prepared: Any, calls: Sequence[Call]) -> list[Statistics]:
        """The observers' statistics of each chunk of calls."""
        with one_thread(), torch.no_grad(), self._observing(target, prepared, calls) as observe:
            return observe_chunks(prepared, calls, observe, _prepared_digest(prepared))

    @contextlib.contextmanager
    def _observing(self, target: Target, prepared: Any, calls: Sequence[Call]) -> Iterator[Callable[[Call], None]]:
        """A function that runs the observers on a call."""
        label = f"{target.name}: calibrate"
        with self._stages("calibrate", label, total=len(calls)) as step, preserve_buffers(self._exported):

            def observe(call: Call) -> None:
                call_model(prepared, call, self._exported)
                step()

            yield observe

    def convert(self, target: Target, prepared: Any) -> Any:
        """Convert a calibrated model to one with quantize and dequantize operators."""
        from edgewright.quantize.nonfinite import report_nonfinite
        from edgewright.quantize.small_ranges import report_small_ranges

        report_nonfinite(prepared)  # before the output of torch, and of its logging, is redirected
        report_small_ranges(prepared)
        with self._stages("quantize", f"{target.name}: convert"), preserve_buffers(self._exported), quiet_torch():
            from edgewright.quantize.pt2e import convert_pt2e

            return convert_pt2e(prepared)

    def export(self, target: Target, converted: Any) -> ExportedProgram:
        with self._stages("quantize", f"{target.name}: export"), quiet_torch():
            from edgewright.quantize.lift import lift

            example: Any = self._exported.example_inputs
            args, kwargs = example
            return lift(converted, self._exported) or torch.export.export(
                converted, args, kwargs, dynamic_shapes=self._dynamic_shapes
            )


def _interpret(exported: ExportedProgram, interpreter: Any, call: Call) -> Any:
    """Interpret a model on one of the calibration inputs."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return interpreter.run(*pytree.tree_leaves((args, kwargs)), enable_io_processing=False)

    return call_model(run, call, exported)


def _require_same_results(original: Any, prepared: Any, *args: Any, **kwargs: Any) -> None:
    from edgewright.quantize.equivalence import require_same_results

    require_same_results(original, prepared, args, kwargs)


def call_model(module: Any, call: Call, exported: ExportedProgram) -> Any:
    """A model's results for one of the calibration inputs."""
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.isnan().any():
            remedy = "Look where it comes from: a division by 0, a mean of nothing, a file that was not read."
            raise InputError(call.subject, "must hold numbers", value="NaN", remedy=remedy)
    try:
        return module(*call.args, **call.kwargs)
    except EdgewrightError:
        raise
    except Exception as error:
        message = str(error).strip().split("\n")[0]
        rule = f"the model cannot be called with it: {type(error).__name__}: {message}"
        remedy = _shape_mismatch(exported, call) or type_remedy(message, exported, (call.args, call.kwargs))
        raise InputError(call.subject, rule, remedy=remedy) from error


def _shape_mismatch(exported: ExportedProgram, call: Call) -> str:
    """The shapes of a call and of the example inputs, if they differ."""
    sides = pytree.tree_leaves((call.args, call.kwargs)), pytree.tree_leaves(exported.example_inputs)
    actual, expected = (", ".join(str(list(x.shape)) for x in side if isinstance(x, torch.Tensor)) for side in sides)
    return "" if actual == expected else f"It has the shape {actual}; the model was exported with {expected}."


def _needs_data(prepared: Any) -> bool:
    """True if an observer needs activations; weights need no data."""
    from torchao.quantization.pt2e import PlaceholderObserver

    for node in prepared.graph.nodes:
        if node.op == "call_module" and node.args and node.args[0].op != "get_attr":
            observer = prepared.get_submodule(node.target)
            if hasattr(observer, "calculate_qparams") and not isinstance(observer, PlaceholderObserver):
                return True
    return False


def _prepared_digest(prepared: Any) -> str:
    """A digest of a prepared model: its graph, and the settings of its observers."""
    digest = hashlib.sha256(str(prepared.code).encode())
    for name, module in prepared.named_modules():
        if hasattr(module, "calculate_qparams"):
            fields = ("dtype", "qscheme", "quant_min", "quant_max", "ch_axis", "eps", "scale", "zero_point")
            settings = [f"{f}={getattr(module, f, None)}" for f in fields]
            digest.update(f"{name}:{type(module).__name__}:{settings}".encode())
    return digest.hexdigest()


@contextlib.contextmanager
def quiet_warnings() -> Iterator[None]:
    """Suppress deprecation warnings of torch, which users cannot act on."""
    with warnings.catch_warnings():
        for kind in (FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", kind)
        yield


@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Redirect the output of torch and torchao to the debug log."""
    output = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(output):
        warnings.simplefilter("ignore")
        yield
    if output.getvalue():
        log.debug("output of torch: %s", output.getvalue())

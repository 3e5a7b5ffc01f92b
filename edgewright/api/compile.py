"""``edgewright.compile``: a model, for one target or several, in one call."""

from __future__ import annotations

import copy
import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, overload

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from typing_extensions import Unpack

from edgewright.api.accuracy import AccuracyMeter, accuracy
from edgewright.api.best import choose, is_best
from edgewright.api.compile_report import EVALUATED, NOT_REQUESTED, Check, CompileReport, Trial
from edgewright.api.data import MAX_SAMPLES, Call, Samples, hold_out, load_calls
from edgewright.api.graph_interpreter import GraphInterpreter
from edgewright.api.image_data import ImageOptions
from edgewright.api.pipeline import Pipeline
from edgewright.api.progress import Stages
from edgewright.api.quantization import QuantizationPipeline, call_model, quiet_torch, quiet_warnings
from edgewright.api.quantized_graph import is_quantized
from edgewright.api.recipe import FLOAT, Recipe, as_recipe
from edgewright.api.result import CompileResult, CompileResults, IntegerIO
from edgewright.api.self_check import check_cases
from edgewright.api.shape_samples import calls_at_bounds, dynamic_shapes_of
from edgewright.api.training import Train, Trainer
from edgewright.backends import find_partitioner
from edgewright.backends.registry import find_backend
from edgewright.backends.targets import Target, find_targets, with_options
from edgewright.errors import AccuracyError, EdgewrightError, ExportError, InputError, MissingError, UsageError
from edgewright.formats.operator_signatures import OPERATORS
from edgewright.frontend.buffers import preserve_buffers, writes_state
from edgewright.frontend.eval_mode import eval_mode
from edgewright.frontend.export import export
from edgewright.hints import not_among
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.quantize.integer_io import float_io, integer_io
from edgewright.quantize.observer_statistics import chunks_of
from edgewright.runtime.method_io import to_array

log = logging.getLogger("edgewright.api")
_TIMED_TARGET = "xnnpack"  # the target whose time on the host is meaningful
_TIMING_RUNS = 10

# What other tools call the arguments, where the names are not similar.
_OTHER_WORDS = {
    "inputs": ("args", "kwargs", "example_inputs", "example_input", "sample_inputs", "input_shape", "input_shapes"),
    "target": ("device", "backend", "soc", "soc_model", "chip", "board", "delegate", "partitioner"),
    "quantize": ("precision", "dtype", "bits", "preset", "qconfig", "quantizer"),
    "calibration": ("data", "dataset", "dataloader", "representative_dataset", "calibrate"),
}

Metric = Callable[[Callable[..., Any]], float]


@dataclass(frozen=True)
class Settings:
    """Settings of a call that apply to all targets."""

    recipe: Recipe
    samples: int = MAX_SAMPLES
    evaluate: Any = EVALUATED  # how many inputs to hold out, or data to measure on
    original: Any = None
    metric: Metric | None = None
    select: Metric | None = None
    train: Train | None = None
    simulate: bool | None = None
    runtime: Any = "wheel"
    config: ExecutorchBackendConfig | None = None
    images: ImageOptions | None = None
    dynamic_shapes: Any = None
    integer_io: bool | str = False  # True, or the type that inputs and outputs must have
    check: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.samples, bool) or not isinstance(self.samples, int) or self.samples < 1:
            rule = "must be an integer, 1 or more: how many inputs to calibrate with at most"
            remedy = "" if isinstance(self.samples, int | str) else "Pass the inputs themselves as calibration=."
            raise UsageError("samples", rule, value=_short(self.samples), remedy=remedy)
        if self.metric is not None and not callable(self.metric):
            raise UsageError(
                "metric", "must be a function from a callable model to a number", value=_short(self.metric)
            )
        if not isinstance(self.simulate, bool | None):
            raise UsageError("simulate", "must be True, False or None", value=_short(self.simulate))
        if not isinstance(self.check, bool):
            raise UsageError("check", "must be True or False", value=_short(self.check))
        if not isinstance(self.integer_io, bool | str):
            raise UsageError(
                "integer_io", 'must be True, False or a type, such as "int8"', value=_short(self.integer_io)
            )
        for name, kind in (("config", ExecutorchBackendConfig), ("images", ImageOptions)):
            value = getattr(self, name)
            if not isinstance(value, kind | None):
                example = "images=ImageOptions(127, 128), from edgewright.api.image_data" if name == "images" else ""
                remedy = f"For example {example}." if example else ""
                raise UsageError(name, f"must be of the class {kind.__name__}", value=_short(value), remedy=remedy)


def _short(value: object) -> str:
    """A number or a text as it is, the type of anything else."""
    return str(value) if isinstance(value, int | float | str) else type(value).__name__


class Options(TypedDict, total=False):
    """Further options of ``compile``."""

    quantize: str | None
    calibration: Any
    recipe: Any
    samples: int
    evaluate: Any
    original: Any
    metric: Metric | None
    select: Metric | None
    train: Train | None
    simulate: bool | None
    images: ImageOptions | None
    dynamic_shapes: Any
    runtime: Any
    config: ExecutorchBackendConfig | None
    integer_io: bool | str
    check: bool
    quiet: bool


@overload
def compile(model: Any, inputs: Any = None, target: str = ..., **options: Unpack[Options]) -> CompileResult: ...
@overload
def compile(model: Any, inputs: Any, target: Sequence[str], **options: Unpack[Options]) -> CompileResults: ...
@overload
def compile(model: Any, inputs: Any, target: Any, **options: Unpack[Options]) -> CompileResult: ...
def compile(
    model: Any, inputs: Any = None, target: Any = "xnnpack", *, quantize: str | None = None, calibration: Any = None,
    recipe: Any = None, quiet: bool = False, **options: Any,
) -> CompileResult | CompileResults:  # fmt: skip
    """Compile a model for a target or a list of them: names (``"ethos-u55-128"``) or backends' compile specs.

    ``model``: an ``nn.Module`` with example ``inputs`` (a tuple, a tensor, or a dict by name), or an
    ``ExportedProgram``. ``quantize``: a preset of the target (``"int8"``). ``calibration``: an ``.npz``, a folder, or
    an iterable of inputs. ``recipe``: a ``Recipe``, a mapping or a TOML file that names precision per module.

    More options: ``samples`` (calibration inputs to use at most), ``evaluate`` (how many inputs to hold out from
    calibration and measure results on, 0 for none; or other data), ``original`` (the float model to compare with, if
    ``model`` is quantized already), ``metric`` (a function from a callable model to a number), ``select`` (the
    metric that ``quantize="int8-best"`` chooses by, on data of its own; the SQNR if there is none), ``train`` (a
    function that trains the model, prepared for quantization, in place or returns it), ``simulate``
    (True: files for this machine only; False: never; None: where a vendor's compiler is missing, and the result says
    so), ``images`` (``ImageOptions`` for a folder of them), ``dynamic_shapes``, ``runtime``, ``config``,
    ``integer_io`` (True: the program takes and returns integers, with the scales in the report; ``"int8"``: it fails if
    their type is another), ``check`` (False: do
    not compare the file with the graph it was lowered from; one that computes something else is a ``MiscompileError``).

    >>> import torch, edgewright as ew
    >>> result = ew.compile(torch.nn.Linear(4, 3), torch.ones(2, 4), target="xnnpack")
    >>> result.run(torch.ones(2, 4)).shape, result.report.coverage["macs"]
    (torch.Size([2, 3]), 1.0)
    """
    targets = find_targets(target)
    several = not isinstance(target, str) and targets[0].spec is not target
    unknown = sorted(set(options) - set(Settings.__dataclass_fields__))
    if unknown:
        meant = next((name for name, words in _OTHER_WORDS.items() if unknown[0] in words), "")
        remedy = f"Did you mean {meant}?" if meant else ""
        names = sorted(Options.__annotations__)
        raise not_among("compile", unknown[0], names, rule="takes the options", remedy=remedy)
    settings = Settings(as_recipe(recipe, quantize), **options)
    with Stages(quiet) as stages, quiet_warnings():
        session = CompileSession(model, inputs, calibration, settings, stages)
        results = build_all(session, targets, raises=not several)
    if not results:  # all targets failed
        raise next(iter(results.failures.values()))
    return results if several else results[targets[0].name]


def build_all(session: CompileSession, targets: Sequence[Target], *, raises: bool = False) -> CompileResults:
    """Compile for every target; a failure of one does not affect the others."""
    results: dict[str, CompileResult] = {}
    failures: dict[str, EdgewrightError] = {}
    for target in targets:
        try:
            results[target.name] = session.build(target)
        except (UsageError, InputError, ExportError):  # independent of the target
            raise
        except EdgewrightError as error:
            if raises:
                raise
            failures[target.name] = error
    return CompileResults(results, failures)


class CompileSession:
    """One compilation for several targets: the model exported once, its data, and its results in eager torch."""

    def __init__(self, model: Any, inputs: Any, calibration: Any, settings: Settings, stages: Stages) -> None:
        self.settings = settings
        self.stages = stages
        with stages("export"):
            self.exported = _export_model(model, inputs, settings.dynamic_shapes)
        example: Any = self.exported.example_inputs
        self.example = Call(*example)
        self._module = self.exported.module()
        self._compare_with(settings.original)
        with stages("read data"):
            self.samples = self._samples(calibration)
        self.calls, self.evaluated = self.samples.calibration, self.samples.evaluation
        if settings.recipe.compress:
            with stages("compress"):
                self._compress(model, inputs)
        self._was_exported = isinstance(model, ExportedProgram)  # by the user
        self.quantization = self._quantization()
        if settings.train is not None:
            self.quantization.trainer = self._trainer(model, settings.train)
        self._reference_results: list[list[Any]] = []
        self._bounds: dict[str, tuple[Call, list[Any]]] = {}
        self.measured: dict[str, Any] = {}  # errors of layers (``compare``), by the key of the quantized model

    def with_settings(self, settings: Settings) -> CompileSession:
        """A session of the same model and data, whose reference results both share. ``settings``: others for
        quantizing, lowering and measuring; a model is neither exported, compressed nor trained by them."""
        other = copy.copy(self)
        other.settings, other.measured = settings, {}
        other.quantization = other._quantization()
        return other

    def _quantization(self) -> QuantizationPipeline:
        shapes = self.settings.dynamic_shapes
        if shapes is None and self._was_exported and self.settings.recipe.quantizes:
            shapes = dynamic_shapes_of(self.exported)
        integer_io = bool(self.settings.integer_io)
        return QuantizationPipeline(self.exported, self.calls, self.stages, shapes, self.settings.runtime, integer_io)

    def _compare_with(self, original: Any) -> None:
        """Set the model that results are compared with: the user's, or the float model it was quantized from."""
        self.quantized_before = original is None and is_quantized(self.exported.graph)
        self.original, self._original_module = self.exported, self._module
        if original is None:
            return
        with self.stages("export"):
            if isinstance(original, torch.nn.Module):
                shapes = self.settings.dynamic_shapes
                with eval_mode(original):
                    self.original = export(original, self.example.args, self.example.kwargs, shapes)
            else:
                self.original = _export_model(original, None, None, "original")
        self._original_module = self.original.module()

    def _trainer(self, model: Any, train: Train) -> Trainer:
        recipe = self.settings.recipe
        if not recipe.quantizes:
            remedy = "Name a preset, such as quantize='int8' (--quantize int8)."
            raise UsageError("train", "is for quantized models", remedy=remedy)
        if is_best(recipe):
            raise UsageError(
                "train", "goes with a preset, and not with one that chooses methods", value=recipe.quantize
            )
        if not callable(train):
            raise UsageError("train", "must be a function of a model", value=type(train).__name__)
        return Trainer(train, model)

    def _compress(self, model: Any, inputs: Any) -> None:
        """Replace the model by one with compressed weights; results are still compared with the user's."""
        from edgewright.api.compress import compressed_copy, make_compression

        compression = make_compression(self.settings.recipe.compress, "recipe: compress")
        if self.settings.train is not None:
            remedy = "Compress first: compile(edgewright.compress(model, ...), ..., train=...)."
            raise UsageError("recipe: compress", "does not go with train=", remedy=remedy)
        if not self.calls:
            raise UsageError("recipe: compress", "needs calibration data", remedy="Pass calibration=, or --calibrate.")
        small, self.compressed = compressed_copy(model, self.calls, compression)
        self.exported = _export_model(small, inputs, self.settings.dynamic_shapes)
        self._module = self.exported.module()

    def _samples(self, calibration: Any) -> Samples:
        settings, evaluate = self.settings, self.settings.evaluate
        if isinstance(calibration, Samples):
            return calibration

        def load(source: Any, limit: int, name: str = "calibration") -> list[Call]:
            return load_calls(source, self.example, limit, settings.images, self._module.graph, name)

        if not isinstance(evaluate, int):
            calls = [] if calibration is None else load(calibration, settings.samples)
            return Samples(calls, load(evaluate, settings.samples, "evaluate"), "given")
        if calibration is None:
            return Samples([], [self.example][:evaluate], "example")
        if not settings.recipe.quantizes:
            calls = load(calibration, settings.samples)
            return Samples(calls, calls[:evaluate], "given")
        calls = load(calibration, settings.samples + max(0, evaluate))
        return hold_out(calls, settings.samples, evaluate, writes_state(self.exported))

    def eager(self, *args: Any, **kwargs: Any) -> Any:
        """The original model."""
        with torch.no_grad():
            return self._original_module(*args, **kwargs)

    def reference_results(self) -> list[list[Any]]:
        """The original's results for the evaluation inputs."""
        if not self._reference_results:
            self._reference_results += self.results_of(self.evaluated)  # in place: other sessions share them
        return self._reference_results

    def _reference_at_bounds(self) -> dict[str, tuple[Call, list[Any]]]:
        """Inputs and the original's results at the smallest, middle and largest of dynamic shapes. Raises if it cannot
        be called there: the program would promise what the model does not do."""
        if not self._bounds and self.evaluated and not self.quantized_before:
            found = {}
            for name, call in calls_at_bounds(self.exported, self.evaluated[0]).items():
                with self.stages("run here", f"{name} shape"), preserve_buffers(self.original):
                    found[name] = call, self._results_at(name, call)
            self._bounds.update(found)  # all or none, in place: other sessions share them, and raise as well
        return self._bounds

    def _results_at(self, name: str, call: Call) -> list[Any]:
        try:
            results = self.eager(*call.args, **call.kwargs)
        except Exception as error:
            shapes = ", ".join(str(list(x.shape)) for x in call.leaves() if isinstance(x, torch.Tensor))
            message = str(error).strip().split("\n")[0]
            rule = f"allow the {name} shapes {shapes}, which the model cannot be called with: {message}"
            least = " A Dim without min starts at 0: Dim('n', min=1, max=64)." if name == "smallest" else ""
            raise UsageError("dynamic_shapes", rule, remedy=f"Narrow their range.{least}") from error
        return [_array(leaf) for leaf in pytree.tree_leaves(results)]

    def results_of(self, calls: Sequence[Call], model: Callable[..., Any] | None = None) -> list[list[Any]]:
        """The results of the original, or of another model with its interface."""
        with preserve_buffers(self.original):
            results = [pytree.tree_leaves(call_model(model or self.eager, c, self.original)) for c in calls]
            return [[_array(leaf) for leaf in leaves] for leaves in results]

    def build(self, target: Target) -> CompileResult:
        times_before = dict(self.stages.times)
        recipe = self.settings.recipe.for_target(target.name)
        target = with_options(target, recipe.options)
        self.reference_results()  # rejects inputs that the model cannot run on before anything is compiled
        self._reference_at_bounds()
        quantized, trials, unquantized = self.quantize(target, recipe)
        exported, io = self._integer_io(recipe, quantized)
        with self.stages("lower", f"{target.name}: lower"):
            pipeline, edge, simulated = self._lower(target, exported)
            edge.quantized_io = io.facts()
            program = pipeline.finish(edge)
        report = CompileReport(target.name, target.backend, _precision(recipe), simulated, program.size)
        report.methods, report.program, report.trials = edge.partition_reports, program, trials
        for method in report.methods.values():
            method.unquantized = unquantized
        plans = program.executorch_program.execution_plan
        report.planned_bytes = sum(sum(plan.non_const_buffer_sizes) for plan in plans)
        called = {operator.key for plan in plans for operator in plan.operators or ()}
        report.own_kernels = tuple(sorted(called - set(OPERATORS)))
        result = CompileResult(program, exported, report, io)
        report.check = self._check(pipeline, target, result)
        self._evaluate(target, result)
        times = self.stages.times
        report.stages = {
            n: round(s - times_before.get(n, 0.0), 4) for n, s in times.items() if s > times_before.get(n, 0.0)
        }
        return result

    def quantize(self, target: Target, recipe: Recipe) -> tuple[ExportedProgram, tuple[Trial, ...], dict[str, str]]:
        """The quantized model, what was tried to choose it, and why layers are not quantized."""
        trials: tuple[Trial, ...] = ()
        if is_best(recipe):
            choice = choose(self, target, recipe)
            recipe, trials = choice.recipe, choice.trials
            self.quantization.statistics = ()  # of the preset without methods
        elif self.settings.select is not None:
            rule = "is the metric that a preset chooses methods by, such as int8-best"
            raise UsageError("select", rule, value=recipe.quantize or FLOAT)
        exported = self.quantization.run(target, recipe)
        return exported, trials, self.quantization.unquantized.get(target.name, {})

    def select_metric(self, model: Callable[..., Any]) -> float | None:
        """The metric of a quantized model that methods are chosen by; None without one."""
        return None if self.settings.select is None else evaluate_metric(self.settings.select, model, "select")

    def _integer_io(self, recipe: Recipe, exported: ExportedProgram) -> tuple[ExportedProgram, IntegerIO]:
        """The program with integer inputs and outputs if the settings ask for it, and how to convert to them."""
        if not self.settings.integer_io:
            return exported, IntegerIO()
        if not recipe.quantizes:
            remedy = "Name a preset, such as quantize='int8' (--quantize int8)."
            raise UsageError("integer_io", "is for quantized models", remedy=remedy)
        opened, parameters = integer_io(exported, *float_io(exported))
        io = IntegerIO(parameters)
        _check_io_types(self.settings.integer_io, io)
        return opened, io

    def lower_for(self, target: Target, exported: ExportedProgram) -> tuple[Any, str]:
        """The lowered program, and why it is for the host only ("" if it is for the device)."""
        options = self.settings.recipe.for_target(target.name).options
        _, edge, simulated = self._lower(with_options(target, options), exported)
        return edge, simulated

    def _lower(self, target: Target, exported: ExportedProgram) -> tuple[Pipeline, Any, str]:
        """The pipeline, the lowered program, and why it is for the host only ("" if it is for the device)."""
        simulates = find_backend(target.backend).simulates
        if self.settings.simulate is True and not simulates:
            log.warning("%s: simulate=True has no effect: the file is for the device, and runs here too", target.name)
        if self.settings.simulate is not True or not simulates:
            pipeline = self._pipeline(target, simulate_only=False)
            try:
                return pipeline, pipeline.lower(exported), "requested" if target.simulate_only else ""
            except MissingError as error:
                if not simulates or self.settings.simulate is False:
                    raise
                reason = f"{error.subject} {error.rule}"
                log.info("%s: %s; making a file for this machine only", target.name, reason)
        else:
            reason = "requested"
        pipeline = self._pipeline(target, simulate_only=True)
        return pipeline, pipeline.lower(exported), reason

    def _pipeline(self, target: Target, *, simulate_only: bool) -> Pipeline:
        cls, settings = find_partitioner(target.backend), self.settings

        def partitioners() -> list[Any]:
            if target.spec is not None:
                return [cls.for_spec(target.spec, simulate_only=simulate_only)]
            return [(cls.for_simulation if simulate_only else cls.for_target)(target.argument)]

        return Pipeline([target.backend], partitioners, settings.runtime, settings.config)

    def _check(self, pipeline: Pipeline, target: Target, result: CompileResult) -> Check:
        """Compare the file with the graph it was lowered from, on the user's inputs."""
        if not self.settings.check:
            return Check(skipped=NOT_REQUESTED)
        with self.stages("check", f"{target.name}: check"), quiet_torch():
            data = [] if self.samples.origin == "example" else [*self.evaluated, *self.calls]
            cases = [
                [Call(tuple(result.io.quantize(call.leaves()))) for call in case] if result.io else case
                for case in check_cases(self.exported, self.example, data)
            ]
            return pipeline.check(target.name, result.program, result.exported, cases)

    def _evaluate(self, target: Target, result: CompileResult) -> None:
        if not self.evaluated:
            return
        report = result.report
        method = result.method()
        meter = self._measure(target, result, method)
        report.samples, report.evaluated_on = len(self.evaluated), self.samples.origin
        if self.quantized_before:
            report.evaluated_on = "nothing"
        else:
            report.meter = meter
            report.set_accuracy(meter.result())
            if report.one_sided:
                log.warning("%s: %s", target.name, report.one_sided)
            report.shapes = self._at_bounds(target, result)
        if self.settings.metric is not None:
            with self.stages("metric", f"{target.name}: metric"):
                report.metric = evaluate_metric(self.settings.metric, result.run_real)
        if target.name == _TIMED_TARGET:
            report.host_ms = _median_ms(method, result.io.quantize(self.evaluated[0].leaves()))
        method.close()

    def _measure(self, target: Target, result: CompileResult, method: Any) -> AccuracyMeter:
        """The accuracy of the evaluation inputs: by chunks, as several processes would measure it."""
        meter, expected = AccuracyMeter(), self.reference_results()
        with self.stages("run here", f"{target.name}: run here", total=len(self.evaluated)) as step:
            for numbers in chunks_of(range(len(self.evaluated))):
                part = slice(numbers[0], numbers[-1] + 1)
                meter.merge(self.measure_calls(result.io, method, self.evaluated[part], expected[part], step))
        return meter

    def measure_calls(
        self, io: IntegerIO, method: Any, calls: Sequence[Call], expected: Sequence[Any] = (), step: Any = None
    ) -> AccuracyMeter:
        """The accuracy of a loaded method on some inputs. ``expected``: the original's results, if they are known."""
        meter = AccuracyMeter(GraphInterpreter(self.original).outputs)
        for call, results in zip(calls, expected or self.results_of(calls), strict=True):
            meter.add(results, io.execute(method, call.leaves()))
            if step is not None:
                step()
        return meter

    def _at_bounds(self, target: Target, result: CompileResult) -> dict[str, float]:
        """The SQNR at the smallest, middle and largest of dynamic shapes."""
        by_shape, nodes = {}, GraphInterpreter(self.original).outputs
        for name, (call, expected) in self._reference_at_bounds().items():
            with self.stages("run here", f"{target.name}: {name} shape"):
                try:
                    outputs = result.execute(result.method(), call.leaves())
                except EdgewrightError as error:
                    error.remedy = f"At the {name} shape of the model's dynamic ones. {error.remedy}".strip()
                    raise
                decibels = accuracy(nodes, [(expected, outputs)]).sqnr
                if decibels is not None:
                    by_shape[name] = decibels
        return by_shape


def _check_io_types(requested: bool | str, io: IntegerIO) -> None:
    for name, facts in io.facts().items():
        if isinstance(requested, str) and facts["type"] != requested:
            remedy = "Quantize it to this type, or pass integer_io=True (--integer-io) to accept any."
            raise UsageError(f"integer_io: {name}", f"must be {requested}", value=facts["type"], remedy=remedy)


def evaluate_metric(metric: Metric, model: Callable[..., Any], name: str = "metric") -> float:
    """Evaluate the user's metric on a model with the interface of the original. It must be finite: NaN is neither
    better nor worse than anything, and JSON has no infinity."""
    try:
        value = float(metric(model))
    except EdgewrightError:
        raise
    except Exception as error:
        raise AccuracyError(name, f"raised {type(error).__name__}: {error}") from error
    if not math.isfinite(value):
        remedy = "Return one, also where the mean is of nothing, or no error is left: min(psnr, 200.0)."
        raise AccuracyError(name, "must return a finite number", value=value, remedy=remedy)
    return value


def _median_ms(method: Any, leaves: list[Any]) -> float:
    times = []
    for _ in range(_TIMING_RUNS):
        start = time.perf_counter()
        method.execute(leaves)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def _precision(recipe: Recipe) -> str:
    named = recipe.quantize or FLOAT
    mixed = {*recipe.modules.values(), *recipe.operators.values()} - {named}
    return f"{named} + {', '.join(sorted(mixed))}" if mixed else named


def _export_model(model: Any, inputs: Any, dynamic_shapes: Any, name: str = "model") -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        if model.example_inputs is None:
            raise UsageError(name, "must be exported with example inputs")
        return model
    if not isinstance(model, torch.nn.Module):
        remedy = "Create or load the model first, and pass the object." if isinstance(model, str | type) else ""
        if isinstance(model, Mapping):
            remedy = "Weights alone are no model: create it, and model.load_state_dict(weights)."
        raise UsageError(name, "must be an nn.Module or an ExportedProgram", value=type(model).__name__, remedy=remedy)
    if inputs is None:
        raise UsageError("inputs", "are required: example inputs that the model can be called with")
    with eval_mode(model):
        if isinstance(inputs, Mapping):
            return export(model, (), inputs, dynamic_shapes)
        args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        return export(model, args, None, dynamic_shapes)


def _array(value: Any) -> Any:
    return to_array("result", value).copy() if isinstance(value, torch.Tensor) else value

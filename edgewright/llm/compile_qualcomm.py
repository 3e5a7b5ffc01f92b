"""Checkpoints to programs for Qualcomm's SoCs: ``prefill_forward`` and ``kv_forward``, in one context.

Weights are quantized, ranges of activations are observed on a text, and both methods are built with the same weights
and encodings; Qualcomm's compiler stores equal weights once. Large models are cut into shards of consecutive layers,
each of which is a context of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from edgewright.backends.qualcomm import worker
from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.dialect.twin import expand_blocks
from edgewright.backends.qualcomm.emulator_server import release
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.qnn.info import BinaryReader
from edgewright.backends.qualcomm.qnn.library import find_folder
from edgewright.backends.qualcomm.sharing import SharedSpills
from edgewright.backends.qualcomm.target import (
    SIMULATED,
    QcomChipset,
    QnnTarget,
    chipset,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.backends.qualcomm.twin import make_twin
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.ir.graph import Graph, QParams
from edgewright.llm.calibrate import OWN_TOKENS, products_of
from edgewright.llm.calibration_text import LONG_TEXT, TEXT
from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.perplexity import ORIGINAL, STATIC, TOKENS, Perplexity
from edgewright.llm.program_file import (
    ConstantMethod,
    LlmReport,
    build_program,
    check_output,
    choose_lengths,
    describe,
    end_of_text_methods,
    write,
)
from edgewright.llm.qnn_graph import SharedConstants
from edgewright.llm.qnn_methods import MethodShape, build_shards, connect_shards
from edgewright.llm.static_decoder import Array, Ranges, StaticDecoder, logits_encoding
from edgewright.llm.static_reference import (
    NumpyOperators,
    RecordedInputs,
    ReferenceDecoder,
    StaticWeights,
    negative_log_likelihood,
)
from edgewright.llm.static_weights import ExactWeights, OriginalWeights, QuantizedCheckpoint, StaticPrecision
from edgewright.llm.text_windows import LENGTH, OWN_TEXT_LENGTH, read_tokens, tokens_of, windows_of
from edgewright.llm.vocabulary import Vocabulary, read_vocabulary
from edgewright.program.delegates import DelegatePool

_ID = "QnnBackend"
DEFAULT_PREFILL = 32
CALIBRATION_TOKENS = 2048
_MIN_ARCH = 73  # weight sharing, and 16-bit keys and values
_SHARD_BYTES = 3 << 30  # a context may have 4 GiB


@dataclass(frozen=True)
class QualcommOptions:
    """``shards``: contexts that the layers are divided among; None is as few as fit. ``weight_sharing``: methods share
    equal weights, which devices need and Qualcomm's emulator does not load. ``level``: effort of the compiler.
    ``simulate_only``: a program that runs on the host and never on a device, without Qualcomm's libraries."""

    shards: int | None = None
    weight_sharing: bool = True
    level: int = 3
    simulate_only: bool = False


def language_model_socs() -> list[str]:
    """SoCs that language models are compiled for."""
    return [soc.name for soc in QcomChipset if QnnTarget(soc, False).htp.arch >= _MIN_ARCH]


def compile_for_qualcomm(
    checkpoint: str | Path | Checkpoint, output: str | Path, target: str, precision: StaticPrecision | None = None, *,
    options: QualcommOptions | None = None, prefill_len: int | None = None, max_context_len: int | None = None,
    vocabulary: Vocabulary | None = None, calibrate: str | Path | Array | None = None,
    perplexity: str | Path | None = None, perplexity_tokens: int = TOKENS, on_layer: Callable[[], None] = lambda: None,
) -> LlmReport:  # fmt: skip
    """Compile a checkpoint for a SoC. The host twin (``.twin``) and the tokenizer are written beside ``output``.

    ``prefill_len``: tokens of a call of ``prefill_forward``; ``max_context_len``: positions. ``calibrate``: the text
    that ranges of activations are observed on, instead of a short one of ours, or tokens [windows, length].
    """
    started = time.perf_counter()
    path, options, precision = check_output(output), options or QualcommOptions(), precision or StaticPrecision()
    soc = _target(target, options, 1).soc
    source = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    prefill, context = choose_lengths(source, prefill_len, max_context_len, DEFAULT_PREFILL)
    _check(source, options, prefill, context)
    if not options.simulate_only:
        find_folder()  # calibration takes minutes: raise before it
    vocabulary = vocabulary or read_vocabulary(source)
    weights = QuantizedCheckpoint(source, precision, context)
    windows = calibration_windows(calibrate, vocabulary, context, long=precision.linear == "16a4w")
    encodings = observe(source, weights, windows, precision.kv_bits, on_layer)
    measured = None
    if perplexity is not None:
        texts = windows_of(*read_tokens(perplexity, vocabulary), min(LENGTH, context), perplexity_tokens)
        measured = measure(source, weights, encodings, texts, context)
    shards = options.shards or _needed_shards(weights)
    shapes = [
        MethodShape(name, source.config, length, context, shards)
        for name, length in (("kv_forward", 1), ("prefill_forward", prefill))
    ]
    constants, qnn_target = SharedConstants(weights, encodings), _target(target, options, shards)
    graphs, compiler = (_lower_for_host if options.simulate_only else _lower)(shapes, constants, qnn_target)
    methods = constant_methods(source, vocabulary, encodings, precision, context)
    name = f"{soc.name}{SIMULATED}" if options.simulate_only else soc.name
    size, tokenizer, twin = _write(path, graphs, methods, source, precision, vocabulary, name)
    return LlmReport(
        path, source.config.family, source.parameters, size,
        time.perf_counter() - started, prefill, context, weights.parts, tokenizer, bool(vocabulary.chat_template),
        measured, int(windows.size), name, shards, twin, compiler,
    )  # fmt: skip


def _write(
    path: Path, graphs: Sequence[Graph], methods: Mapping[str, ConstantMethod], source: Checkpoint,
    precision: StaticPrecision, vocabulary: Vocabulary, soc: str,
) -> tuple[int, Path | None, Path | None]:  # fmt: skip
    """Write the program, its tokenizer and its twin: bytes of the program, and the files beside it."""
    blobs = DelegatePool()
    program = build_program(graphs, methods, blobs, plan_outputs=False)  # ExecuTorch's runner passes its own memory
    describe(program, source, asdict(precision), vocabulary, [soc])
    twin, twin_path = blobs.twin(), path.with_suffix(".twin")
    if twin is not None:
        write_file(twin_path, [twin])
    size, tokenizer = write(program, path, vocabulary)
    return size, tokenizer, None if twin is None else twin_path


# -------------------------------------------------------------------------------------------------------------- checks


def _target(name: str, options: QualcommOptions, shards: int) -> QnnTarget:
    soc = chipset(name)
    htp = generate_htp_compiler_spec(
        use_fp16=False, use_multi_contexts=shards > 1, use_weight_sharing=options.weight_sharing
    )
    specs = generate_qnn_executorch_compiler_spec(soc, htp, shared_buffer=options.weight_sharing)
    target = replace(QnnTarget.of(specs), level=options.level)
    if target.htp.arch < _MIN_ARCH:
        rule = f"must have a Hexagon of version {_MIN_ARCH} or later for language models"
        remedy = f"Supported: {', '.join(language_model_socs())}."
        raise UsageError(f"target {soc.name}", rule, value=f"v{target.htp.arch}", remedy=remedy)
    return target


def _check(source: Checkpoint, options: QualcommOptions, prefill: int, context: int) -> None:
    config, shards = source.config, options.shards
    if not 2 <= prefill < context:
        rule = f"must be from 2 to {context - 1}: fewer than the {context} positions of the context"
        raise UsageError("max_seq_len", rule, value=prefill)
    if shards is not None and (type(shards) is not int or not 1 <= shards <= config.layers):
        raise UsageError("shards", f"must be from 1 to {config.layers}, the number of layers", value=shards)


def _needed_shards(weights: QuantizedCheckpoint) -> int:
    size = sum(part.bytes for part in weights.parts.values())
    return min(-(-size // _SHARD_BYTES), weights.checkpoint.config.layers)


# --------------------------------------------------------------------------------------------------------- calibration


def calibration_windows(text: str | Path | Array | None, vocabulary: Vocabulary, context: int, *, long: bool) -> Array:
    """Tokens [windows, length] of a text, by default of ours; ``long``: as much of it as 4-bit weights need."""
    if isinstance(text, np.ndarray):
        return text
    limit = OWN_TOKENS if long else CALIBRATION_TOKENS
    if text is not None:
        return windows_of(*read_tokens(text, vocabulary), min(LENGTH, context), limit, spread=True)
    tokens = tokens_of(LONG_TEXT if long else TEXT, vocabulary)
    return windows_of(*tokens, min(OWN_TEXT_LENGTH, context), limit, spread=True)


def observe(
    source: Checkpoint, weights: QuantizedCheckpoint, windows: Array, kv_bits: int, on_layer: Callable[[], None]
) -> dict[str, QParams]:
    """Encodings of all activations, of the ranges that the model has on windows of a text.

    Weights of 4 bits are rounded by the same text, layer by layer: by the inputs that a layer has behind layers that
    are rounded already, and with its own weights before they are.
    """
    ranges = Ranges()
    operators = NumpyOperators(weights, ranges=ranges)
    decoder = ReferenceDecoder(StaticDecoder(source.config, operators), operators)
    hidden = decoder.start(windows)
    for index in range(source.config.layers):
        if weights.precision.linear == "16a4w":
            _calibrate(source, weights, index, hidden)
        hidden = decoder.layer(index, hidden)
        on_layer()
    decoder.logits(hidden)
    return ranges.encodings(kv_bits)


def _calibrate(source: Checkpoint, weights: QuantizedCheckpoint, index: int, hidden: list[Array]) -> None:
    """Round the weights of a layer by the inputs that it has on the text."""
    recorded = RecordedInputs(ExactWeights(weights))
    ReferenceDecoder(StaticDecoder(source.config, recorded), recorded).layer(index, hidden)
    for first, inputs in recorded.inputs.items():
        prefix, _, kind = first.rpartition(".")
        names = [f"{prefix}.{name}" for name in {"q": ("q", "k", "v"), "gate": ("gate", "up")}.get(kind, (kind,))]
        weights.calibrate(names, products_of(np.stack(inputs), first))


def measure(
    source: Checkpoint, weights: StaticWeights, encodings: Mapping[str, QParams], windows: Array, context: int
) -> Perplexity:
    """Perplexity of the fake-quantized model, beside that of the checkpoint's own values."""
    variants = {
        ORIGINAL: NumpyOperators(OriginalWeights(source, context)),
        STATIC: NumpyOperators(weights, encodings=encodings),
    }
    values = {}
    for name, operators in variants.items():
        logits = ReferenceDecoder(StaticDecoder(source.config, operators), operators).run(windows)
        total = sum(negative_log_likelihood(x[:-1], window[1:]) for x, window in zip(logits, windows, strict=True))
        values[name] = float(np.exp(total / windows[:, 1:].size))
    return Perplexity(int(windows[:, 1:].size), values, STATIC)


# ------------------------------------------------------------------------------------------------------------ lowering


@dataclass
class _Delegate:
    """A shard's blob and compile specs, which later shards may change: all declare the largest spill buffer."""

    blob: bytes
    compile_specs: list[tuple[str, bytes]]


def _lower(shapes: Sequence[MethodShape], constants: SharedConstants, target: QnnTarget) -> tuple[list[Graph], str]:
    """The methods' graphs of delegate calls, and the compiler's release. Each shard of all methods is one context."""
    by_method = [build_shards(shape, constants) for shape in shapes]
    compiler = ""
    spills, delegates, twins = SharedSpills(), [], []
    for together in zip(*by_method, strict=True):
        context = worker.compile_graphs_in_subprocess([(graph.name, graph) for graph in together], target)
        delegate = _Delegate(write_blob(context), [(KEY, target.value)])
        spills.add(target, delegate, context)
        compiler = f"QNN {_release_of(context)}"
        delegates.append(delegate)
        twins.append([make_twin(graph) for graph in expand_blocks(together)])
    methods = []
    for number, (shape, graphs) in enumerate(zip(shapes, by_method, strict=True)):
        calls = [
            {"id": _ID, "blob": d.blob, "specs": dict(d.compile_specs), "twin": twin[number]}
            for d, twin in zip(delegates, twins, strict=True)
        ]
        methods.append(connect_shards(shape, graphs, calls))
    return methods, compiler


def _release_of(context: bytes) -> str:
    reader = BinaryReader(context)
    try:
        return release(reader.info.build)
    finally:
        reader.close()


def _lower_for_host(
    shapes: Sequence[MethodShape], constants: SharedConstants, target: QnnTarget
) -> tuple[list[Graph], str]:
    """The methods' graphs for this machine only: blobs are host twins."""
    specs = {KEY: target.value, "target": f"{target.soc.name}{SIMULATED}".encode()}
    methods = []
    for shape in shapes:
        graphs = build_shards(shape, constants)
        blobs = [make_twin(graph) for graph in expand_blocks(graphs)]
        methods.append(connect_shards(shape, graphs, [{"id": _ID, "blob": b, "specs": specs} for b in blobs]))
    return methods, ""


def constant_methods(
    source: Checkpoint, vocabulary: Vocabulary, encodings: Mapping[str, QParams], precision: StaticPrecision,
    context: int,
) -> dict[str, ConstantMethod]:  # fmt: skip
    """What ExecuTorch's runner for Qualcomm learns from the program."""
    config, head = source.config, logits_encoding(source.config, encodings)
    methods: dict[str, ConstantMethod] = {
        "get_ar_len": 1, "get_dim": config.dim, "get_head_dim": config.head_dim,
        "get_max_batch_size": 1, "get_max_seq_len": context, "get_max_context_len": context, "get_n_bos": 1,
        "get_n_eos": 1, "get_n_kv_heads": config.kv_heads, "get_n_layers": config.layers,
        "get_vocab_size": config.vocab_size, "get_use_kv_cache": True, "get_kv_io_bit_width": precision.kv_bits,
        "get_sliding_window": config.window or context, "get_logits_scale": float(np.asarray(head.scale)),
        "get_logits_zero_point": int(np.asarray(head.zero_point)),
    }  # fmt: skip
    for layer in range(config.layers):
        for number, kind in enumerate(("key", "value")):
            q = encodings[f"layers.{layer}.cached_{kind}"]
            attributes = (float(np.asarray(q.scale)), int(np.asarray(q.zero_point)), q.qmin, q.qmax, str(q.dtype))
            methods[f"get_kv_output_{2 * layer + number}_quant_attr"] = attributes
    return {**methods, **end_of_text_methods(vocabulary)}

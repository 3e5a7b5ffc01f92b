"""``compile_checkpoint``: a GGUF file or a Hugging Face folder to one ``.pte``, without torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats import schema
from edgewright.formats.pte_writer import program_chunks
from edgewright.ir.graph import Array, Graph
from edgewright.llm.calibrate import TOKENS as CALIBRATION_TOKENS
from edgewright.llm.calibrate import Calibration
from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.decoder import build_decoder
from edgewright.llm.description import KEY, TOKENIZER_KEY, Description
from edgewright.llm.float_decoder import FloatDecoder
from edgewright.llm.perplexity import (
    CALIBRATED,
    FLOAT,
    NEAREST,
    SEARCHED,
    TOKENS,
    Perplexity,
    PerplexityMeasurement,
)
from edgewright.llm.text_windows import LENGTH, read_tokens, windows_of
from edgewright.llm.vocabulary import Vocabulary, read_vocabulary
from edgewright.llm.weights import DecoderWeights, PartReport, Precision
from edgewright.program import manifest
from edgewright.program.assemble import add_named_data, assemble
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.constants import ConstantPool
from edgewright.program.delegates import DelegatePool
from edgewright.program.emit import Emitter
from edgewright.program.memory import MemoryPlanningPass
from edgewright.program.plan_builder import EmitOptions, StockKernels

DEFAULT_MAX_SEQ, DEFAULT_MAX_CONTEXT = 512, 2048
_ALIGNMENT = 128
_MIN_CALIBRATION = 256  # tokens
ConstantMethod = Union[int, bool, float, Sequence[int]]


@dataclass(frozen=True)
class LlmReport:
    """What was compiled: bytes of the file, seconds, and each part's precision, size and error."""

    path: Path
    family: str
    parameters: int
    size: int
    seconds: float
    max_seq_len: int
    max_context_len: int
    parts: Mapping[str, PartReport]
    tokenizer: Path | None  # the file beside the program; None if the checkpoint has no tokenizer
    has_chat_template: bool
    perplexity: Perplexity | None  # None if there was no text to measure on
    calibrated_tokens: int  # of the calibration text; 0 if there was none


def compile_checkpoint(
    checkpoint: str | Path | Checkpoint, output: str | Path, precision: Precision | None = None, *,
    max_seq_len: int | None = None, max_context_len: int | None = None, vocabulary: Vocabulary | None = None,
    calibrate: str | Path | None = None, perplexity: str | Path | None = None, perplexity_tokens: int = TOKENS,
    on_layer: Callable[[], None] = lambda: None,
) -> LlmReport:  # fmt: skip
    """Compile a checkpoint to ``output``, and write its tokenizer beside it, as ``output``'s name with
    ``.tokenizer.json``.

    ``max_seq_len``: tokens of one call; ``max_context_len``: positions of the cache. ``vocabulary``: instead of the
    checkpoint's. ``calibrate``: a text by which 4-bit weights are rounded; ``perplexity``: a text of which the first
    ``perplexity_tokens`` tokens measure the program's weights beside the checkpoint's. ``on_layer`` is called after
    each layer.
    """
    started = time.perf_counter()
    path = Path(output)
    if path.suffix != ".pte":
        raise UsageError(str(path), "must end in .pte")
    source = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    precision = precision or Precision()
    max_seq, max_context = _lengths(source, max_seq_len, max_context_len)
    vocabulary = vocabulary or read_vocabulary(source)
    texts = _Texts(source, vocabulary, max_context)
    calibration = None if calibrate is None else texts.calibration(calibrate, precision)
    measurement = None
    if perplexity is not None:
        measurement = texts.measurement(perplexity, precision, perplexity_tokens, calibrated=calibration is not None)
    weights = DecoderWeights(source, precision, calibration=calibration, measurement=measurement, on_layer=on_layer)
    graph = build_decoder(source.config, weights, max_seq, max_context)
    program = _program(graph, constant_methods(source, vocabulary, max_seq, max_context))
    _describe(program, source, precision, vocabulary)
    size = write_file(path, program_chunks(program, _ALIGNMENT))
    tokenizer = path.with_suffix(".tokenizer.json") if vocabulary.tokenizer is not None else None
    if tokenizer is not None and vocabulary.tokenizer is not None:
        write_file(tokenizer, [vocabulary.tokenizer])
    seconds = time.perf_counter() - started
    parameters = sum(t.elements for t in source.tensors.values())
    return LlmReport(
        path, source.config.family, parameters, size, seconds, max_seq, max_context, weights.parts, tokenizer,
        bool(vocabulary.chat_template), weights.perplexity, 0 if calibration is None else calibration.tokens,
    )  # fmt: skip


@dataclass(frozen=True)
class _Texts:
    """What texts are used for."""

    source: Checkpoint
    vocabulary: Vocabulary
    max_context: int

    def calibration(self, path: str | Path, precision: Precision) -> Calibration:
        if precision.linear != "8da4w":
            raise UsageError("calibration", "is for 4-bit linear layers (8da4w)", value=precision.linear)
        windows = windows_of(*read_tokens(path, self.vocabulary), self._length, CALIBRATION_TOKENS, spread=True)
        if windows.size < _MIN_CALIBRATION:
            rule = f"must have at least {_MIN_CALIBRATION} tokens to calibrate on"
            raise UsageError(str(path), rule, value=windows.size)
        return Calibration(self._decoder(windows), windows, precision.group_size)

    def measurement(
        self, path: str | Path, precision: Precision, limit: int, *, calibrated: bool
    ) -> PerplexityMeasurement:
        if limit < 2:
            raise UsageError("tokens of perplexity", "must be 2 or more", value=limit)
        windows = windows_of(*read_tokens(path, self.vocabulary), self._length, limit)
        linear = precision.linear
        program = {"8da4w": CALIBRATED if calibrated else SEARCHED, "int8": NEAREST, "fp32": FLOAT}[linear]
        group = precision.group_size if linear == "8da4w" else 0
        return PerplexityMeasurement(self._decoder(windows), windows, program, group=group, dynamic=linear != "fp32")

    @property
    def _length(self) -> int:
        return min(LENGTH, self.max_context)

    def _decoder(self, windows: Array) -> FloatDecoder:
        return FloatDecoder(self.source, windows.shape[1], self.max_context)


def _lengths(source: Checkpoint, max_seq: int | None, max_context: int | None) -> tuple[int, int]:
    """The length of a call and of the context, which the model's own context bounds."""
    limit = source.config.context_length
    context = min(DEFAULT_MAX_CONTEXT, limit) if max_context is None else max_context
    seq = min(DEFAULT_MAX_SEQ, context) if max_seq is None else max_seq
    for name, value, bound in (("max_context_len", context, limit), ("max_seq_len", seq, context)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= bound:
            raise UsageError(name, f"must be from 1 to {bound}", value=value)
    return seq, context


def constant_methods(
    source: Checkpoint, vocabulary: Vocabulary, max_seq: int, max_context: int
) -> dict[str, ConstantMethod]:
    """The methods by which runners learn what the program is. A list has one output for each number."""
    config = source.config
    methods: dict[str, ConstantMethod] = {
        "get_max_seq_len": max_seq, "get_max_context_len": max_context, "get_vocab_size": config.vocab_size,
        "get_n_layers": config.layers, "get_n_kv_heads": config.kv_heads, "get_head_dim": config.head_dim,
        "get_max_batch_size": 1, "get_dtype": 6, "use_kv_cache": True, "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": max_seq > 1,
    }  # fmt: skip
    if vocabulary.bos_id is not None:
        methods["get_bos_id"] = vocabulary.bos_id
    if vocabulary.eos_ids:
        methods["get_eos_ids"] = list(vocabulary.eos_ids)
        methods["get_eos_id"] = vocabulary.eos_ids[0]
    return methods


def _program(graph: Graph, methods: Mapping[str, ConstantMethod]) -> schema.Program:
    constants, states, blobs = ConstantPool(), ConstantPool(1), DelegatePool()
    options = EmitOptions(MemoryPlanningPass(alloc_graph_input=False), StockKernels())
    plans = [Emitter(graph, options, constants, states, blobs).plan(("", ""))]
    for name, value in methods.items():
        outputs = list(value) if isinstance(value, Sequence) else [value]
        plan = Emitter(Graph(name, [], outputs), options, constants, states).plan(("", ""))
        plan.non_const_buffer_sizes = [0]
        plans.append(plan)
    return assemble(plans, constants, states, blobs, blobs.named_data, ExecutorchBackendConfig())


def _describe(program: schema.Program, source: Checkpoint, precision: Precision, vocabulary: Vocabulary) -> None:
    """Add what the command line and the server need, under names that other runtimes ignore."""
    description = Description(
        family=source.config.family,
        config=source.config.to_dict(),
        quantization={"linear": precision.linear, "group_size": precision.group_size,
                      "embedding": precision.embedding, "head": precision.head},
        chat_template=vocabulary.chat_template,
        special_tokens=dict(vocabulary.special_tokens),
        generation=dict(vocabulary.generation),
    )  # fmt: skip
    add_named_data(program, KEY, description.to_json(), _ALIGNMENT)
    if vocabulary.tokenizer is not None:
        add_named_data(program, TOKENIZER_KEY, vocabulary.tokenizer, _ALIGNMENT)
    content = manifest.build(program, manifest.targets_of(program), StockKernels.name)
    add_named_data(program, manifest.KEY, content, _ALIGNMENT)

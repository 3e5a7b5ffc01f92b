"""``compile_checkpoint``: a GGUF file or a Hugging Face folder to one ``.pte``, without torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgewright.errors import UsageError
from edgewright.ir.graph import Array
from edgewright.llm.calibrate import OWN_TOKENS, TOKENS, Calibration
from edgewright.llm.calibration_text import LONG_TEXT
from edgewright.llm.checkpoint import Checkpoint, open_checkpoint
from edgewright.llm.decoder import build_decoder
from edgewright.llm.float_decoder import FloatDecoder
from edgewright.llm.perplexity import CALIBRATED, FLOAT, NEAREST, SEARCHED, PerplexityMeasurement
from edgewright.llm.perplexity import TOKENS as PERPLEXITY_TOKENS
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
from edgewright.llm.text_windows import LENGTH, OWN_TEXT_LENGTH, read_tokens, tokens_of, windows_of
from edgewright.llm.vocabulary import Vocabulary, read_vocabulary
from edgewright.llm.weights import DecoderWeights, Precision
from edgewright.program.delegates import DelegatePool

DEFAULT_MAX_SEQ = 512
SMALL = 500_000_000  # parameters: smaller models lose much to 4 bits
_MIN_CALIBRATION = 256  # tokens


def compile_checkpoint(
    checkpoint: str | Path | Checkpoint, output: str | Path, precision: Precision | None = None, *,
    max_seq_len: int | None = None, max_context_len: int | None = None, vocabulary: Vocabulary | None = None,
    calibrate: str | Path | bool | None = None, perplexity: str | Path | None = None,
    perplexity_tokens: int = PERPLEXITY_TOKENS, on_layer: Callable[[], None] = lambda: None,
) -> LlmReport:  # fmt: skip
    """Compile a checkpoint to ``output``, and write its tokenizer beside it, as ``output``'s name with
    ``.tokenizer.json``.

    ``max_seq_len``: tokens of one call; ``max_context_len``: positions of the cache. ``vocabulary``: instead of the
    checkpoint's. ``calibrate``: a text by which 4-bit weights are rounded, True for one of ours, False for none; by
    default ours, if the model is small. ``perplexity``: a text of which the first ``perplexity_tokens`` tokens measure
    the program's weights beside the checkpoint's. ``on_layer`` is called after each layer.
    """
    started = time.perf_counter()
    path = check_output(output)
    source = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    precision = precision or Precision()
    max_seq, max_context = choose_lengths(source, max_seq_len, max_context_len, DEFAULT_MAX_SEQ)
    vocabulary = vocabulary or read_vocabulary(source)
    texts = _Texts(source, vocabulary, max_context)
    calibration = texts.calibration(calibrate, precision)
    measurement = None
    if perplexity is not None:
        measurement = texts.measurement(perplexity, precision, perplexity_tokens, calibrated=calibration is not None)
    weights = DecoderWeights(source, precision, calibration=calibration, measurement=measurement, on_layer=on_layer)
    graph = build_decoder(source.config, weights, max_seq, max_context, precision.kv_cache)
    methods = constant_methods(source, vocabulary, max_seq, max_context)
    program = build_program([graph], methods, DelegatePool())
    quantization = {
        "linear": precision.linear, "group_size": precision.group_size, "embedding": precision.embedding,
        "head": precision.head, "kv_cache": precision.kv_cache,
    }  # fmt: skip
    describe(program, source, quantization, vocabulary)
    size, tokenizer = write(program, path, vocabulary)
    seconds = time.perf_counter() - started
    return LlmReport(
        path, source.config.family, source.parameters, size, seconds, max_seq, max_context, weights.parts, tokenizer,
        bool(vocabulary.chat_template), weights.perplexity, 0 if calibration is None else calibration.tokens,
    )  # fmt: skip


@dataclass(frozen=True)
class _Texts:
    """What texts are used for."""

    source: Checkpoint
    vocabulary: Vocabulary
    max_context: int

    def calibration(self, text: str | Path | bool | None, precision: Precision) -> Calibration | None:
        if text is None:
            text = self._needs_calibration(precision)
        if text is False:
            return None
        if precision.linear != "8da4w":
            raise UsageError("calibration", "is for 4-bit linear layers (8da4w)", value=precision.linear)
        if text is True:
            tokens, length, limit = tokens_of(LONG_TEXT, self.vocabulary), OWN_TEXT_LENGTH, OWN_TOKENS
        else:
            tokens, length, limit = read_tokens(text, self.vocabulary), LENGTH, TOKENS
        windows = windows_of(*tokens, min(length, self.max_context), limit, spread=True)
        if windows.size < _MIN_CALIBRATION:
            rule = f"must have at least {_MIN_CALIBRATION} tokens to calibrate on"
            raise UsageError("our text" if text is True else str(text), rule, value=windows.size)
        return Calibration(self._decoder(windows), windows, precision.group_size)

    def _needs_calibration(self, precision: Precision) -> bool:
        """Whether to calibrate by our text: small models lose most to 4 bits, and large ones take minutes. Not if the
        tokenizer does not know our letters."""
        if precision.linear != "8da4w" or self.source.parameters >= SMALL or self.vocabulary.tokenizer is None:
            return False
        return len(tokens_of(LONG_TEXT, self.vocabulary)[1]) >= 2 * _MIN_CALIBRATION

    def measurement(
        self, path: str | Path, precision: Precision, limit: int, *, calibrated: bool
    ) -> PerplexityMeasurement:
        if limit < 2:
            raise UsageError("tokens of perplexity", "must be 2 or more", value=limit)
        windows = windows_of(*read_tokens(path, self.vocabulary), min(LENGTH, self.max_context), limit)
        linear = precision.linear
        program = {"8da4w": CALIBRATED if calibrated else SEARCHED, "int8": NEAREST, "fp32": FLOAT}[linear]
        group = precision.group_size if linear == "8da4w" else 0
        return PerplexityMeasurement(self._decoder(windows), windows, program, group=group, dynamic=linear != "fp32")

    def _decoder(self, windows: Array) -> FloatDecoder:
        return FloatDecoder(self.source, windows.shape[1], self.max_context)


def constant_methods(
    source: Checkpoint, vocabulary: Vocabulary, max_seq: int, max_context: int
) -> dict[str, ConstantMethod]:
    """The methods by which runners learn what the program is. A list has one output for each number."""
    config = source.config
    return {
        "get_max_seq_len": max_seq, "get_max_context_len": max_context, "get_vocab_size": config.vocab_size,
        "get_n_layers": config.layers, "get_n_kv_heads": config.kv_heads, "get_head_dim": config.head_dim,
        "get_max_batch_size": 1, "get_dtype": 6, "use_kv_cache": True, "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": max_seq > 1, **end_of_text_methods(vocabulary),
    }  # fmt: skip

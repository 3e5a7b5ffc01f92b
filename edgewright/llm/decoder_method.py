"""The method of a language model's ``.pte`` that computes logits, in the conventions of the stock runtime's runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgewright.errors import FormatError, UsageError
from edgewright.runtime.metadata import ScalarInfo, TensorInfo
from edgewright.runtime.program import LoadedProgram

_RING_CACHE = "llama::update_cache_with_indices"
_REMEDY = "edgewright llm compile makes such a file; edgewright inspect shows what this one has."


class Decoder(Protocol):
    """What generation needs of a model. It keeps one row of state for each position."""

    vocabulary: int
    context_length: int
    chunk_length: int  # the most tokens of one call
    rewindable: bool  # rows before a position stay valid, so that a call may start at any earlier one
    any_length: bool  # calls of all lengths cost the same, up to ``chunk_length``

    def forward(self, tokens: Sequence[int], position: int) -> NDArray[np.float32]:
        """The logits after the last token; the first one is at ``position``."""

    def reset(self) -> None:
        """Forget all rows."""


class DecoderMethod:
    """``forward(tokens, input_pos)``: positions are the first one, ``[1]``, or all of them, ``[S]``."""

    any_length = False  # machine code is generated for each length

    def __init__(self, program: LoadedProgram) -> None:
        name = "forward"
        if name not in program.method_names:
            methods = ", ".join(program.method_names[:8])
            raise UsageError("language model", f"must have a method {name!r}", value=methods, remedy=_REMEDY)
        metadata = program.metadata(name)
        tokens, positions = _inputs(metadata.inputs)
        self._all_positions = positions.shape[0] > 1
        self.chunk_length = tokens.shape[1]
        self.vocabulary = _vocabulary(metadata.outputs)
        self.rewindable = not any(operator.startswith(_RING_CACHE) for operator in metadata.operators)
        lengths = [constants(program, key) for key in ("get_max_context_len", "get_max_seq_len")]
        self.context_length = next((int(values[0]) for values in lengths if values), 0)
        if self.context_length < 2:
            rule = "must be 2 or more: the length of the context"
            raise FormatError(rule, value=self.context_length, where="get_max_context_len")
        self._method = program.load_method(name)

    def forward(self, tokens: Sequence[int], position: int) -> NDArray[np.float32]:
        count = len(tokens)
        positions = np.arange(position, position + count) if self._all_positions else np.array([position])
        (logits,) = self._method.execute([np.array([tokens], np.int64), positions.astype(np.int64)])
        last: NDArray[np.float32] = np.asarray(logits).reshape(-1, self.vocabulary)[-1].astype(np.float32, copy=False)
        return last

    def reset(self) -> None:
        self._method.reset()

    def close(self) -> None:
        self._method.close()


def constants(program: LoadedProgram, name: str) -> list[Any]:
    """The values of a constant method, empty if the program has none of that name."""
    if name not in program.method_names:
        return []
    outputs = program.metadata(name).outputs
    values = [output.value for output in outputs if isinstance(output, ScalarInfo)]
    if len(values) != len(outputs) or not all(isinstance(v, bool | int | float) for v in values):
        raise FormatError("must return numbers", where=f"method {name!r}")
    return values


def _inputs(inputs: Sequence[TensorInfo | ScalarInfo]) -> tuple[TensorInfo, TensorInfo]:
    shown = ", ".join(map(str, inputs))
    if len(inputs) == 2:
        tokens, positions = inputs
        if isinstance(tokens, TensorInfo) and isinstance(positions, TensorInfo):
            is_row = len(tokens.shape) == 2 and tokens.shape[0] == 1 and (tokens.dynamic or tokens.shape[1] == 1)
            if is_row and len(positions.shape) == 1 and {tokens.dtype, positions.dtype} == {"int64"}:
                return tokens, positions
    rule = "must take tokens, int64 [1, S] with S dynamic or 1, and positions, int64 [1] or [S]"
    raise UsageError("method 'forward'", rule, value=shown, remedy=_REMEDY)


def _vocabulary(outputs: Sequence[TensorInfo | ScalarInfo]) -> int:
    if len(outputs) == 1 and isinstance(outputs[0], TensorInfo):
        logits = outputs[0]
        if len(logits.shape) in (2, 3) and logits.shape[0] == 1 and logits.dtype in ("float32", "float16", "bfloat16"):
            return logits.shape[-1]
    rule = "must return logits, float [1, V] or [1, S, V]"
    raise UsageError("method 'forward'", rule, value=", ".join(map(str, outputs)), remedy=_REMEDY)

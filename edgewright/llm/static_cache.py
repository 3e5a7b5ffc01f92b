"""Programs whose caches belong to the caller: ``prefill_forward`` for prompts and ``kv_forward`` for single tokens, in
the conventions of ExecuTorch's runner for Qualcomm's SoCs ("smart mask").

A call of A tokens in a context of C positions takes caches of C - A positions, and returns only its own keys and
values, which are then copied into the caches. Columns of a mask are the cache's, then the call's own; the largest
integer is visible, 0 is not. Positions that are not visible may hold anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewright.errors import FormatError, UsageError
from edgewright.llm.decoder_method import constants
from edgewright.runtime.metadata import ScalarInfo, TensorInfo
from edgewright.runtime.method import Method
from edgewright.runtime.program import LoadedProgram

KV, PREFILL = "kv_forward", "prefill_forward"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Interface:
    """Sizes of a method, from its inputs and outputs."""

    length: int
    context: int
    windowed: bool  # there is a second mask, of sliding layers
    keys: tuple[TensorInfo, ...]
    values: tuple[TensorInfo, ...]
    mask: TensorInfo
    logits: TensorInfo


class StaticCacheDecoder:
    """Runs the two methods, or ``kv_forward`` alone, and keeps the caches."""

    rewindable = True
    any_length = True

    def __init__(self, program: LoadedProgram) -> None:
        self._program = program
        self._layers = _layers(program)
        self._kv = _interface(program, KV, self._layers)
        self._prefill = _interface(program, PREFILL, self._layers) if PREFILL in program.method_names else self._kv
        _check_pair(self._kv, self._prefill)
        self._methods: dict[str, Method] = {}
        self.context_length = self._kv.context
        self.chunk_length = self._prefill.length
        self.vocabulary = self._kv.logits.shape[2]
        self._window = _window(program, self.context_length) if self._kv.windowed else 0
        self._scale, self._zero = _logits_encoding(program, self._kv.logits)
        self._keys = [np.zeros(info.shape, info.dtype) for info in self._kv.keys]
        self._values = [np.zeros(info.shape, info.dtype) for info in self._kv.values]

    def forward(self, tokens: Sequence[int], position: int) -> NDArray[np.float32]:
        """The logits after the last token."""
        at, result = 0, None
        while at < len(tokens):
            left, start = len(tokens) - at, position + at
            fits = start + self._prefill.length <= self.context_length
            several = left > 1 and self._prefill.length > 1 and fits
            count = min(left, self._prefill.length) if several else 1
            result = self._call(PREFILL if several else KV, tokens[at : at + count], start)
            at += count
        assert result is not None
        return (result.astype(np.float32) - np.float32(self._zero)) * np.float32(self._scale)

    def _call(self, name: str, tokens: Sequence[int], start: int) -> Array:
        """One call; the last token's logits as they are stored."""
        shape = self._kv if name == KV else self._prefill
        length, count, held = shape.length, len(tokens), shape.context - shape.length
        padded = np.zeros((1, length), np.int32)
        padded[0, :count] = tokens
        positions = np.arange(start, start + length, dtype=np.int32)[None]
        masks = [smart_mask(length, shape.context, start, 0, shape.mask.dtype)]
        if shape.windowed:
            masks.append(smart_mask(length, shape.context, start, self._window, shape.mask.dtype))
        keys = [np.ascontiguousarray(k[..., :held]) for k in self._keys]
        values = [np.ascontiguousarray(v[:, :, :held]) for v in self._values]
        logits, *rows = self._method(name).execute([padded, *masks, positions, *keys, *values])
        self._store(rows, start, count)
        last: Array = np.asarray(logits)[0, count - 1]
        return last

    def _store(self, rows: Sequence[Any], start: int, count: int) -> None:
        """Copy the new keys and values of ``count`` tokens into the caches. The last position of the context has no
        successor that would read it."""
        end = min(start + count, self.context_length - 1)
        for layer in range(self._layers):
            self._keys[layer][..., start:end] = np.asarray(rows[layer])[..., : end - start]
            self._values[layer][:, :, start:end] = np.asarray(rows[self._layers + layer])[:, :, : end - start]

    def _method(self, name: str) -> Method:
        if name not in self._methods:
            self._methods[name] = self._program.load_method(name)
        return self._methods[name]

    def reset(self) -> None:
        """Nothing to forget: masks show only what a prompt has written."""

    def close(self) -> None:
        for method in self._methods.values():
            method.close()


def smart_mask(length: int, context: int, past: int, window: int, dtype: str) -> Array:
    """The mask [1, 1, A, C] of a call of A tokens after ``past`` others; ``window``: of sliding layers, else 0."""
    held = context - length
    positions = np.concatenate([np.arange(held), past + np.arange(length)])  # of the columns
    written = np.concatenate([np.arange(held) < past, np.ones(length, bool)])
    distance = (past + np.arange(length))[:, None] - positions
    visible = written & (distance >= 0) & (distance < (window or context))
    largest: Any = np.iinfo(dtype).max
    return np.where(visible, largest, 0).astype(dtype)[None, None]


# ------------------------------------------------------------------------------------------------------ from a program


def _layers(program: LoadedProgram) -> int:
    counts = constants(program, "get_n_layers")
    if len(counts) != 1 or not isinstance(counts[0], int) or not 1 <= counts[0] <= 1024:
        raise FormatError("must return the number of layers, 1 to 1024", where="get_n_layers", value=counts[:4])
    return counts[0]


def _interface(program: LoadedProgram, name: str, layers: int) -> _Interface:
    metadata = program.metadata(name)
    inputs, outputs = _tensors(metadata.inputs, name), _tensors(metadata.outputs, name)
    extra = len(inputs) - 2 * layers
    if extra not in (3, 4) or len(outputs) != 1 + 2 * layers:
        rule = f"must take tokens, masks, positions and 2 caches of each of {layers} layers, and return logits and rows"
        raise UsageError(f"method {name!r}", rule, value=f"{len(inputs)} inputs, {len(outputs)} outputs")
    tokens, mask, positions = inputs[0], inputs[1], inputs[extra - 1]
    keys, values = inputs[extra : extra + layers], inputs[extra + layers :]
    if len(tokens.shape) != 2 or len(mask.shape) != 4 or len(outputs[0].shape) != 3:
        raise UsageError(f"method {name!r}", "must take tokens [1, A] and a mask [1, 1, A, C]", value=str(mask.shape))
    length, context = tokens.shape[1], mask.shape[3]
    _check_types(name, [tokens, positions], ("int32",), "tokens and positions")
    _check_types(name, [*inputs[1 : extra - 1], *keys, *values, *outputs], ("uint8", "uint16"), "masks and caches")
    found = _Interface(length, context, extra == 4, tuple(keys), tuple(values), mask, outputs[0])
    _check_shapes(name, found, [tokens, positions], inputs[1 : extra - 1], outputs[1:])
    return found


def _check_shapes(
    name: str, found: _Interface, tokens: Sequence[TensorInfo], masks: Sequence[TensorInfo], rows: Sequence[TensorInfo]
) -> None:
    length, context, layers = found.length, found.context, len(found.keys)
    first = found.keys[0].shape
    heads, size, held = (*first[1:3], context - length) if len(first) == 4 else (0, 0, 0)
    groups: list[tuple[str, Sequence[TensorInfo], tuple[int, ...]]] = [
        ("tokens and positions", tokens, (1, length)),
        ("masks", masks, (1, 1, length, context)),
        ("keys", found.keys, (1, heads, size, held)),
        ("values", found.values, (1, heads, held, size)),
        ("new keys", rows[:layers], (1, heads, size, length)),
        ("new values", rows[layers:], (1, heads, length, size)),
        ("logits", [found.logits], (1, length, found.logits.shape[-1])),
    ]
    for part, tensors, shape in groups:
        for info in tensors:
            if tuple(info.shape) != shape or 0 in shape or info.dynamic:
                raise UsageError(f"{part} of method {name!r}", f"must have shape {list(shape)}", value=list(info.shape))


def _tensors(items: Sequence[TensorInfo | ScalarInfo], name: str) -> list[TensorInfo]:
    tensors = [item for item in items if isinstance(item, TensorInfo)]
    if len(tensors) != len(items):
        shown = ", ".join(map(str, items))[:200]
        raise UsageError(f"method {name!r}", "must take and return tensors only", value=shown)
    return tensors


def _check_types(name: str, tensors: Sequence[TensorInfo], dtypes: tuple[str, ...], subject: str) -> None:
    wrong = next((info.dtype for info in tensors if info.dtype not in dtypes), None)
    if wrong is not None:
        raise UsageError(f"{subject} of method {name!r}", f"must be {' or '.join(dtypes)}", value=wrong)


def _check_pair(kv: _Interface, prefill: _Interface) -> None:
    if kv.length != 1:
        raise UsageError(f"method {KV!r}", "must take one token", value=kv.length)
    same = [(p.context, p.windowed, [(i.shape[1], i.dtype) for i in (*p.keys, *p.values)], p.logits.shape[2])
            for p in (kv, prefill)]  # fmt: skip
    if same[0] != same[1]:
        raise UsageError(f"methods {KV!r} and {PREFILL!r}", "must have the same context, caches and vocabulary")


def _window(program: LoadedProgram, context: int) -> int:
    windows = constants(program, "get_sliding_window")
    if len(windows) != 1 or not isinstance(windows[0], int) or windows[0] < 1:
        raise FormatError("must return the window of sliding layers", where="get_sliding_window", value=windows[:4])
    return min(windows[0], context)


def _logits_encoding(program: LoadedProgram, logits: TensorInfo) -> tuple[float, int]:
    """Scale and zero point, by which temperatures mean what they say."""
    scales, zeros = (constants(program, name) for name in ("get_logits_scale", "get_logits_zero_point"))
    if not (len(scales) == len(zeros) == 1 and 0 < scales[0] < 1e9):
        raise FormatError("must return the encoding of logits", where="get_logits_scale", value=scales[:4])
    return float(scales[0]), int(zeros[0])

"""Caches of the caller: masks by hand, what a program must look like, and the end of the context."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.errors import FormatError, UsageError
from edgewright.llm.prompt_cache import PromptCache
from edgewright.llm.static_cache import KV, PREFILL, StaticCacheDecoder, smart_mask
from edgewright.runtime.metadata import ScalarInfo, TensorInfo

LAYERS, HEADS, SIZE, CONTEXT, LENGTH, VOCABULARY = 2, 3, 4, 12, 4, 16
ON = 65535


def test_masks_by_hand() -> None:
    mask = smart_mask(3, 8, 2, 0, "uint16")
    assert mask.dtype == np.uint16 and mask.shape == (1, 1, 3, 8)
    assert mask[0, 0].tolist() == [
        [ON, ON, 0, 0, 0, ON, 0, 0],
        [ON, ON, 0, 0, 0, ON, ON, 0],
        [ON, ON, 0, 0, 0, ON, ON, ON],
    ]
    assert smart_mask(1, 4, 3, 0, "uint8")[0, 0].tolist() == [[255, 255, 255, 255]]
    sliding = smart_mask(3, 8, 4, 3, "uint16")  # row i keeps window - (i + 1) columns of the cache
    assert sliding[0, 0].tolist() == [
        [0, 0, ON, ON, 0, ON, 0, 0],
        [0, 0, 0, ON, 0, ON, ON, 0],
        [0, 0, 0, 0, 0, ON, ON, ON],
    ]


class Program:
    """A program whose keys and values are the token's number, and whose logits are sums of what is visible."""

    def __init__(self, length: int = LENGTH, **changes: Any) -> None:
        self.method_names = [KV, PREFILL, *CONSTANTS]
        self.lengths = {KV: 1, PREFILL: length}
        self.constants: dict[str, list[Any]] = {**CONSTANTS, **changes}
        self.calls: list[tuple[str, int]] = []
        self.inputs: dict[str, list[Any]] = {n: _inputs(a) for n, a in self.lengths.items()}
        self.outputs: dict[str, list[Any]] = {n: _outputs(a) for n, a in self.lengths.items()}

    def metadata(self, name: str) -> Any:
        if name in self.constants:
            return _Metadata([], [ScalarInfo("x", "int", v) for v in self.constants[name]])
        return _Metadata(self.inputs[name], self.outputs[name])

    def load_method(self, name: str) -> Any:
        return _Method(self, name)


class _Metadata:
    def __init__(self, inputs: list[Any], outputs: list[Any]) -> None:
        self.inputs, self.outputs = inputs, outputs


class _Method:
    def __init__(self, program: Program, name: str) -> None:
        self.program, self.name = program, name

    def execute(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        tokens, mask, positions, *caches = inputs
        for array, info in zip(inputs, self.program.inputs[self.name], strict=True):
            assert array.shape == tuple(info.shape) and str(array.dtype) == info.dtype and array.flags.c_contiguous
        length = tokens.shape[1]
        assert positions[0].tolist() == list(range(positions[0, 0], positions[0, 0] + length))
        assert positions[0, -1] < CONTEXT
        self.program.calls.append((self.name, int(positions[0, 0])))
        held = [caches[0][0, 0, 0].astype(int), caches[LAYERS][0, 0, :, 0].astype(int)]
        assert (held[0] == held[1]).all()  # keys are transposed, values are not
        columns = np.concatenate([held[0], tokens[0]])
        sums = (mask[0, 0] == ON) @ columns
        logits = np.repeat(sums[:, None], VOCABULARY, 1)[None].astype(np.uint16)
        new = tokens[0].astype(np.uint16)
        keys = np.broadcast_to(new, (1, HEADS, SIZE, length))
        values = np.broadcast_to(new[:, None], (1, HEADS, length, SIZE))
        return [logits, *[keys] * LAYERS, *[values] * LAYERS]

    def close(self) -> None:
        pass


CONSTANTS: dict[str, list[Any]] = {
    "get_n_layers": [LAYERS],
    "get_logits_scale": [0.5],
    "get_logits_zero_point": [10],
}


def _tensor(shape: tuple[int, ...], dtype: str) -> TensorInfo:
    return TensorInfo("x", dtype, shape, tuple(range(len(shape))), dynamic=False, planned=False)


def _inputs(length: int) -> list[TensorInfo]:
    held = CONTEXT - length
    return [
        _tensor((1, length), "int32"),
        _tensor((1, 1, length, CONTEXT), "uint16"),
        _tensor((1, length), "int32"),
        *[_tensor((1, HEADS, SIZE, held), "uint16")] * LAYERS,
        *[_tensor((1, HEADS, held, SIZE), "uint16")] * LAYERS,
    ]


def _outputs(length: int) -> list[TensorInfo]:
    return [
        _tensor((1, length, VOCABULARY), "uint16"),
        *[_tensor((1, HEADS, SIZE, length), "uint16")] * LAYERS,
        *[_tensor((1, HEADS, length, SIZE), "uint16")] * LAYERS,
    ]


def decoder_of(program: Program) -> StaticCacheDecoder:
    return StaticCacheDecoder(program)  # type: ignore[arg-type]


def value(total: int) -> float:
    return (total - 10) * 0.5  # the encoding of logits


def test_prompts_run_in_blocks_and_the_end_of_the_context_token_by_token() -> None:
    program = Program()
    decoder = decoder_of(program)
    cache = PromptCache(decoder)
    cache.claim(self := object())
    prompt = list(range(1, 11))
    logits, held = cache.prefill(self, prompt)
    assert held == 0 and logits is not None and logits[0] == value(sum(prompt))
    assert program.calls == [(PREFILL, 0), (PREFILL, 4), (PREFILL, 8)]  # the last block is padded
    for count, token in enumerate((11, 12), 11):
        assert cache.append(self, token)[3] == value(sum(range(1, count + 1)))
    assert program.calls[3:] == [(KV, 10), (KV, 11)]
    logits, held = cache.prefill(self, [*prompt[:9], 5, 6, 7])  # no block fits behind the 9 tokens that are held
    assert held == 9 and logits is not None and logits[0] == value(sum(prompt[:9]) + 18)
    assert program.calls[5:] == [(KV, 9), (KV, 10), (KV, 11)]
    assert decoder.context_length == CONTEXT and decoder.chunk_length == LENGTH


def test_a_program_of_single_tokens_only() -> None:
    program = Program()
    program.method_names.remove(PREFILL)
    decoder = decoder_of(program)
    assert decoder.forward([3, 4, 5], 0)[0] == value(12) and [name for name, _ in program.calls] == [KV] * 3


WRONG: dict[str, tuple[str, int, TensorInfo, str]] = {
    "keys that are not transposed": ("inputs", 3, _tensor((1, HEADS, CONTEXT - 1, SIZE), "uint16"), "keys of method"),
    "values that are transposed": ("inputs", 6, _tensor((1, HEADS, SIZE, CONTEXT - 1), "uint16"), "values of method"),
    "a float mask": ("inputs", 1, _tensor((1, 1, 1, CONTEXT), "float32"), "must be uint8 or uint16; got float32"),
    "tokens of 64 bits": ("inputs", 0, _tensor((1, 1), "int64"), "must be int32; got int64"),
    "rows of another length": ("outputs", 1, _tensor((1, HEADS, SIZE, 2), "uint16"), "new keys of method"),
}


@pytest.mark.parametrize("name", WRONG)
def test_interfaces_that_are_refused(name: str) -> None:
    side, index, info, message = WRONG[name]
    program = Program()
    getattr(program, side)[KV][index] = info
    with pytest.raises(UsageError, match=message):
        decoder_of(program)


def test_other_programs_are_refused() -> None:
    with pytest.raises(UsageError, match="2 caches of each of 3 layers"):
        decoder_of(Program(get_n_layers=[3]))
    with pytest.raises(FormatError, match="must return the number of layers, 1 to 1024"):
        decoder_of(Program(get_n_layers=[0]))
    with pytest.raises(FormatError, match="must return the encoding of logits"):
        decoder_of(Program(get_logits_scale=[0.0]))
    program = Program()
    program.inputs[PREFILL][1] = _tensor((1, 1, LENGTH, CONTEXT), "uint8")
    program.inputs[KV] = _inputs(2)
    program.outputs[KV] = _outputs(2)
    with pytest.raises(UsageError, match="must take one token; got 2"):
        decoder_of(program)

"""Weight streams: our decoder and Vela's give the same weights, and ours survives bytes that are not a stream."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
from ethosu import mlw_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewright.backends.ethos_u.npu.weight_stream import decode
from edgewright.errors import EdgewrightError, FormatError


def gauss(rng: random.Random, count: int, width: float) -> list[int]:
    return [max(-255, min(255, round(rng.gauss(0, width)))) for _ in range(count)]


def sparse(rng: random.Random, count: int, zeros: int) -> list[int]:
    return [rng.choice((0,) * zeros + (rng.randint(-127, 127),)) for _ in range(count)]


def patches(rng: random.Random, count: int) -> list[int]:
    """Stretches of different spread, so that palettes and codes change within a stream."""
    weights: list[int] = []
    while len(weights) < count:
        width = rng.choice((0, 1, 3, 100))
        weights += [rng.randint(-width, width) for _ in range(rng.randint(1, 600))]
    return weights


STREAMS = {
    **{f"gauss {width}": (gauss, 3000, width) for width in (0.5, 2, 10, 40, 120)},
    **{f"sparse {zeros}": (sparse, 3000, zeros) for zeros in (1, 4, 20, 300)},
    "patches": (patches, 8000),
    "few values": (lambda rng, count: [rng.choice((1, -5, 7, 33)) for _ in range(count)], 3000),
    "zeros": (lambda rng, count: [0] * count, 5000),
    "more than a slice": (gauss, 70000, 25),
    "one": (gauss, 1, 100),
}


@pytest.mark.parametrize("name", STREAMS)
def test_both_decoders_agree(name: str) -> None:
    make, *arguments = STREAMS[name]
    for seed in range(4):
        weights = make(random.Random(seed), *arguments)
        stream = bytes(mlw_codec.encode(weights))
        assert decode(stream, len(weights)).tolist()[: len(weights)] == weights
        assert decode(stream, 1 << 30).tolist() == mlw_codec.decode(bytearray(stream))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.lists(st.integers(-255, 255) | st.just(0) | st.integers(-3, 3), min_size=1, max_size=400))
def test_any_weights_come_back(weights: list[int]) -> None:
    assert decode(bytes(mlw_codec.encode(weights)), len(weights)).tolist()[: len(weights)] == weights


def test_mutated_streams_end_in_weights_or_an_error_of_ours() -> None:
    rng, errors = random.Random(3), 0
    streams = [bytes(mlw_codec.encode(make(rng, min(count, 2000), *rest))) for make, count, *rest in STREAMS.values()]
    for _ in range(2000):
        data = bytearray(rng.choice(streams))
        for _ in range(rng.choice((1, 2, 6))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            weights = decode(bytes(data), 5000)
            assert not weights.size or np.abs(weights).max() <= 255
        except EdgewrightError:
            errors += 1
    assert errors > 100


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_weights_or_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert np.abs(decode(data, 100000)).max(initial=0) <= 255

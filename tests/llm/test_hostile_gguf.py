"""Damaged GGUF files of every family, from the file to a program: a decoder, or a typed error, in little time."""

from __future__ import annotations

import random
import struct
import time
import warnings
from functools import cache
from pathlib import Path

import pytest

from edgewright.errors import EdgewrightError
from edgewright.llm.checkpoint import open_checkpoint
from edgewright.llm.compile import compile_checkpoint
from edgewright.llm.gguf_file import read_gguf
from edgewright.llm.vocabulary import read_vocabulary
from tests.support.language_models import RecordedModel, gguf_of

FAMILIES = ("llama", "smollm2", "qwen2", "qwen3", "gemma3", "phi3", "mistral")
INTEGERS = (0, 1, 2, 3, 8, 255, 256, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
FLOATS = (0.0, -0.0, 1e-45, 1e38, -1.0, float("inf"), float("nan"))
EXECUTIONS = 5_000  # of a seed; 20 seeds are 10**5
COMPILED = 20  # one of so many accepted files
SECONDS = 20.0  # that one file may take


@cache
def files() -> list[tuple[bytes, int]]:
    """Files, and about where the header of each ends."""
    made = []
    for family in FAMILIES:
        for kind in ("Q4_0", "F16"):
            data = gguf_of(RecordedModel(family), kind)
            made.append((data, len(data) - sum(tensor.nbytes for tensor in read_gguf(data).tensors.values())))
    return made


def mutated(chance: random.Random) -> bytes:
    data, end = chance.choice(files())
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5))):
        at = chance.randrange(4, end - 8) if chance.random() < 0.95 else chance.randrange(end, len(changed) - 8)
        kind, size = chance.randrange(7), chance.choice((1, 4, 8, 32))
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            changed[at : at + 8] = struct.pack("<Q", chance.choice(INTEGERS))
        elif kind == 3:
            changed[at : at + 4] = struct.pack("<I", chance.choice(INTEGERS) & 0xFFFFFFFF)
        elif kind == 4:
            changed[at : at + 4] = struct.pack("<f", chance.choice(FLOATS))
        elif kind == 5:
            del changed[at : at + size]
        else:
            start = chance.randrange(4, end - 32)
            changed[at:at] = changed[start : start + size]
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(20))
def test_damaged_files_are_decoders_or_errors(seed: int, tmp_path: Path) -> None:
    chance, path = random.Random(seed), tmp_path / "model.gguf"
    accepted = defects = 0
    warnings.simplefilter("ignore")  # weights that are not finite
    for _ in range(EXECUTIONS):
        path.write_bytes(mutated(chance))
        begin = time.process_time()
        try:
            read_vocabulary(open_checkpoint(path))
            accepted += 1
            if accepted % COMPILED == 0:
                compile_checkpoint(path, tmp_path / "model.pte")
        except EdgewrightError as error:
            defects += error.exit_code == 70  # of Edgewright
        assert time.process_time() - begin < SECONDS
    assert not defects and accepted > COMPILED

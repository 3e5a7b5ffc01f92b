"""``open_decoder``: the methods of a program that compute logits, whichever convention they follow."""

from __future__ import annotations

from edgewright.llm.decoder_method import DecoderMethod
from edgewright.llm.static_cache import KV, StaticCacheDecoder
from edgewright.runtime.program import LoadedProgram


def open_decoder(program: LoadedProgram) -> DecoderMethod | StaticCacheDecoder:
    """The decoder of a program: with caches of its own, or of the caller."""
    return StaticCacheDecoder(program) if KV in program.method_names else DecoderMethod(program)

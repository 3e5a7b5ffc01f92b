"""Quantization: the quantizer that every backend shares, observers, batch-norm folding, PT2E.

torchao logs when it is imported: about CUDA libraries that it does not find, and about an enumeration of its own that
torch wants registered otherwise. Users can act on neither.
"""

from __future__ import annotations

import logging

_NOISE = {"torchao": "Failed to load", "torch.utils._pytree": "is an Enum subclass"}


def _is_relevant(record: logging.LogRecord) -> bool:
    return _NOISE[record.name] not in record.getMessage()


for _name in _NOISE:
    logging.getLogger(_name).addFilter(_is_relevant)

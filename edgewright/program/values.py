"""The value table of a plan: scalars, strings and lists, deduplicated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from edgewright.errors import UnsupportedOperatorError
from edgewright.formats import schema
from edgewright.frontend.tensors import DTYPES
from edgewright.ir.dtypes import to_scalar_type

_MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1}


class ValueTableBuilder:
    """Values in order of creation. Equal literals share one value, because nothing writes them."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._shared: dict[Any, int] = {}

    def add(self, value: schema.Value) -> int:
        """Append a value without deduplication; returns its index."""
        self.items.append(value)
        return len(self.items) - 1

    def shared(self, key: Any, make: Callable[[], schema.Value]) -> int:
        """The index of the value with ``key``, created if it is new."""
        if key not in self._shared:
            self._shared[key] = self.add(make())
        return self._shared[key]

    def literal(self, value: Any) -> int:
        """The index of a literal."""
        return self.shared((type(value).__name__, str(value)), lambda: make_literal(value))

    def ints(self, indices: list[int]) -> int:
        """The index of a list of integers, which are value indices."""
        return self.shared(("ints", *indices), lambda: schema.IntList(items=indices))

    def floats(self, items: list[float]) -> int:
        return self.shared(("floats", *items), lambda: schema.DoubleList(items=[float(i) for i in items]))

    def bools(self, items: list[bool]) -> int:
        return self.shared(("bools", *items), lambda: schema.BoolList(items=items))


def make_literal(value: Any) -> schema.Value:
    """A Python or torch literal as a value of the file."""
    if value is None:
        return schema.Null()
    if isinstance(value, bool):
        return schema.Bool(bool_val=value)
    if isinstance(value, int):
        return schema.Int(int_val=value)
    if isinstance(value, float):
        return schema.Double(double_val=value)
    if isinstance(value, str):
        return schema.String(string_val=value)
    if isinstance(value, torch.dtype):
        return schema.Int(int_val=int(to_scalar_type(DTYPES[value])))
    if isinstance(value, torch.memory_format):
        return schema.Int(int_val=_MEMORY_FORMATS.get(value, 0))
    if isinstance(value, torch.layout):
        return schema.Int(int_val=0)
    raise UnsupportedOperatorError("argument", "cannot be stored in a program", value=repr(value))


NUMBERS: dict[str, Callable[[], schema.Value]] = {"int": schema.Int, "bool": schema.Bool, "float": schema.Double}

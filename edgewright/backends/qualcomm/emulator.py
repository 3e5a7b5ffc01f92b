"""Contexts in Qualcomm's emulator, which runs in a subprocess so that its crashes do not end the host process.

If the subprocess ends, the call in progress raises an error; other contexts are reloaded at their next call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.qualcomm.emulator_process import POOL, Process
from edgewright.errors import EdgewrightError, FormatError, LimitError, VendorError
from edgewright.formats import checked_int

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile

Array = np.ndarray[Any, Any]
_MAX_TENSORS = 4096


@dataclass(frozen=True)
class TensorDesc:
    """An input or output of a graph."""

    name: str
    dims: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return checked_int.product((*self.dims, np.dtype(self.dtype).itemsize))


class EmulatedContext:
    """A context in the emulator. ``memory``: limit of the size of inputs and outputs, in bytes."""

    def __init__(self, context: bytes, soc: int, method: str, memory: int) -> None:
        self._context, self._header = context, {"do": "open", "soc": soc, "method": method}
        self._process: Process | None = None
        self._number = -1
        response = self._load()
        self.build = str(response.get("build", ""))
        self.inputs, self.outputs = (_tensor_descs(response.get(side)) for side in ("inputs", "outputs"))
        needed = checked_int.add(*(e.nbytes for e in (*self.inputs, *self.outputs)))
        if needed > memory:
            self.close()
            remedy = "Raise it with load_program(..., limits=Limits(memory=...)) if you trust the file."
            raise LimitError("QNN delegate", f"inputs and outputs may take {memory} bytes", value=needed, remedy=remedy)

    def _load(self) -> dict[str, Any]:
        with POOL.lease() as process:
            response, _ = process.ask(self._header, [self._context], 0)
            process.contexts += 1
            self._process, self._number = process, _context_id(response.get("id"))
        return response

    def run(self, inputs: Sequence[Array], profile: Profile | None = None) -> list[Array]:
        """Run on inputs of matching types and sizes."""
        total = checked_int.add(*(e.nbytes for e in self.outputs))
        parts = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in inputs]
        outputs: list[bytes] | None = None
        while outputs is None:
            if self._process is None or not self._process.usable:
                self._load()
            assert self._process is not None
            with self._process.lock:
                if self._process.usable:  # it may have been killed while this thread waited for it
                    _, outputs = self._process.ask({"do": "run", "id": self._number}, parts, total)
        if [len(m) for m in outputs] != [e.nbytes for e in self.outputs]:
            raise VendorError("QNN emulator", "must return outputs of their sizes", value=[len(m) for m in outputs][:8])
        return [
            np.frombuffer(bytearray(m), e.dtype).reshape(e.dims) for m, e in zip(outputs, self.outputs, strict=True)
        ]

    def close(self) -> None:
        """Release the context."""
        process, self._process = self._process, None
        if process is None or not process.usable:
            return
        with process.lock, contextlib.suppress(EdgewrightError):  # it ended: there is nothing to give back
            process.contexts -= 1
            process.ask({"do": "close", "id": self._number}, [], 0)
        POOL.release(process)


def _context_id(response: Any) -> int:
    if type(response) is not int:
        raise VendorError("QNN emulator", "must number its contexts", value=str(response)[:80])
    return response


def _tensor_descs(items: Any) -> list[TensorDesc]:
    """Validate the emulator's description of inputs or outputs, which comes from the file."""
    if not isinstance(items, list) or len(items) > _MAX_TENSORS:
        raise VendorError("QNN emulator", "must list inputs and outputs")
    descs = []
    for item in items:
        try:
            name, dims, dtype = item
            desc = TensorDesc(str(name), tuple(dims), np.dtype(str(dtype)).name)
        except (TypeError, ValueError) as error:
            raise VendorError("QNN emulator", "must describe name, shape and type", value=str(item)[:80]) from error
        if len(desc.dims) > 8 or any(type(n) is not int or not 0 < n < 1 << 31 for n in desc.dims):
            raise FormatError("must have tensors of fixed shapes", where="QNN context", value=str(item)[:80])
        descs.append(desc)
    return descs

"""Sessions and contexts of QNN. A session is a backend with a device; a context contains graphs and can be
serialized."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from edgewright.backends.capture import capture_streams
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.library import ERROR, LogCapture, QnnLibrary, build_id, check, htp_library
from edgewright.errors import VendorError

Array = np.ndarray[Any, Any]


def option_list(*options: Any) -> Any:
    """Options as a NULL-terminated array of pointers."""
    if not options:
        return None
    result: Any = (c.c_void_p * (len(options) + 1))(*(c.addressof(g) for g in options), None)
    result.keep_alive = options
    return result


def custom_option(options: Any) -> s.Config:
    """An HTP-specific option."""
    result = s.Config(s.CUSTOM, c.addressof(options))
    result.keep_alive = options
    return result


class Session:
    """A backend and a device for one SoC."""

    def __init__(self, soc: int) -> None:
        self.library: QnnLibrary = htp_library()
        self.build = build_id(self.library)
        self.log = LogCapture()
        self._log, self.backend, self.device = (c.c_void_p() for _ in range(3))
        try:
            self.call("logCreate", c.cast(self.log.callback, c.c_void_p), ERROR, c.byref(self._log))
            self.call("backendCreate", self._log, None, c.byref(self.backend))
            option = custom_option(s.DeviceOption(s.SOC, soc, soc))
            self.call("deviceCreate", self._log, option_list(option), c.byref(self.device), subject=f"SoC {soc}")
        except BaseException:
            self.close()
            raise

    def call(self, name: str, *args: Any, subject: str = "QNN", rule: str = "") -> None:
        """Call a function of the library; raises ``VendorError`` on failure."""
        check(self.library, name, *args, log=self.log, subject=subject, rule=rule)

    def close(self) -> None:
        """Release all handles, in the required order."""
        for name, handle in (("deviceFree", self.device), ("backendFree", self.backend), ("logFree", self._log)):
            if handle:
                self.library.call(name, handle)
                handle.value = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class Context:
    """A context: new, or loaded from a binary. ``sharing``: graphs share equal weights."""

    def __init__(self, session: Session, binary: bytes | None = None, *, sharing: bool = False) -> None:
        self.session = session
        self.handle = c.c_void_p()
        handles = (session.backend, session.device, None)
        with capture_streams():
            if binary is None:
                options = option_list(custom_option(s.ContextOption(s.WEIGHT_SHARING, 1))) if sharing else None
                session.call("contextCreate", *handles[:2], options, c.byref(self.handle))
                return
            size = c.c_uint64(len(binary))
            out = c.byref(self.handle)
            rule = "must be a context that this library can load"
            try:
                session.call(
                    "contextCreateFromBinary", *handles, binary, size, out, None, subject="QNN context", rule=rule
                )
            except VendorError as error:
                if "Shared weights" in str(error.value):
                    error.remedy = (
                        "Devices run it. To run it here, too, compile it without use_weight_sharing=True, or run its "
                        "host twin: EDGEWRIGHT_QNN=twin."
                    )
                raise

    def binary(self) -> bytes:
        """Serialize the context."""
        size, written_size = c.c_uint64(), c.c_uint64()
        self.session.call("contextGetBinarySize", self.handle, c.byref(size))
        buffer = c.create_string_buffer(size.value)
        self.session.call("contextGetBinary", self.handle, buffer, size, c.byref(written_size))
        return buffer.raw[: written_size.value]

    def retrieve(self, name: str) -> c.c_void_p:
        """A graph of a loaded binary."""
        graph = c.c_void_p()
        self.session.call("graphRetrieve", self.handle, name.encode(), c.byref(graph), subject=f"graph {name!r}")
        return graph

    def close(self) -> None:
        if self.handle:
            self.session.library.call("contextFree", self.handle, None)
            self.handle.value = None


def execute(session: Session, graph: Any, inputs: Sequence[tuple[s.Tensor, Array]],
            outputs: Sequence[tuple[s.Tensor, Array]], profile: Any = None) -> None:  # fmt: skip
    """Run a graph, with an array for every input and output tensor."""
    tensors = [(s.Tensor * max(1, len(side)))(*(_bind(t, a) for t, a in side)) for side in (inputs, outputs)]
    counts = len(inputs), len(outputs)
    session.call(
        "graphExecute", graph, tensors[0], counts[0], tensors[1], counts[1], profile, None, subject="QNN graph"
    )


def _bind(tensor: s.Tensor, array: Array) -> s.Tensor:
    result = s.Tensor.from_buffer_copy(tensor)
    result.body.v1.memory_type = 0
    result.body.v1.memory.buffer = s.ClientBuffer(array.ctypes.data, array.nbytes)
    return result


def create_profile(session: Session, level: int = 1) -> c.c_void_p:
    """Create a profile for execution or compilation; level 1 is basic, 2 includes every node."""
    result = c.c_void_p()
    session.call("profileCreate", session.backend, c.c_uint32(level), c.byref(result))
    return result


def profile_events(session: Session, profile: c.c_void_p) -> list[tuple[str, int, int]]:
    """Events of a profile: name, value and unit (1 microseconds, 2 bytes, 3 cycles, 4 a count)."""
    event_ids, count = c.POINTER(c.c_uint64)(), c.c_uint32()
    session.call("profileGetEvents", profile, c.byref(event_ids), c.byref(count))
    results = []
    todo = [event_ids[i] for i in range(count.value)]
    while todo:
        event = todo.pop(0)
        data = s.EventData()
        session.call("profileGetEventData", event, c.byref(data))
        results.append(((data.name or b"").decode(errors="replace"), int(data.value), int(data.unit)))
        sub_events, number = c.POINTER(c.c_uint64)(), c.c_uint32()
        session.call("profileGetSubEvents", event, c.byref(sub_events), c.byref(number))
        todo += [sub_events[i] for i in range(number.value)]
    return results

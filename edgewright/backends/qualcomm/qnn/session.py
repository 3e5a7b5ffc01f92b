"""A backend with a device: what contexts are made on. A context holds graphs; a binary holds a context."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from edgewright.backends.capture import capture_streams
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.library import ERROR, Library, Log, build_of, check, htp_library
from edgewright.errors import VendorError

Array = np.ndarray[Any, Any]


def option_list(*given: Any) -> Any:
    """Options as the API takes them: a list of pointers that ends with none."""
    if not given:
        return None
    made: Any = (c.c_void_p * (len(given) + 1))(*(c.addressof(g) for g in given), None)
    made.kept = given
    return made


def custom(given: Any) -> s.Config:
    """An option that only the HTP knows."""
    made = s.Config(s.CUSTOM, c.addressof(given))
    made.kept = given
    return made


class Session:
    """The HTP of one SoC."""

    def __init__(self, soc: int) -> None:
        self.library: Library = htp_library()
        self.build = build_of(self.library)
        self.log = Log()
        self._log, self.backend, self.device = (c.c_void_p() for _ in range(3))
        try:
            self.call("logCreate", c.cast(self.log.callback, c.c_void_p), ERROR, c.byref(self._log))
            self.call("backendCreate", self._log, None, c.byref(self.backend))
            option = custom(s.DeviceOption(s.SOC, soc, soc))
            self.call("deviceCreate", self._log, option_list(option), c.byref(self.device), subject=f"SoC {soc}")
        except BaseException:
            self.close()
            raise

    def call(self, name: str, *args: Any, subject: str = "QNN", rule: str = "") -> None:
        """Call a function of the library; its errors are ours."""
        check(self.library, name, *args, log=self.log, subject=subject, rule=rule)

    def close(self) -> None:
        """Give everything back, in the order it must be."""
        for name, handle in (("deviceFree", self.device), ("backendFree", self.backend), ("logFree", self._log)):
            if handle:
                self.library.call(name, handle)
                handle.value = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class Context:
    """A context: new, or from its binary. ``sharing``: equal weights of its graphs are kept once."""

    def __init__(self, session: Session, binary: bytes | None = None, *, sharing: bool = False) -> None:
        self.session = session
        self.handle = c.c_void_p()
        ends = (session.backend, session.device, None)
        with capture_streams():
            if binary is None:
                options = option_list(custom(s.ContextOption(s.WEIGHT_SHARING, 1))) if sharing else None
                session.call("contextCreate", *ends[:2], options, c.byref(self.handle))
                return
            size = c.c_uint64(len(binary))
            out = c.byref(self.handle)
            rule = "must be a context that this library can load"
            try:
                session.call(
                    "contextCreateFromBinary", *ends, binary, size, out, None, subject="QNN context", rule=rule
                )
            except VendorError as error:
                if "Shared weights" in str(error.value):
                    error.remedy = (
                        "Devices run it. To run it here, too, compile it without use_weight_sharing=True, or run its "
                        "host twin: EDGEWRIGHT_QNN=twin."
                    )
                raise

    def binary(self) -> bytes:
        """The context's bytes."""
        size, written = c.c_uint64(), c.c_uint64()
        self.session.call("contextGetBinarySize", self.handle, c.byref(size))
        room = c.create_string_buffer(size.value)
        self.session.call("contextGetBinary", self.handle, room, size, c.byref(written))
        return room.raw[: written.value]

    def retrieve(self, name: str) -> c.c_void_p:
        """A graph that came with a binary."""
        graph = c.c_void_p()
        self.session.call("graphRetrieve", self.handle, name.encode(), c.byref(graph), subject=f"graph {name!r}")
        return graph

    def close(self) -> None:
        if self.handle:
            self.session.library.call("contextFree", self.handle, None)
            self.handle.value = None


def execute(session: Session, graph: Any, inputs: Sequence[tuple[s.Tensor, Array]],
            outputs: Sequence[tuple[s.Tensor, Array]], profile: Any = None) -> None:  # fmt: skip
    """Run a graph: every tensor with the array that it reads or fills."""
    sides = [(s.Tensor * max(1, len(side)))(*(_bound(t, a) for t, a in side)) for side in (inputs, outputs)]
    counts = len(inputs), len(outputs)
    session.call("graphExecute", graph, sides[0], counts[0], sides[1], counts[1], profile, None, subject="QNN graph")


def _bound(tensor: s.Tensor, array: Array) -> s.Tensor:
    made = s.Tensor.from_buffer_copy(tensor)
    made.body.v1.memory_type = 0
    made.body.v1.memory.buffer = s.ClientBuffer(array.ctypes.data, array.nbytes)
    return made


def profiled(session: Session, level: int = 1) -> c.c_void_p:
    """A profile to run or finalize a graph with; 1 is short, 2 has every node."""
    made = c.c_void_p()
    session.call("profileCreate", session.backend, c.c_uint32(level), c.byref(made))
    return made


def events(session: Session, profile: c.c_void_p) -> list[tuple[str, int, int]]:
    """What a profile has noted: name, value and unit (1 microseconds, 2 bytes, 3 cycles, 4 a count)."""
    found, count = c.POINTER(c.c_uint64)(), c.c_uint32()
    session.call("profileGetEvents", profile, c.byref(found), c.byref(count))
    noted = []
    todo = [found[i] for i in range(count.value)]
    while todo:
        event = todo.pop(0)
        data = s.EventData()
        session.call("profileGetEventData", event, c.byref(data))
        noted.append(((data.name or b"").decode(errors="replace"), int(data.value), int(data.unit)))
        below, number = c.POINTER(c.c_uint64)(), c.c_uint32()
        session.call("profileGetSubEvents", event, c.byref(below), c.byref(number))
        todo += [below[i] for i in range(number.value)]
    return noted

"""Emulator process: ``python -m edgewright.backends.qualcomm.emulator_server FD``.

Loads, runs and releases contexts on request over a socket, until the host closes it.
"""

from __future__ import annotations

import itertools
import re
import socket
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.messages import Ended, error_fields, receive, send
from edgewright.backends.qualcomm.qnn.info import BinaryReader, End, Graph
from edgewright.backends.qualcomm.qnn.session import Context, Session, execute
from edgewright.errors import EdgewrightError, FormatError, VersionError

_LARGEST = 1 << 40  # bytes of a message; who sends it has checked it
_INPUT = re.compile(r"[^_]*_(\d{1,9})")
Answer = tuple[dict[str, Any], list[Any]]


def release(build: str) -> str:
    """The release that a build belongs to.

    >>> release("v2.51.0.260929181845")
    '2.51'
    """
    return ".".join(build.removeprefix("v").split(".")[:2])


def check_version(built: str, here: str) -> None:
    """Reject a context from a newer compiler with a better message than the library's."""
    numbers_of = [tuple(int(n) for n in re.findall(r"\d{1,9}", release(b))) for b in (built, here)]
    if numbers_of[0] > numbers_of[1]:
        rule = f"was built with QNN {release(built)}, and this library is {release(here)}"
        remedy = f"Compile with QNN {release(here)} or older, or update the library to {release(built)} or newer."
        raise VersionError(rule, where="QNN context", remedy=remedy)


def _place(end: End) -> int:
    """Index of an input, from the number in its name, as ExecuTorch binds inputs."""
    found = _INPUT.match(end.name)
    if found is None:
        raise FormatError("inputs must be named input_<number>_<name>", where="QNN context", value=end.name)
    return int(found.group(1))


@dataclass
class Loaded:
    """A loaded context and the graph to run."""

    reader: BinaryReader
    session: Session
    context: Context
    graph: Any
    inputs: list[End]
    outputs: list[End]

    def close(self) -> None:
        for held in (self.context, self.session, self.reader):
            held.close()


def load(binary: bytes, soc: int, method: str) -> Loaded:
    """Load a context; releases everything on failure."""
    reader = BinaryReader(binary)
    session: Session | None = None
    try:
        graph = _graph(reader.info.graphs, method)
        inputs, outputs = sorted(graph.inputs, key=_place), list(graph.outputs)
        session = Session(soc)
        check_version(reader.info.build, session.build)
        context = Context(session, binary)
        return Loaded(reader, session, context, context.retrieve(graph.name), inputs, outputs)
    except BaseException:
        for held in (session, reader):
            if held is not None:
                held.close()
        raise


def _graph(graphs: tuple[Graph, ...], method: str) -> Graph:
    """The graph with the method's name, or the only one."""
    named = [g for g in graphs if g.name == method]
    if len(named) != 1 and len(graphs) != 1:
        raise FormatError(f"must hold one graph, or one called {method!r}", where="QNN context", value=len(graphs))
    return named[0] if len(named) == 1 else graphs[0]


def run(loaded: Loaded, given: list[bytes]) -> list[np.ndarray[Any, Any]]:
    """Run on inputs whose sizes have been checked."""
    arrays = [np.frombuffer(g, e.dtype).reshape(e.dims) for g, e in zip(given, loaded.inputs, strict=True)]
    made = [np.zeros(end.dims, end.dtype) for end in loaded.outputs]
    reads = [(e.tensor, a) for e, a in zip(loaded.inputs, arrays, strict=True)]
    writes = [(e.tensor, a) for e, a in zip(loaded.outputs, made, strict=True)]
    execute(loaded.session, loaded.graph, reads, writes)
    return made


class Server:
    """Handles requests."""

    def __init__(self) -> None:
        self._loaded: dict[int, Loaded] = {}
        self._numbers = itertools.count()

    def answer(self, header: dict[str, Any], parts: list[bytes]) -> Answer:
        if header["do"] == "open":
            return self._open(header, parts[0])
        if header["do"] == "run":
            return {}, [
                np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in run(self._loaded[header["id"]], parts)
            ]
        self._loaded.pop(header["id"]).close()
        return {}, []

    def _open(self, header: dict[str, Any], binary: bytes) -> Answer:
        loaded = load(binary, header["soc"], header["method"])
        number = next(self._numbers)
        self._loaded[number] = loaded
        ends = {
            name: [[e.name, list(e.dims), e.dtype] for e in side]
            for name, side in (("inputs", loaded.inputs), ("outputs", loaded.outputs))
        }
        return {"id": number, "build": loaded.session.build, **ends}, []


def main(descriptor: int) -> None:
    """Serve requests until the socket is closed."""
    server, line = Server(), socket.socket(fileno=descriptor)
    while True:
        try:
            header, parts = receive(line, _LARGEST)
        except Ended:
            return
        try:
            answer, made = server.answer(header, parts)
        except EdgewrightError as error:
            answer, made = error_fields(error), []
        send(line, answer, [memoryview(m) for m in made])


if __name__ == "__main__":
    main(int(sys.argv[1]))

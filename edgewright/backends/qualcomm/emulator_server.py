"""Emulator process: ``python -m edgewright.backends.qualcomm.emulator_server FD PARENT``.

Loads, runs and releases contexts on request over a socket, until the host closes it or ends.
"""

from __future__ import annotations

import itertools
import re
import socket
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.messages import PeerClosed, error_fields, receive, send
from edgewright.backends.qualcomm.parent_process import exit_with_parent
from edgewright.backends.qualcomm.qnn.info import BinaryGraph, BinaryReader, BinaryTensor
from edgewright.backends.qualcomm.qnn.session import Context, Session, execute
from edgewright.errors import EdgewrightError, FormatError, VersionError

_MAX_MESSAGE = 1 << 40  # bytes of a message; the sender has checked it
_INPUT_NAME = re.compile(r"[^_]*_(\d{1,9})")
Response = tuple[dict[str, Any], list[Any]]


def release(build: str) -> str:
    """The release that a build belongs to.

    >>> release("v2.51.0.260929181845")
    '2.51'
    """
    return ".".join(build.removeprefix("v").split(".")[:2])


def check_version(built: str, library: str) -> None:
    """Reject a context from a newer compiler with a better message than the library's."""
    numbers_of = [tuple(int(n) for n in re.findall(r"\d{1,9}", release(b))) for b in (built, library)]
    if numbers_of[0] > numbers_of[1]:
        rule = f"was built with QNN {release(built)}, and this library is {release(library)}"
        remedy = f"Compile with QNN {release(library)} or older, or update the library to {release(built)} or newer."
        raise VersionError(rule, where="QNN context", remedy=remedy)


def _input_index(end: BinaryTensor) -> int:
    """Index of an input, from the number in its name, as ExecuTorch binds inputs."""
    match = _INPUT_NAME.match(end.name)
    if match is None:
        raise FormatError("inputs must be named input_<number>_<name>", where="QNN context", value=end.name)
    return int(match.group(1))


@dataclass
class LoadedContext:
    """A loaded context and the graph to run."""

    reader: BinaryReader
    session: Session
    context: Context
    graph: Any
    inputs: list[BinaryTensor]
    outputs: list[BinaryTensor]

    def close(self) -> None:
        for resource in (self.context, self.session, self.reader):
            resource.close()


def load(binary: bytes, soc: int, method: str) -> LoadedContext:
    """Load a context; releases everything on failure."""
    reader = BinaryReader(binary)
    session: Session | None = None
    try:
        graph = _graph(reader.info.graphs, method)
        inputs, outputs = sorted(graph.inputs, key=_input_index), list(graph.outputs)
        session = Session(soc)
        check_version(reader.info.build, session.build)
        context = Context(session, binary)
        return LoadedContext(reader, session, context, context.retrieve(graph.name), inputs, outputs)
    except BaseException:
        for resource in (session, reader):
            if resource is not None:
                resource.close()
        raise


def _graph(graphs: tuple[BinaryGraph, ...], method: str) -> BinaryGraph:
    """The graph with the method's name, or the only one."""
    matching = [g for g in graphs if g.name == method]
    if len(matching) != 1 and len(graphs) != 1:
        raise FormatError(f"must hold one graph, or one called {method!r}", where="QNN context", value=len(graphs))
    return matching[0] if len(matching) == 1 else graphs[0]


def run(loaded: LoadedContext, inputs_raw: list[bytes]) -> list[np.ndarray[Any, Any]]:
    """Run on inputs whose sizes have been checked."""
    arrays = [np.frombuffer(g, e.dtype).reshape(e.dims) for g, e in zip(inputs_raw, loaded.inputs, strict=True)]
    outputs = [np.zeros(end.dims, end.dtype) for end in loaded.outputs]
    reads = [(e.tensor, a) for e, a in zip(loaded.inputs, arrays, strict=True)]
    writes = [(e.tensor, a) for e, a in zip(loaded.outputs, outputs, strict=True)]
    execute(loaded.session, loaded.graph, reads, writes)
    return outputs


class Server:
    """Handles requests."""

    def __init__(self) -> None:
        self._loaded: dict[int, LoadedContext] = {}
        self._numbers = itertools.count()

    def respond(self, header: dict[str, Any], parts: list[bytes]) -> Response:
        if header["do"] == "open":
            return self._open(header, parts[0])
        if header["do"] == "run":
            return {}, [
                np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in run(self._loaded[header["id"]], parts)
            ]
        self._loaded.pop(header["id"]).close()
        return {}, []

    def _open(self, header: dict[str, Any], binary: bytes) -> Response:
        loaded = load(binary, header["soc"], header["method"])
        number = next(self._numbers)
        self._loaded[number] = loaded
        tensors = {
            name: [[e.name, list(e.dims), e.dtype] for e in side]
            for name, side in (("inputs", loaded.inputs), ("outputs", loaded.outputs))
        }
        return {"id": number, "build": loaded.session.build, **tensors}, []


def main(descriptor: int, parent: int) -> None:
    """Serve requests until the socket is closed, or the parent has ended."""
    exit_with_parent(parent)
    server, connection = Server(), socket.socket(fileno=descriptor)
    while True:
        try:
            header, parts = receive(connection, _MAX_MESSAGE)
        except PeerClosed:
            return
        try:
            response, outputs = server.respond(header, parts)
        except EdgewrightError as error:
            response, outputs = error_fields(error), []
        send(connection, response, [memoryview(m) for m in outputs])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

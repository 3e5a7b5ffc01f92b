"""Device graph to context binary: builds tensors and nodes and runs Qualcomm's compiler."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from edgewright.backends.qualcomm.blob import check_context
from edgewright.backends.qualcomm.lower import encoding_of, qnn_dtype
from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.build import GraphBuilder, TensorSpec
from edgewright.backends.qualcomm.qnn.session import Context, Session
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.errors import VendorError
from edgewright.ir.graph import Graph, Op, Value

log = logging.getLogger("edgewright.qualcomm")


class Emitter:
    """Puts one device graph into a builder. ``add`` False only asks whether its nodes would be taken."""

    def __init__(self, builder: GraphBuilder, device: Graph, *, add: bool = True) -> None:
        self.builder, self.device, self.add = builder, device, add
        self._tensors: dict[Value, s.Tensor] = {}
        self._count = 0

    def run(self) -> None:
        for index, value in enumerate(self.device.inputs):
            self._make(value, f"input_{index}_{value.name}", s.APP_WRITE)
        for index, value in enumerate(self.device.outputs):  # in this order: who reads a binary sees them so
            self._make(value, f"output_{index}_{value.name}", s.APP_READ)
        for index, op in enumerate(self.device.ops):
            inputs = [self._tensor(v) for v in op.args["inputs"]]
            outputs = [self._tensor(v) for v in op.outputs if v is not None]
            name = f"{op.origin.node or 'node'}_{index}"
            self.builder.node(op.kind, name, inputs, outputs, op.args["params"], add=self.add)

    def _tensor(self, value: Value) -> s.Tensor:
        if value not in self._tensors:
            self._count += 1
            kind = s.STATIC if value.constant else s.NATIVE
            self._make(value, f"{value.name}_{self._count}", kind)
        return self._tensors[value]

    def _make(self, value: Value, name: str, kind: int) -> None:
        data = None
        if kind == s.STATIC:
            assert value.data is not None
            data = np.ascontiguousarray(value.data).reshape(value.bound or (1,))
        spec = TensorSpec(name, value.bound or (1,), qnn_dtype(value), kind, encoding_of(value), data)
        self._tensors[value] = self.builder.tensor(spec, create=self.add)


_FLAGS = {"use_dlbc": s.COMPRESSED, "use_slc_allocator": s.SYSTEM_CACHE}


def compile_graph(device: Graph, target: QnnTarget, name: str) -> bytes:
    """The context binary of a device graph, whose one graph has the method's name."""
    return compile_graphs([(name, device)], target)


def compile_graphs(named: Sequence[tuple[str, Graph]], target: QnnTarget) -> bytes:
    """The context binary of several, each with the name of its method."""
    told: dict[str, Any] = {"fp16": target.fp16, "level": target.level, "vtcm": target.vtcm}
    told["flags"] = [_FLAGS[flag] for flag in target.flags]
    with Session(int(target.soc)) as session:
        context = Context(session, sharing=target.sharing and len(named) > 1)
        try:
            for name, device in named:
                builder = GraphBuilder(context, name, **told)
                Emitter(builder, device).run()
                builder.finalize()
            binary = context.binary()
        finally:
            context.close()
    check_context(binary, target)
    return binary


class Probe:
    """Asks the backend about single operators, and remembers what it said. It keeps a session open, which starting
    anew would cost more; only one, though: the library answers for the SoC that was opened last."""

    _open: ClassVar[Probe | None] = None

    def __init__(self, target: QnnTarget) -> None:
        self._target = target
        self._session: Session | None = None
        self._context: Context | None = None
        self._known: dict[Any, str | None] = {}

    def _start(self) -> Context:
        if self._context is None:
            if Probe._open is not None:
                Probe._open.close()
            Probe._open = self
            self._session = Session(int(self._target.soc))
            self._context = Context(self._session)
        return self._context

    def close(self) -> None:
        """Give the session back. What is known stays."""
        for held in (self._context, self._session):
            if held is not None:
                held.close()
        self._context = self._session = None

    @property
    def build(self) -> str:
        """Of the compiler: what devices must have at least."""
        return self._start().session.build

    def refusal(self, key: Any, device: Graph) -> str | None:
        """Why the nodes of a device graph are not taken, or None. ``key`` says what they are."""
        if key not in self._known:
            self._known[key] = self._ask(device)
        return self._known[key]

    def _ask(self, device: Graph) -> str | None:
        name = f"probe_{len(self._known)}"
        builder = GraphBuilder(self._start(), name, fp16=self._target.fp16, vtcm=self._target.vtcm)
        try:
            Emitter(builder, device, add=False).run()
        except VendorError as error:
            log.debug("%s", error)  # with the table of what it has instead
            kind = error.subject.split()[0]
            node = next(op for op in device.ops if op.kind == kind)
            held = ", ".join(dict.fromkeys(qnn_dtype(v) for v in node.args["inputs"]))
            return f"{kind} of {held} {error.rule}; got {str(error.value).split(': <E>')[0]}"
        return None


@lru_cache(maxsize=32)
def probe_for(target: QnnTarget) -> Probe:
    return Probe(target)


def signature(op: Op, values: Sequence[Value]) -> Any:
    """What an operator is, but for the numbers in its tensors."""

    def plain(given: Any) -> Any:
        if isinstance(given, Value):
            return (str(given.dtype), given.shape, given.constant, given.q, given.dim_order)
        return tuple(plain(g) for g in given) if isinstance(given, list | tuple) else repr(given)

    return (op.kind, tuple((n, plain(g)) for n, g in op.args.items()), tuple(plain(v) for v in values))

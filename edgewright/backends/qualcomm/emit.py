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
from edgewright.backends.qualcomm.qnn.build import QnnGraphBuilder, TensorDef
from edgewright.backends.qualcomm.qnn.session import Context, Session
from edgewright.backends.qualcomm.target import QnnTarget
from edgewright.errors import VendorError
from edgewright.ir.graph import Graph, Op, Value

log = logging.getLogger("edgewright.qualcomm")


class GraphEmitter:
    """Adds a device graph to a builder. With ``add=False`` its nodes are only validated."""

    def __init__(self, builder: QnnGraphBuilder, device: Graph, *, add: bool = True) -> None:
        self.builder, self.device, self.add = builder, device, add
        self._tensors: dict[Value, s.Tensor] = {}
        self._count = 0

    def run(self) -> None:
        for index, value in enumerate(self.device.inputs):
            self._make(value, f"input_{index}_{value.name}", s.APP_WRITE)
        for index, value in enumerate(
            self.device.outputs
        ):  # before the nodes: a binary lists outputs in order of creation
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
        spec = TensorDef(name, value.bound or (1,), qnn_dtype(value), kind, encoding_of(value), data)
        self._tensors[value] = self.builder.tensor(spec, create=self.add)


_FLAGS = {"use_dlbc": s.COMPRESSED, "use_slc_allocator": s.SYSTEM_CACHE}


def compile_graph(device: Graph, target: QnnTarget, name: str) -> bytes:
    """Compile a device graph to a context binary; ``name`` is its method."""
    return compile_graphs([(name, device)], target)


def compile_graphs(graphs: Sequence[tuple[str, Graph]], target: QnnTarget) -> bytes:
    """Compile several device graphs, by method name, to one context binary."""
    options: dict[str, Any] = {"fp16": target.fp16, "level": target.level, "vtcm": target.vtcm}
    options["flags"] = [_FLAGS[flag] for flag in target.flags]
    with Session(int(target.soc)) as session:
        context = Context(session, sharing=target.sharing and len(graphs) > 1)
        try:
            for name, device in graphs:
                builder = QnnGraphBuilder(context, name, **options)
                GraphEmitter(builder, device).run()
                builder.finalize()
            binary = context.binary()
        finally:
            context.close()
    check_context(binary, target)
    return binary


class Probe:
    """Validates single operators with Qualcomm's library and caches the results. The session stays open, because
    opening one is slow; only one may be open, because the library validates for the SoC opened last."""

    _open: ClassVar[Probe | None] = None

    def __init__(self, target: QnnTarget) -> None:
        self._target = target
        self._session: Session | None = None
        self._context: Context | None = None
        self._answers: dict[Any, str | None] = {}

    def _start(self) -> Context:
        if self._context is None:
            if Probe._open is not None:
                Probe._open.close()
            Probe._open = self
            self._session = Session(int(self._target.soc))
            self._context = Context(self._session)
        return self._context

    def close(self) -> None:
        """Close the session; cached results stay."""
        for resource in (self._context, self._session):
            if resource is not None:
                resource.close()
        self._context = self._session = None

    @property
    def build(self) -> str:
        """Build of the compiler; devices need the same or a newer one."""
        return self._start().session.build

    def rejection(self, key: Any, device: Graph) -> str | None:
        """Why the nodes of a device graph are rejected, or None. ``key`` identifies them in the cache."""
        if key not in self._answers:
            self._answers[key] = self._ask(device)
        return self._answers[key]

    def _ask(self, device: Graph) -> str | None:
        name = f"probe_{len(self._answers)}"
        builder = QnnGraphBuilder(self._start(), name, fp16=self._target.fp16, vtcm=self._target.vtcm)
        try:
            GraphEmitter(builder, device, add=False).run()
        except VendorError as error:
            log.debug("%s", error)  # includes the table of supported types
            kind = error.subject.split()[0]
            node = next(op for op in device.ops if op.kind == kind)
            types = ", ".join(dict.fromkeys(qnn_dtype(v) for v in node.args["inputs"]))
            return f"{kind} of {types} {error.rule}; got {str(error.value).split(': <E>')[0]}"
        return None


@lru_cache(maxsize=32)
def probe_for(target: QnnTarget) -> Probe:
    return Probe(target)


def signature(op: Op, values: Sequence[Value]) -> Any:
    """Cache key of an operator: everything but the contents of its tensors."""

    def describe(argument: Any) -> Any:
        if isinstance(argument, Value):
            return (str(argument.dtype), argument.shape, argument.constant, argument.q, argument.dim_order)
        return tuple(describe(g) for g in argument) if isinstance(argument, list | tuple) else repr(argument)

    return (op.kind, tuple((n, describe(g)) for n, g in op.args.items()), tuple(describe(v) for v in values))

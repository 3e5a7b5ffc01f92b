"""The graph of a file: its instructions, with delegates that open into the operators they run."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.registry import find_dialect, find_provider
from edgewright.errors import EdgewrightError
from edgewright.formats import schema
from edgewright.formats.checked_int import tensor_bytes
from edgewright.formats.layer_table import MethodLayers, read_layers
from edgewright.ir.analysis import count_core_macs
from edgewright.ir.dtypes import to_numpy
from edgewright.ir.graph import Graph, Op, Value, argument_name
from edgewright.ir.graph_text import qparams_text, type_text
from edgewright.program.listing import Listing
from edgewright.report.dataflow import Call, calls
from edgewright.report.histogram import histogram
from edgewright.report.model import CPU, GraphView, Histogram, Node
from edgewright.report.npu_passes import PassGroup, group_passes
from edgewright.runtime.disassembly import DelegateContents
from edgewright.runtime.metadata import describe_value
from edgewright.runtime.shared_state import initial_bytes

log = logging.getLogger("edgewright.report")

MAX_NODES = 20_000  # operators of a graph in a page
_PRODUCT = re.compile(r"conv|linear|matmul|fully_?connected|\bfc$", re.IGNORECASE)
_ABOUT = "Kernel calls and delegates as the file has them; a delegate opens into the operators that it runs."

Contents = Callable[[schema.BackendDelegate], DelegateContents]


def file_graph(program: schema.Program, contents: Contents) -> GraphView:
    """The graph of all methods of a program."""
    view = GraphView("file", _ABOUT)
    several = len(program.execution_plan) > 1
    layers = read_layers(program)
    for plan in program.execution_plan:
        own = layers.get(plan.name, MethodLayers())
        _Method(program, plan, plan.name if several else "", contents, view, own).run()
    view.total = len(view.nodes)
    del view.nodes[MAX_NODES:]  # in execution order: what is left refers to nothing after it
    return view


def backend_name(identifier: str) -> str:
    """The name of the backend whose blobs have this id, or the id itself."""
    info = find_provider(identifier, lambda _: True)
    return identifier if info is None else info.name


class _Method:
    """Appends the nodes of one method to a view."""

    def __init__(
        self, program: schema.Program, plan: schema.ExecutionPlan, prefix: str, contents: Contents, view: GraphView,
        layers: MethodLayers,
    ) -> None:  # fmt: skip
        self.program = program
        self.plan, self.prefix, self.contents, self.view = plan, prefix, contents, view
        self.layers = layers
        self.producers: dict[int, int] = {}  # the node that wrote a tensor last
        self.listing = {(i["chain"], i["index"]): i for i in Listing(plan).instructions()}

    def run(self) -> None:
        for call in calls(self.plan):
            graph = self._delegate_graph(call)
            if graph is not None and graph.ops:
                self._add_delegate(call, graph)
            elif not self._add_passes(call):
                self._add_call(call)

    def _delegate_graph(self, call: Call) -> Graph | None:
        if not isinstance(call.instruction, schema.DelegateCall):
            return None
        contents = self.contents(self.plan.delegates[call.instruction.delegate_index])
        try:
            graph = contents.graph()
            return contents.device_graph() if graph is None else graph
        except EdgewrightError as error:  # the file is shown without what is inside
            log.warning("delegate %d of %s: %s", call.instruction.delegate_index, self.plan.name, error)
            return None

    def _add_passes(self, call: Call) -> bool:
        """Add the passes of an NPU's command stream by layer; False if the delegate is none, or the file names none."""
        if not isinstance(call.instruction, schema.DelegateCall):
            return False
        contents = self.contents(self.plan.delegates[call.instruction.delegate_index])
        groups = stream_groups(contents)
        if not any(group.layer for group in groups):
            return False
        prefix, inputs = self._title(call), self._inputs(call.reads)
        modules = {origin.module for origin in contents.layers.origins}
        for group in groups:
            moved = sum(group.traffic.values())
            self.view.nodes.append(
                Node(
                    name=group.layer or group.operator,
                    operator=group.operator,
                    module=f"{prefix}.{group.layer}" if group.layer in modules else prefix,
                    placement=backend_name(call.name),
                    inputs=inputs,
                    macs=group.macs,
                    bytes=moved,
                    cycles=group.cycles,
                )
            )
            inputs = (len(self.view.nodes) - 1,)
        self.producers.update(dict.fromkeys(call.writes, len(self.view.nodes) - 1))
        return True

    def _title(self, call: Call) -> str:
        assert isinstance(call.instruction, schema.DelegateCall)
        title = f"{call.name} {call.instruction.delegate_index}"
        return f"{self.prefix}.{title}" if self.prefix else title

    def _add_call(self, call: Call) -> None:
        line = self.listing[call.chain, call.index]
        is_delegate = isinstance(call.instruction, schema.DelegateCall)
        outputs = [self.plan.values[i] for i in call.writes]
        shapes = [str(describe_value("", v)) for v in outputs]
        constants = [v for i in call.reads if (v := self._constant(i)) is not None]
        node = Node(
            name=f"#{call.index}" if not call.chain else f"#{call.chain}.{call.index}",
            operator=call.name,
            module=".".join(filter(None, (self.prefix, self.layers.instruction(call.chain, call.index).module))),
            placement=backend_name(call.name) if is_delegate else CPU,
            inputs=self._inputs(call.reads),
            outputs=shapes,
            source=line["source"] or "",
            macs=_call_macs(self.plan, call),
            bytes=sum(tensor_bytes(v.scalar_type, v.sizes) for v in outputs if isinstance(v, schema.Tensor)),
            weights=sum(tensor_bytes(v.scalar_type, v.sizes) for v in constants),
        )
        if constants and len(self.view.nodes) < MAX_NODES:
            node.histograms += self._histograms(max(constants, key=lambda v: tensor_bytes(v.scalar_type, v.sizes)))
        self.view.nodes.append(node)
        self.producers.update(dict.fromkeys(call.writes, len(self.view.nodes) - 1))

    def _constant(self, index: int) -> schema.Tensor | None:
        value = self.plan.values[index]
        is_stored = isinstance(value, schema.Tensor) and (value.external or value.data_buffer_idx)
        return value if is_stored and value.allocation_info is None else None  # type: ignore[return-value,union-attr]

    def _histograms(self, tensor: schema.Tensor) -> list[Histogram]:
        if tensor.external:
            return []
        stored = initial_bytes(self.program, tensor, {})
        shown = histogram(f"weights {describe_value('', tensor)}", np.frombuffer(stored, to_numpy(tensor.scalar_type)))
        return [] if shown is None else [shown]

    def _inputs(self, tensors: Sequence[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.producers[i] for i in tensors if i in self.producers))

    def _add_delegate(self, call: Call, graph: Graph) -> None:
        assert isinstance(call.instruction, schema.DelegateCall)
        args, prefix = call.instruction.args, self._title(call)
        outside = {v: self.producers[i] for v, i in zip(graph.inputs, args, strict=False)
                   if isinstance(v, Value) and i in self.producers}  # fmt: skip
        written = add_ops(self.view.nodes, graph.ops, prefix, backend_name(call.name), outside)
        for value, i in zip(graph.outputs, args[len(graph.inputs) :], strict=False):
            if isinstance(value, Value) and value in written:
                self.producers[i] = written[value]


def add_ops(
    nodes: list[Node], ops: Sequence[Op], prefix: str, placement: str, outside: Mapping[Any, int]
) -> dict[Value, int]:
    """Append the operators of an IR graph; returns the node of each value. ``outside``: the nodes of its inputs."""
    producers: dict[Value, int] = dict(outside)
    for number, op in enumerate(ops):
        results = [v for v in op.outputs if v is not None]
        operands = list(op.inputs())
        constants = [v for v in operands if v.constant]
        node = Node(
            name=op.origin.node or op.origin.module or f"{op.name} {number}",
            operator=op.name,
            module=".".join(filter(None, (prefix, op.origin.module))),
            placement=placement,
            inputs=tuple(dict.fromkeys(producers[v] for v in operands if v in producers)),
            outputs=[type_text(v) for v in results],
            quantization=[f"{argument_name(op, v)}: {qparams_text(v.q)}" for v in constants if v.q is not None],
            source=op.origin.source,
            macs=op_macs(op),
            bytes=sum(v.nbytes for v in results),
            weights=sum(v.nbytes for v in constants),
        )
        if constants and len(nodes) < MAX_NODES:
            largest = max(constants, key=lambda v: v.nbytes)
            shown = histogram(f"weights {type_text(largest)}", largest.data)
            node.histograms += [] if shown is None else [shown]
        nodes.append(node)
        producers.update(dict.fromkeys(results, len(nodes) - 1))
    return producers


def stream_groups(contents: DelegateContents) -> list[PassGroup]:
    """The passes of a delegate's command stream by layer, if its backend's disassembler lists them."""
    info = find_provider(contents.backend, lambda info: info.disassemble)
    if info is None:
        return []
    try:
        passes = info.load_function(info.disassemble)(contents).get("passes", ())
    except EdgewrightError:  # a note of the report says why
        return []
    return group_passes(passes, contents.layers.cycles)


def op_macs(op: Op) -> int:
    """Multiply-accumulates of an operator of any dialect."""
    if op.kind.startswith("core.") or not _PRODUCT.search(op.name):
        return count_core_macs(op)
    dialect = find_dialect(op.kind.partition(".")[0])
    try:
        return 0 if dialect is None else dialect.count_macs(op)
    except (EdgewrightError, ValueError, LookupError, TypeError, AttributeError, AssertionError):
        return 0  # an inconsistent operator of a file


def _call_macs(plan: schema.ExecutionPlan, call: Call) -> int:
    """Multiply-accumulates of a kernel call at its largest shapes; 0 for anything but products."""
    tensors = [plan.values[i] for i in (*call.reads, *call.writes)]
    shapes = [v.sizes for v in tensors if isinstance(v, schema.Tensor)]
    name = call.name.removeprefix("aten::").partition(".")[0]
    if len(shapes) < 3 or name not in ("convolution", "linear", "mm", "addmm", "bmm"):
        return 0
    if name == "convolution":
        transposed = plan.values[call.instruction.args[6]]  # type: ignore[union-attr]
        flipped = isinstance(transposed, schema.Bool) and transposed.bool_val
        return math.prod(shapes[0] if flipped else shapes[-1]) * math.prod(shapes[1][1:])
    return math.prod(shapes[1 if name == "addmm" else 0]) * shapes[-1][-1]

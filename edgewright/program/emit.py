"""Emission of a graph as an execution plan: operators become kernel calls, arguments become values."""

from __future__ import annotations

from typing import Any

import torch

from edgewright.errors import UnsupportedOperatorError
from edgewright.formats import schema
from edgewright.formats.operator_signatures import OPERATORS, Kind, Signature
from edgewright.ir.graph import Graph, Op, Value
from edgewright.lowering.kernel_resolution import is_list_output
from edgewright.program.constants import ConstantPool
from edgewright.program.delegates import DelegatePool
from edgewright.program.storage import Storage
from edgewright.program.tensors import EmitOptions, TensorEmitter
from edgewright.program.values import NUMBERS, ValueTableBuilder
from edgewright.program.write_order import sequentialize_updates

# Reshapes of a dense tensor: no instruction, the result aliases its source.
RESHAPES = {
    "aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims",
    "aten.alias_copy.default", "aten.detach_copy.default", "aten.lift_fresh_copy.default",
}  # fmt: skip

# Copies that change dtype or layout, which they read from their output: (with dim order, without).
_LAYOUT_KERNELS = {
    "aten._to_copy.default": ("dim_order_ops::_to_dim_order_copy.out", "aten::_to_copy.out"),
    "aten.clone.default": ("dim_order_ops::_clone_dim_order.out", "aten::clone.out"),
    "aten.empty.memory_format": ("dim_order_ops::_empty_dim_order.out", "aten::empty.out"),
}


# ExecuTorch's kernels that accumulate into their result instead of overwriting it.
_ACCUMULATING = {"aten::max_pool2d_with_indices_backward.grad_input"}


class Emitter:
    """Emits one graph."""

    def __init__(
        self,
        graph: Graph,
        options: EmitOptions,
        constants: ConstantPool,
        states: ConstantPool,
        blobs: DelegatePool | None = None,
    ) -> None:
        self.graph = graph
        self.blobs = DelegatePool() if blobs is None else blobs
        self.options = options
        self.values = ValueTableBuilder()
        self.storage = Storage(graph, options.planning, options.shared)
        self.tensors = TensorEmitter(options, constants, states, self.storage)
        self.instructions: list[Any] = []
        self.traces: list[schema.FrameList] = []
        self.given: list[tuple[str, ...]] = []  # source nodes of each instruction in the exported program
        self.delegates: list[schema.BackendDelegate] = []
        self._indices: dict[Value, int] = {}
        self._operators: dict[str, int] = {}

    def plan(self, encoded: tuple[str, str]) -> schema.ExecutionPlan:
        """The finished plan of the method."""
        inputs = [self.argument(v, Kind.ANY) for v in self.graph.inputs]
        self.body(self.graph)
        copies, updates = sequentialize_updates(self.graph.updates)
        for op in copies:
            self.op(op)
        for target, source in updates:
            self._update(target, source)
        outputs = [self._output(v) for v in self.graph.outputs]
        outputs += [self.argument(v, Kind.TENSOR) for v in self.graph.weights]
        arenas = self.storage.finish(self.instructions, self.values.items, list(self._operators))
        chain = schema.Chain(inputs=[], outputs=[], instructions=self.instructions)
        if self.options.emit_stacktrace:
            chain.stacktrace = self.traces
        return schema.ExecutionPlan(
            name=self.graph.name,
            container_meta_type=schema.ContainerMetadata(encoded_inp_str=encoded[0], encoded_out_str=encoded[1]),
            values=self.values.items,
            inputs=inputs,
            outputs=outputs,
            chains=[chain],
            operators=[_parse_operator(key) for key in self._operators],
            delegates=self.delegates,
            non_const_buffer_sizes=arenas,
        )

    def body(self, graph: Graph) -> None:
        """Emit the operators of a method, a branch or a loop body."""
        for op in graph.ops:
            self.op(op)

    # ---------------------------------------------------------------------------------------------- operators

    def op(self, op: Op) -> None:
        """Emit one operator."""
        from edgewright.program.control_flow import CONTROL_FLOW

        if op.kind in CONTROL_FLOW:
            CONTROL_FLOW[op.kind](self, op)
            return
        if op.kind == "delegate":
            self._delegate(op)
            return
        if op.kind in RESHAPES and self._reshape(op):
            return
        signature, args = self._kernel(op)
        inputs = [self.argument(args[a.name], a.kind) for a in signature.inputs]
        results = self._results(op, signature)
        if signature.key in _ACCUMULATING:
            size = self.argument(list(self.values.items[results[0]].sizes), Kind.INTS)
            self.call(OPERATORS["aten::zeros.out"], [size], [results[0], results[0]], op)
        self.call(signature, inputs, results, op)

    def _delegate(self, op: Op) -> None:
        """Emit a delegate call: ``id``, ``blob``, ``specs``, and ``inputs`` in the blob's order."""
        inputs = [self.argument(v, Kind.ANY) for v in op.args["inputs"]]
        outputs = [self.define(v) for v in op.outputs if v is not None]
        extras = {name: op.args.get(name) for name in ("twin", "estimates")}
        entry = self.blobs.add(op.args["id"], op.args["blob"], op.args["specs"], **extras, method=self.graph.name)
        self.delegates.append(entry)
        self.blobs.named.update(op.args.get("named", {}))
        self.storage.tail = max(self.storage.tail, op.args.get("tail", 0))
        self.instruction(schema.DelegateCall(delegate_index=len(self.delegates) - 1, args=[*inputs, *outputs]), op)

    def _kernel(self, op: Op) -> tuple[Signature, dict[str, Any]]:
        """The kernel of an operator, and its arguments by the kernel's names."""
        if op.kind in _LAYOUT_KERNELS:
            return self._layout_kernel(op)
        signature = self.options.kernels.by_kind(op.kind)
        if signature is None:
            where = f" in module {op.origin.module!r}" if op.origin.module else ""
            rule = f"has no kernel in the {self.options.kernels.name!r} runtime"
            raise UnsupportedOperatorError(f"{op.kind}{where}", rule, remedy=op.origin.line)
        names = [a.name for a in signature.inputs]
        if not set(names) <= set(op.args):  # arithmetic on sizes has positional arguments
            return signature, dict(zip(names, op.args.values(), strict=False))
        return signature, op.args

    def _layout_kernel(self, op: Op) -> tuple[Signature, dict[str, Any]]:
        with_order, plain = _LAYOUT_KERNELS[op.kind]
        out = op.outputs[0]
        assert out is not None
        args = {**op.args, "non_blocking": False}
        if not self.options.skip_dim_order:
            return OPERATORS[with_order], {**args, "dim_order": list(out.dim_order)}
        contiguous = out.dim_order == tuple(range(len(out.dim_order)))
        return OPERATORS[plain], {**args, "memory_format": None if contiguous else torch.preserve_format}

    def _results(self, op: Op, signature: Signature) -> list[int]:
        """The values a call writes, as its last arguments: the results, then the returned ones."""
        indices = [self._unused_result() if v is None else self.argument(v, Kind.ANY) for v in op.outputs]
        if not signature.outputs:
            return indices
        if is_list_output(signature):
            return [self.values.add(schema.TensorList(items=indices)) for _ in range(2)]
        if len(indices) > 1:
            return [*indices, self.values.add(schema.TensorList(items=indices))]
        return [indices[0], indices[0]] if signature.boxed > len(signature.args) else indices

    def _unused_result(self) -> int:
        """A placeholder for an unused result: kernels need a tensor there, and do not write it."""
        return self.values.shared("unwanted", lambda: schema.Tensor(scalar_type=0, sizes=(0,), dim_order=(0,)))

    def call(self, signature: Signature, inputs: list[int], results: list[int], op: Op | None = None) -> int:
        """Append a kernel call; returns the instruction's index."""
        index = self._operators.setdefault(signature.key, len(self._operators))
        return self.instruction(schema.KernelCall(op_index=index, args=[*inputs, *results]), op)

    def instruction(self, instruction: Any, op: Op | None = None) -> int:
        """Append an instruction; returns its index."""
        self.instructions.append(instruction)
        frames = op.origin.frames if op is not None else ()
        items = [schema.Frame(filename=f, lineno=n, name=name, context=c) for f, n, name, c in frames]
        self.traces.append(schema.FrameList(items=items))
        self.given.append(op.origin.given if op is not None else ())
        return len(self.instructions) - 1

    def _update(self, target: Value, source: Value) -> None:
        """Write the new contents of state (or of a mutated input) at the end of the method."""
        state, new = self.argument(target, Kind.TENSOR), self.argument(source, Kind.TENSOR)
        self.call(OPERATORS["aten::copy_"], [state, new, self.values.literal(False)], [state])

    def _output(self, value: Any) -> int:
        """A graph output. A returned input or state is copied, so that later writes do not change it."""
        if not isinstance(value, Value) or value.dtype is None or value.constant:
            return self.argument(value, Kind.ANY)
        if not value.state and value not in self.storage.inputs:
            return self.argument(value, Kind.ANY)
        copy = Value(f"{value.name}_out", value.dtype, value.shape, value.dim_order)
        self.storage.outputs.add(copy)
        self.op(Op("aten.clone.default", {"self": value, "memory_format": None}, [copy]))
        return self._indices[copy]

    # -------------------------------------------------------------------------------------------------- views

    def _reshape(self, op: Op) -> bool:
        """Make a result an alias of its source; False if it must be a copy."""
        source, out = next(op.inputs()), op.outputs[0]
        assert out is not None
        contiguous = all(v.dim_order == tuple(range(len(v.dim_order))) for v in (source, out))
        if not self.options.remove_view_copy or not contiguous or not self.storage.may_share(source, out):
            return False
        if source.dynamic or out.dynamic:
            return self._dynamic_view(op, source, out)
        if source.constant:
            assert source.data is not None
            out.data, out.qualified_name = source.data.reshape(out.bound), source.qualified_name
            return True
        self.argument(source, Kind.TENSOR)
        if not self.storage.planned(source):  # unplanned: the memory is known only at run time
            return self._dynamic_view(op, source, out)
        self.storage.share(out, source)
        self.define(out)
        return True

    def _dynamic_view(self, op: Op, source: Value, out: Value) -> bool:
        """A view of dynamic size: an instruction that points the result at its source's memory."""
        if op.kind != "aten.view_copy.default" or out in self.storage.outputs or source.constant:
            return False
        base = self.argument(source, Kind.TENSOR)
        self.storage.share(out, source, planned=False)
        size = self.argument(op.args["size"], Kind.INTS)
        self.call(OPERATORS["executorch_prim::et_view.default"], [base, size], [self.define(out)], op)
        return True

    # ------------------------------------------------------------------------------------------------- values

    def argument(self, value: Any, kind: Kind) -> int:
        """The index of an argument's value, created if it is new."""
        if isinstance(value, Value):
            return self._indices[value] if value in self._indices else self.define(value)
        if isinstance(value, list | tuple):
            return self._list(list(value), kind)
        if kind is Kind.FLOAT and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        return self.values.literal(value)

    def _list(self, items: list[Any], kind: Kind) -> int:
        if kind is Kind.TENSORS:
            return self.values.add(schema.TensorList(items=[self.argument(i, Kind.TENSOR) for i in items]))
        if kind is Kind.OPTIONAL_TENSORS:
            indices = [-1 if i is None else self.argument(i, Kind.TENSOR) for i in items]
            return self.values.add(schema.OptionalTensorList(items=indices))
        if kind is Kind.FLOATS:
            return self.values.floats(items)
        if kind is Kind.BOOLS:
            return self.values.bools(items)
        return self.values.ints([self.argument(i, Kind.INT) for i in items])

    def define(self, value: Value) -> int:
        """Create a value of the plan for a tensor or a scalar."""
        index = self.values.add(NUMBERS[value.kind]() if value.dtype is None else self.tensors.make(value))
        self._indices[value] = index
        self.storage.bind(value, index)
        return index

    def alias_to(self, value: Value, other: Value) -> None:
        """Map ``value`` to the same value of the plan as ``other``, which is defined."""
        self._indices[value] = self._indices[other]
        if other.dtype is not None:
            self.storage.share(value, other)


def _parse_operator(key: str) -> schema.Operator:
    name, _, overload = key.partition(".")
    return schema.Operator(name=name, overload=overload)

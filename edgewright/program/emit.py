"""Emission of a graph as an execution plan: operators become kernel calls, arguments become values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewright.errors import UnsupportedOperatorError
from edgewright.formats import schema
from edgewright.formats.layer_table import DelegateLayers, MethodLayers
from edgewright.formats.operator_signatures import OPERATORS, Kind, Signature
from edgewright.ir.graph import Graph, Op, Origin, Value
from edgewright.program.constants import ConstantPool
from edgewright.program.control_flow import CONTROL_FLOW
from edgewright.program.delegates import DelegatePool
from edgewright.program.plan_builder import PRESERVE_FORMAT, RESHAPES, EmitOptions, PlanBuilder

# Copies that change dtype or layout, which they read from their output: (with dim order, without).
_LAYOUT_KERNELS = {
    "aten._to_copy.default": ("dim_order_ops::_to_dim_order_copy.out", "aten::_to_copy.out"),
    "aten.clone.default": ("dim_order_ops::_clone_dim_order.out", "aten::clone.out"),
    "aten.empty.memory_format": ("dim_order_ops::_empty_dim_order.out", "aten::empty.out"),
}


# ExecuTorch's kernels that accumulate into their result instead of overwriting it.
_ACCUMULATING = {"aten::max_pool2d_with_indices_backward.grad_input"}


class Emitter(PlanBuilder):
    """Emits one graph."""

    def __init__(
        self,
        graph: Graph,
        options: EmitOptions,
        constants: ConstantPool,
        states: ConstantPool,
        blobs: DelegatePool | None = None,
    ) -> None:
        super().__init__(graph, options, constants, states)
        self.blobs = DelegatePool() if blobs is None else blobs
        self.delegates: list[schema.BackendDelegate] = []
        self.delegate_layers: list[DelegateLayers] = []

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

    @property
    def layers(self) -> MethodLayers:
        """Where the instructions and the operators of delegates come from, once the plan is finished."""
        return MethodLayers([self.origins], self.delegate_layers)

    # ---------------------------------------------------------------------------------------------- operators

    def op(self, op: Op) -> None:
        """Emit one operator."""
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
        self.delegate_layers.append(op.args.get("layers") or DelegateLayers())
        self.blobs.named_data.update(op.args.get("named", {}))
        self.storage.overread = max(self.storage.overread, op.args.get("overread", 0))
        self.instruction(schema.DelegateCall(delegate_index=len(self.delegates) - 1, args=[*inputs, *outputs]), op)
        self.origins[-1] = Origin()  # its operators have their own

    def _kernel(self, op: Op) -> tuple[Signature, dict[str, Any]]:
        """The kernel of an operator, and its arguments by the kernel's names."""
        if op.kind in _LAYOUT_KERNELS:
            return self._layout_kernel(op)
        signature = self.options.kernels.by_kind(op.kind)
        if signature is None:
            where = f" in module {op.origin.module!r}" if op.origin.module else ""
            rule = f"has no kernel in the {self.options.kernels.name!r} runtime"
            remedy = "\n  ".join(filter(None, (op.origin.line, self.options.kernels.remedy_by_kind(op.kind))))
            raise UnsupportedOperatorError(f"{op.kind}{where}", rule, remedy=remedy)
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
        return OPERATORS[plain], {**args, "memory_format": None if contiguous else PRESERVE_FORMAT}

    def _results(self, op: Op, signature: Signature) -> list[int]:
        """The values a call writes, as its last arguments: the results, then the returned ones."""
        indices = [self._unused_result() if v is None else self.argument(v, Kind.ANY) for v in op.outputs]
        if not signature.outputs:
            return indices
        if signature.returns_list:
            return [self.values.add(schema.TensorList(items=indices)) for _ in range(2)]
        if len(indices) > 1:
            return [*indices, self.values.add(schema.TensorList(items=indices))]
        return [indices[0], indices[0]] if signature.num_values > len(signature.args) else indices

    def _unused_result(self) -> int:
        """A placeholder for an unused result: kernels need a tensor there, and do not write it."""
        return self.values.shared("unwanted", lambda: schema.Tensor(scalar_type=0, sizes=(0,), dim_order=(0,)))

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


def _parse_operator(key: str) -> schema.Operator:
    name, _, overload = key.partition(".")
    return schema.Operator(name=name, overload=overload)


Update = tuple[Value, Value]  # state (or a mutated input), and its new contents


def sequentialize_updates(updates: Sequence[Update]) -> tuple[list[Op], list[Update]]:
    """Order the updates so that none overwrites what a later one reads.

    This is the parallel-copy problem of SSA deconstruction: an update is ready when no other pending one reads its
    target; a cycle is broken by copying one source first (Boissinot et al., "Revisiting Out-of-SSA Translation for
    Correctness, Code Quality, and Efficiency", CGO 2009). Returns the copies and the ordered updates.
    """
    pending, copies, ordered = list(updates), list[Op](), list[Update]()
    while pending:
        ready = [u for u in pending if not any(source is u[0] for target, source in pending if target is not u[0])]
        if not ready:
            target, source = pending[0]
            copy = Value(f"{source.name}_old", source.dtype, source.shape, source.dim_order)
            copies.append(Op("aten.clone.default", {"self": source, "memory_format": None}, [copy]))
            pending[0] = target, copy
            continue
        ordered += ready[:1]
        pending.remove(ready[0])
    return copies, ordered

"""``EthosUPartitioner``: selects and compiles the subgraphs that run on an Ethos-U."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgewright.backends.ethos_u.blob import ALIGNMENT, RANK, Blob, Tensor, write_blob
from edgewright.backends.ethos_u.debug_info import locations, save_debug_info
from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.estimates import name_layers
from edgewright.backends.ethos_u.lower import TosaLowering
from edgewright.backends.ethos_u.npu import supported, without_commands
from edgewright.backends.ethos_u.ops import BACKEND, TABLES, argmax_fits
from edgewright.backends.ethos_u.pass_layers import pass_layers
from edgewright.backends.ethos_u.pool_scale import keep_input_scale
from edgewright.backends.ethos_u.target import ACCELERATORS, DebugMode, EthosUCompileSpec
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.backends.ethos_u.vela import compile_tosa
from edgewright.backends.ethos_u.verify_vela import verify_commands
from edgewright.backends.info import BackendInfo
from edgewright.backends.table import FLOAT, STATIC, Backend, precision_of
from edgewright.errors import UsageError
from edgewright.formats.twin_writer import write_twin
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.verify import verify
from edgewright.lowering.partition.partitioner import Partitioner
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_constants
from edgewright.lowering.passes.legalize import legalize
from edgewright.lowering.passes.value_storage import CLAMPS

aten = torch.ops.aten


class EthosUPartitioner(Partitioner):
    """Delegates all operators that the backend's rules support.

    ``additional_checks``: ``DontPartition(...)`` and the like, or objects with ``is_node_supported``. ``verify``: run
    Vela's command stream on the simulator and compare it with the graph bit for bit.
    """

    backend = BACKEND

    def __init__(
        self, compile_spec: EthosUCompileSpec, additional_checks: Sequence[Any] = (), *, verbose: bool = False,
        verify: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(list(additional_checks or ()), verbose=verbose)
        self.verify = verify
        self.compile_spec = check_spec(compile_spec)
        self._needs_commands = True

    @classmethod
    def for_target(cls, target: str | None) -> EthosUPartitioner:
        if target is None:
            remedy = f"Name one: --backend ethos_u:ethos-u55-128, or {', '.join(ACCELERATORS)}."
            raise UsageError("backend 'ethos_u'", "needs a target", remedy=remedy)
        return cls(EthosUCompileSpec(target))

    @classmethod
    def for_spec(cls, spec: EthosUCompileSpec, *, simulate_only: bool = False) -> EthosUPartitioner:
        return cls(spec)

    def for_inspection(self) -> EthosUPartitioner:
        """Without Vela where commands do not run on the host; elsewhere without its search for a small arena, which
        takes minutes with hundreds of outputs (1 s without it)."""
        partitioner = copy.copy(self)
        partitioner._needs_commands = supported(self.compile_spec.target) is None
        partitioner.compile_spec = self.compile_spec.with_allocator("LinearAlloc").without_artifacts()
        return partitioner

    def target(self) -> EthosUCompileSpec:
        return self.compile_spec

    def rewrite(self, exported: ExportedProgram) -> ExportedProgram:
        narrow_indices(exported.graph_module)
        _narrow_argmax(exported.graph_module, self.compile_spec)
        return exported

    def program_specs(self) -> dict[str, bytes]:
        return self.compile_spec.to_compile_specs()

    def register_custom_partition_op(self, op: Any) -> None:
        """Accepts operators that the backend supports, which are delegated anyway; an operator of your own has no
        lowering to TOSA and is rejected."""
        if not any(row.name in self.backend.rows for row in OPS.matching(str(op))):
            rule = "has no lowering to TOSA: the NPU cannot run it"
            remedy = "Leave it to the CPU: nothing needs to be registered for that."
            raise UsageError(f"register_custom_partition_op: {op}", rule, remedy=remedy)

    def lower(self, group: Graph) -> LoweredBackendModule:
        device = to_tosa(group, self.compile_spec)
        spec = self.compile_spec
        twin = None if supported(spec.target) is None else write_twin({"": device})
        specs = spec.to_compile_specs()
        if twin is not None and not self._needs_commands:
            blob = uncompiled_blob(spec.target, device.inputs, device.outputs, hashlib.sha256(twin).digest())
            return LoweredBackendModule(self.backend.id, write_blob(blob), specs, {}, twin)
        inputs, outputs = ([value.nbytes for value in side] for side in (device.inputs, device.outputs))
        tosa = write_tosa(device, locations(device, spec))
        if spec.debug_mode is DebugMode.JSON:
            save_debug_info(device, tosa, spec)
        compiled = compile_tosa(tosa, spec, inputs=inputs, outputs=outputs)
        if self.verify:
            verify_commands(device, compiled, spec.target)
        expected = None
        if compiled.performance is not None:
            scratch = compiled.scratch_size + compiled.fast_scratch_size
            expected = {**name_layers(compiled.performance, device).to_dict(), "scratch": scratch}
        layers = pass_layers(compiled, device)
        options: dict[str, Any] = {"estimates": expected, "layers": layers}
        return LoweredBackendModule(self.backend.id, write_blob(compiled), specs, {}, twin, **options)


def uncompiled_blob(accelerator: str, inputs: Sequence[Value], outputs: Sequence[Value], digest: bytes) -> Blob:
    """A blob without commands, of a graph that runs as its host twin. The twin is found by the blob's digest, so that
    blobs of different graphs must differ."""
    size, tensors = 0, []
    for value in (*inputs, *outputs):
        assert value.dtype is not None
        shape = (*(1,) * (RANK - len(value.bound)), *value.bound)
        tensors.append(Tensor(shape, value.dtype.itemsize, size))
        size += -(-value.nbytes // ALIGNMENT) * ALIGNMENT
    return Blob(without_commands(accelerator), digest, size, tensors[: len(inputs)], tensors[len(inputs) :])


# Position of the index argument.
_INDEX_ARGUMENTS = {aten.embedding.default: 1, aten.index_select.default: 2}


def narrow_indices(module: fx.GraphModule) -> None:
    """Cast int64 indices to int32, which the NPU supports, with a cast that runs on the CPU."""
    graph = module.graph
    for node in list(graph.nodes):
        position = _INDEX_ARGUMENTS.get(node.target)
        indices: Any = node.args[position] if position is not None else None
        if not isinstance(indices, fx.Node) or indices.meta["val"].dtype != torch.int64 or indices.op == "get_attr":
            continue
        with graph.inserting_before(node):
            cast = graph.call_function(aten._to_copy.default, (indices,), {"dtype": torch.int32})
        cast.meta = {**node.meta, "val": indices.meta["val"].to(torch.int32)}
        node.replace_input_with(indices, cast)
    module.recompile()


def _narrow_argmax(module: fx.GraphModule, spec: EthosUCompileSpec) -> None:
    """Let the NPU compute int64 results of ``argmax`` as int32; a cast on the CPU widens them."""
    graph = module.graph
    for node in list(graph.nodes):
        source: Any = node.args[0] if node.target is aten.argmax.default else None
        if source is None or source.target is not torch.ops.quantized_decomposed.dequantize_per_tensor.default:
            continue
        dtypes, shape = [user.kwargs.get("dtype") for user in node.users], source.meta["val"].shape
        fits = argmax_fits(shape, source.args[5].itemsize, *node.args[1:2], spec=spec)
        if torch.int32 in dtypes or not fits:
            continue
        users, value = list(node.users), node.meta["val"]
        with graph.inserting_after(node):
            narrow = graph.call_function(aten._to_copy.default, (node,), {"dtype": torch.int32})
        with graph.inserting_after(narrow):
            wide = graph.call_function(aten._to_copy.default, (narrow,), {"dtype": torch.int64})
        narrow.meta, wide.meta = {**node.meta, "val": value.to(torch.int32)}, dict(node.meta)
        for user in users:
            user.replace_input_with(node, wide)
    module.recompile()


def check_spec(spec: object) -> EthosUCompileSpec:
    if not isinstance(spec, EthosUCompileSpec):
        remedy = 'Make one: EthosUCompileSpec("ethos-u55-128").'
        raise UsageError("compile_spec", "must be an EthosUCompileSpec", value=type(spec).__name__, remedy=remedy)
    return spec


def to_tosa(group: Graph, target: EthosUCompileSpec | None) -> Graph:
    """Lower a partition to a graph of TOSA operators."""
    apply(
        group,
        lambda graph: fold_constants(graph, OPS),
        lambda graph: legalize(graph, BACKEND.rows, target),
        lambda graph: keep_input_scale(graph, target),
    )
    device = TosaLowering(group, BACKEND.rows, target).run()
    verify(device, DIALECT)
    return device


# ---------------------------------------------------------------------------------------- TOSA export, for debugging

# Operators with a floating-point lowering.
_FLOAT_OPS = {
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "linear", "mm", "bmm", "add", "sub", "mul",
    "maximum", "minimum", "batch_norm", "ceil", "floor", "reciprocal", *CLAMPS,
    *(op for op, name in TABLES.items() if name),
}  # fmt: skip
_ROWS = [
    replace(row, precisions=(FLOAT, STATIC) if row.op in _FLOAT_OPS else row.precisions)
    for row in BACKEND.rows.values()
]


class _TosaPartitioner(Partitioner):
    backend = Backend(BackendInfo("tosa", id="TOSA"), _ROWS, BACKEND.rules)
    no_decompose = frozenset({aten.relu6.default})  # in float, the others are supported as what they decompose into

    def __init__(self) -> None:
        super().__init__()
        self.files: list[bytes] = []

    def rejections(self, op: Op) -> list[str]:
        pair = [op.args[n] for n in ("self", "other") if "other" in op.args]
        if precision_of(op) == FLOAT and any(not isinstance(v, Value) or (v.constant and not v.shape) for v in pair):
            return ["operands of floating-point TOSA must be tensors"]
        return super().rejections(op)

    def lower(self, group: Graph) -> LoweredBackendModule:
        self.files.append(write_tosa(to_tosa(group, None)))
        return LoweredBackendModule(self.backend.id, self.files[-1], {}, {})


def export_tosa(exported: ExportedProgram) -> list[bytes]:
    """Export the partitions of a program that TOSA can express, each as a TOSA 1.0 file, in execution order.

    An unquantized program becomes floating-point TOSA, which Arm's reference model runs and Ethos-U does not.
    """
    partitioner = _TosaPartitioner()
    from edgewright.program.edge import to_edge_transform_and_lower

    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return partitioner.files

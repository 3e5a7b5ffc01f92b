"""``NeutronPartitioner``: what runs on Neutron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgewright.backends.nxp import sdk
from edgewright.backends.nxp.blob import from_converter, write_blob
from edgewright.backends.nxp.build_graph import to_tflite
from edgewright.backends.nxp.channels_last_io import channels_last_ends
from edgewright.backends.nxp.estimates import estimate
from edgewright.backends.nxp.ops import BACKEND
from edgewright.backends.nxp.target import (
    DEFAULT,
    CustomDelegationOptions,
    NeutronTargetSpec,
    generate_neutron_compile_spec,
    read_options,
)  # fmt: skip
from edgewright.backends.nxp.tflite_file import unique_names, write_tflite
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats.twin_writer import write_twin
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph, Op
from edgewright.lowering.partition.partitioner import Partitioner

aten = torch.ops.aten
KEPT = (aten.hardswish.default, aten.relu6.default, aten.prelu.default, aten.pad.default, aten.softmax.int)
# Movement alone is not worth a delegate.
_IDLE = {
    "permute",
    "transpose",
    "t",
    "view",
    "reshape",
    "flatten",
    "unsqueeze",
    "squeeze",
    "clone",
    "dropout",
    "expand",
}


class NeutronPartitioner(Partitioner):
    """Delegates to Neutron as much as its rows take.

    ``post_quantization_state_dict``, ``preserve_ops`` and ``check_op_support`` are there for scripts that give them:
    constants are known here, and operators that a row takes are not decomposed.
    """

    backend = BACKEND
    backend_id = "NeutronBackend"
    kept = KEPT

    def __init__(
        self,
        compile_spec: Sequence[Any] | None = None,
        neutron_target_spec: NeutronTargetSpec | None = None,
        custom_delegation_options: CustomDelegationOptions | None = None,
        post_quantization_state_dict: Mapping[str, Any] | None = None,
        preserve_ops: Sequence[Any] | None = None,
        check_op_support: Any = None,
        *,
        verbose: bool = False,
    ) -> None:
        self.compile_spec = generate_neutron_compile_spec() if compile_spec is None else list(compile_spec)
        self.options = read_options(self.compile_spec)
        self.target_spec = checked_target(neutron_target_spec, self.options.target)
        self.delegation = custom_delegation_options or CustomDelegationOptions()
        self.files: list[bytes] = []  # of the groups, as TFLite
        names = self.options.operators_not_to_delegate
        super().__init__([_left_out(names)] if names else [], verbose=verbose)

    @classmethod
    def for_target(cls, target: str | None) -> NeutronPartitioner:
        return cls(generate_neutron_compile_spec(target or DEFAULT))

    @classmethod
    def for_simulation(cls, target: str | None) -> NeutronPartitioner:
        """For a program that runs on this machine only."""
        return cls(generate_neutron_compile_spec(target or DEFAULT, simulate_only=True))

    def target(self) -> NeutronTargetSpec:
        return self.target_spec

    def keep(self, ops: Sequence[Op]) -> bool:
        return self.delegation.allow_no_op_partitions or any(op.kind not in _IDLE for op in ops)

    def partition(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        if not self.options.simulate_only:
            sdk.require(self.options.flavor)
        return super().partition(exported, method)

    def lower(self, group: Graph) -> LoweredBackendModule:
        device = to_tflite(group, self.backend.rows, self.target_spec)
        twin, expected = write_twin({"": device}), estimate(device, self.target_spec)
        specs = {spec.key: bytes(spec.value) for spec in self.compile_spec}
        tag = f"tag{len(self.files)}"
        if self.options.simulate_only:
            self._keep_file(f"{tag}_pure.et.tflite", write_tflite(device))
            return LoweredBackendModule(self.backend_id, twin, specs, {}, estimates=expected)
        given, turned = (device, []) if self.options.use_neutron_for_format_conversion else channels_last_ends(device)
        tflite = write_tflite(given)
        self._keep_file(f"{tag}_pure.et.tflite", tflite)
        flags = ("fetch_constants_to_sram", "dump_kernel_selection_code", "use_profiling")
        made = sdk.convert(
            tflite, self.options.target, flavor=self.options.flavor, **{f: getattr(self.options, f) for f in flags}
        )
        self._write(f"{tag}_neutron.et.tflite", made)
        names = dict(zip(given.values(), unique_names(list(given.values())), strict=True))
        inputs, outputs = ([names[v] for v in side] for side in (given.inputs, given.outputs))
        blob = write_blob(from_converter(made, inputs, outputs, [names[v] for v in turned]))
        return LoweredBackendModule(self.backend_id, blob, specs, {}, twin, estimates=expected)

    def _keep_file(self, name: str, data: bytes) -> None:
        self.files.append(data)
        self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        if self.options.intermediates_dir is not None:
            folder = Path(self.options.intermediates_dir)
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, [data])


def checked_target(given: Any, target: str = DEFAULT) -> NeutronTargetSpec:
    if given is None:
        return NeutronTargetSpec(target)
    if not isinstance(given, NeutronTargetSpec):
        remedy = 'Make one: NeutronTargetSpec("imxrt700").'
        rule = "must be a NeutronTargetSpec"
        raise UsageError("neutron_target_spec", rule, value=type(given).__name__, remedy=remedy)
    return given


def _left_out(names: Sequence[str]) -> Any:
    """Operators that a compile spec keeps from Neutron: by parts of the names that ExecuTorch has for their nodes."""

    def why(op: Op, node: fx.Node | None = None) -> str | None:
        known = (op.origin.node, op.kind.replace("::", "_").replace(".", "_"))
        return "excluded by operators_not_to_delegate" if any(n in k for n in names for k in known) else None

    return why


def export_tflite(exported: ExportedProgram, target: str = DEFAULT) -> list[bytes]:
    """The groups of a quantized program that Neutron takes, each as a TFLite file, in the order they run.

    NXP's converter is not needed.
    """
    partitioner = NeutronPartitioner(generate_neutron_compile_spec(target, simulate_only=True))
    from edgewright.program.edge import to_edge_transform_and_lower

    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return partitioner.files

"""``NeutronPartitioner``: assigns operators to Neutron and lowers each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgewright.backends.nxp import sdk
from edgewright.backends.nxp.blob import from_converter, write_blob
from edgewright.backends.nxp.build_graph import strip_io_transposes, to_tflite
from edgewright.backends.nxp.estimates import estimate
from edgewright.backends.nxp.ops import BACKEND
from edgewright.backends.nxp.target import (
    DEFAULT,
    CustomDelegationOptions,
    NeutronTargetSpec,
    converter_options,
    for_simulation,
    generate_neutron_compile_spec,
    read_options,
)  # fmt: skip
from edgewright.backends.nxp.tflite_file import unique_names, write_tflite
from edgewright.errors import UsageError
from edgewright.files import write_file
from edgewright.formats.twin_writer import write_twin
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op
from edgewright.lowering.partition.exclude import Excluder, node_names
from edgewright.lowering.partition.partitioner import Partitioner


class NeutronPartitioner(Partitioner):
    """Delegates every operator that Neutron supports.

    ``post_quantization_state_dict``: the constants that the program must have; others are an error.
    ``preserve_ops``: operators that are not decomposed. Those that Neutron supports never are; others are rejected, and
    so is ``check_op_support``, which would choose among their calls.
    """

    backend = BACKEND

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
        self.target_spec = check_target(neutron_target_spec, self.options.target)
        self.delegation = custom_delegation_options or CustomDelegationOptions()
        self.files: list[bytes] = []  # TFLite file of each partition
        self.expected_state = dict(post_quantization_state_dict or {})
        _check_preserved(preserve_ops, check_op_support)
        names = self.options.operators_not_to_delegate
        super().__init__([_NotDelegated(*names)] if names else [], verbose=verbose)

    @classmethod
    def for_target(cls, target: str | None) -> NeutronPartitioner:
        return cls(generate_neutron_compile_spec(target or DEFAULT))

    @classmethod
    def for_simulation(cls, target: str | None) -> NeutronPartitioner:
        """For a program that runs on the host only."""
        return cls(generate_neutron_compile_spec(target or DEFAULT, simulate_only=True))

    @classmethod
    def for_spec(cls, spec: Sequence[Any], *, simulate_only: bool = False) -> NeutronPartitioner:
        return cls(for_simulation(spec) if simulate_only else spec)

    def simulate(self) -> None:
        self.compile_spec = for_simulation(self.compile_spec)
        self.options = read_options(self.compile_spec)

    def target(self) -> NeutronTargetSpec:
        return self.target_spec

    def accepts_group(self, ops: Sequence[Op]) -> bool:
        return self.delegation.allow_no_op_partitions or super().accepts_group(ops)

    def program_specs(self) -> dict[str, bytes]:
        return {spec.key: bytes(spec.value) for spec in self.compile_spec}

    def rewrite(self, exported: ExportedProgram) -> ExportedProgram:
        for name, tensor in self.expected_state.items():
            actual = exported.state_dict.get(name)
            if actual is not None and not torch.equal(actual, tensor):
                rule = "must be the state of the program that is lowered: it has other values"
                raise UsageError(f"post_quantization_state_dict[{name!r}]", rule, remedy="Leave it out.")
        return exported

    def delegate(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        if not self.options.simulate_only:
            sdk.require(self.options.flavor)
        return super().delegate(exported, method)

    def lower(self, group: Graph) -> LoweredBackendModule:
        device = to_tflite(group, self.backend.rows, self.target_spec)
        twin, expected = write_twin({"": device}), estimate(device, self.target_spec)
        specs = self.program_specs()
        tag = f"tag{len(self.files)}"
        if self.options.simulate_only:
            self._keep_file(f"{tag}_pure.et.tflite", write_tflite(device))
            return LoweredBackendModule(self.backend.id, twin, specs, {}, estimates=expected)
        converter_input, transposed = (
            (device, []) if self.options.use_neutron_for_format_conversion else strip_io_transposes(device)
        )
        tflite = write_tflite(converter_input)
        self._keep_file(f"{tag}_pure.et.tflite", tflite)
        flags = ("fetch_constants_to_sram", "dump_kernel_selection_code", "use_profiling")
        converted = sdk.convert(
            tflite, self.options.target, flavor=self.options.flavor, extra=converter_options(self.options.flags),
            **{f: getattr(self.options, f) for f in flags},
        )  # fmt: skip
        self._write(f"{tag}_neutron.et.tflite", converted)
        names = dict(zip(converter_input.values(), unique_names(list(converter_input.values())), strict=True))
        inputs, outputs = ([names[v] for v in side] for side in (converter_input.inputs, converter_input.outputs))
        blob = write_blob(from_converter(converted, inputs, outputs, [names[v] for v in transposed]))
        return LoweredBackendModule(self.backend.id, blob, specs, {}, twin, estimates=expected)

    def _keep_file(self, name: str, data: bytes) -> None:
        self.files.append(data)
        self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        if self.options.intermediates_dir is not None:
            folder = Path(self.options.intermediates_dir)
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, [data])


def _check_preserved(operators: Sequence[Any] | None, check: Any) -> None:
    for operator in operators or ():
        if not any(row.name in BACKEND.rows for row in OPS.matching(str(operator))):
            rule = "must be operators that Neutron supports: others are decomposed, so that their parts can run on it"
            raise UsageError("preserve_ops", rule, value=str(operator))
    if check is not None:
        remedy = "Leave it out. operators_not_to_delegate of the compile spec leaves nodes to the CPU."
        rule = "is not supported: whether an operator is decomposed does not depend on the node"
        raise UsageError("check_op_support", rule, remedy=remedy)


def check_target(spec: Any, target: str = DEFAULT) -> NeutronTargetSpec:
    if spec is None:
        return NeutronTargetSpec(target)
    if not isinstance(spec, NeutronTargetSpec):
        remedy = 'Make one: NeutronTargetSpec("imxrt700").'
        rule = "must be a NeutronTargetSpec"
        raise UsageError("neutron_target_spec", rule, value=type(spec).__name__, remedy=remedy)
    return spec


class _NotDelegated(Excluder):
    """``operators_not_to_delegate``: parts of the names of ExecuTorch's nodes or of operators."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names, exact=False)
        self.subject = "operators_not_to_delegate"

    def reason(self, op: Op, node: fx.Node | None) -> str | None:
        kind = op.kind.replace("::", "_").replace(".", "_")
        return f"excluded by {self.subject}" if self.matches(*node_names(op, node), kind) else None


def export_tflite(exported: ExportedProgram, target: str = DEFAULT) -> list[bytes]:
    """The partitions of a quantized program that Neutron supports, each as a TFLite file, in execution order.

    Does not need NXP's converter.
    """
    partitioner = NeutronPartitioner(generate_neutron_compile_spec(target, simulate_only=True))
    from edgewright.program.edge import to_edge_transform_and_lower

    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return partitioner.files

"""``QnnPartitioner``: assigns operators to a Hexagon processor and lowers each partition; and lowering in one call."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.delegate import release
from edgewright.backends.qualcomm.dialect.twin import unsupported_ops
from edgewright.backends.qualcomm.emit import probe_for, signature
from edgewright.backends.qualcomm.estimates import estimate
from edgewright.backends.qualcomm.exclude import NameExclusions
from edgewright.backends.qualcomm.index_dtype import IndexNarrowing
from edgewright.backends.qualcomm.lower import QnnLowering
from edgewright.backends.qualcomm.norms import batch_norm_factors
from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.sharing import SharedContexts, SharedSpills
from edgewright.backends.qualcomm.target import (
    SIMULATED,
    QcomChipset,
    QnnTarget,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.backends.qualcomm.twin import make_twin
from edgewright.backends.qualcomm.worker import compile_in_subprocess
from edgewright.errors import UsageError
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.frontend.export import export
from edgewright.hints import did_you_mean
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op
from edgewright.ir.verify import verify
from edgewright.lowering.partition.partitioner import Partitioner
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_batch_norms, fold_constants
from edgewright.quantize.state import integer_state

log = logging.getLogger("edgewright.qualcomm")


class QnnPartitioner(Partitioner):
    """Delegates every operator that the operator table and Qualcomm's validator accept.

    ``compiler_specs``: from ``generate_qnn_executorch_compiler_spec``. ``skip_node_id_set`` and ``skip_node_op_set``:
    names of nodes and of operators (``aten.add.Tensor``) to exclude. ``simulate_only``: compile a program that runs on
    the host and never on a device, without Qualcomm's libraries. ``optimization_level``: effort of the compiler, 1 to
    3. ``shared``: partitions to compile together with those of other methods; ``spills``: contexts that share a spill
    buffer. ``integer_state``: store quantized state (a cache) as integers. ``name_exclusions``: both sets, shared by
    several methods.
    """

    backend = BACKEND

    def __init__(
        self, compiler_specs: Sequence[Any], skip_node_id_set: Any = None, skip_node_op_set: Any = None,
        skip_mutable_buffer: bool = False,
        *, exclude: Sequence[Any] = (), verbose: bool = False, simulate_only: bool = False,
        optimization_level: int = 3, shared: SharedContexts | None = None, spills: SharedSpills | None = None,
        integer_state: bool = True, name_exclusions: NameExclusions | None = None,
    ) -> None:  # fmt: skip
        super().__init__(exclude, verbose=verbose)
        reject_skip_mutable_buffer(skip_mutable_buffer)
        self.exclude.append(name_exclusions or NameExclusions(skip_node_id_set, skip_node_op_set))
        self.integer_state = integer_state
        self.simulate_only = simulate_only
        self.compiler_specs = compiler_specs
        if optimization_level not in (1, 2, 3):
            raise UsageError("optimization_level", "must be 1, 2 or 3", value=optimization_level)
        self._target = replace(QnnTarget.of(compiler_specs), level=optimization_level)
        self.shared = shared
        self.spills = SharedSpills() if spills is None else spills
        self._method = "forward"
        self._index_narrowing = IndexNarrowing()

    @classmethod
    def for_target(cls, target: str | None) -> QnnPartitioner:
        """For a SoC by name; floating point is computed in fp16."""
        if target is None:
            remedy = f"Name one: --backend qualcomm:SM8650, or {', '.join(c.name for c in QcomChipset)}."
            raise UsageError("backend 'qualcomm'", "needs a SoC", remedy=remedy)
        return cls(_specs(target))

    @classmethod
    def for_simulation(cls, target: str | None) -> QnnPartitioner:
        """For a program that runs on the host only."""
        return cls(_specs(target or QcomChipset.SM8650.name), simulate_only=True)

    @classmethod
    def for_spec(cls, spec: Sequence[Any], *, simulate_only: bool = False) -> QnnPartitioner:
        return cls(spec, simulate_only=simulate_only)

    def simulate(self) -> None:
        self.simulate_only, self.shared = True, None

    def target(self) -> QnnTarget:
        return self._target

    def rewrite(self, exported: ExportedProgram) -> ExportedProgram:
        self._index_narrowing = IndexNarrowing()
        return integer_state(exported) if self.integer_state else exported

    def program_specs(self) -> dict[str, bytes]:
        return {KEY: self._target.value}

    def delegate(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        self._method = method
        return super().delegate(exported, method)

    def rejections(self, op: Op) -> list[str]:
        """Violated rules, else the verdict of Qualcomm's validator."""
        reasons = super().rejections(self._index_narrowing.narrow(op))
        return reasons if reasons or self.simulate_only else self._probe_rejections(op)

    def _probe_rejections(self, op: Op) -> list[str]:
        outputs = [o for o in op.outputs if o is not None]
        inputs = list(dict.fromkeys(v for v in op.inputs() if not v.constant))
        single = Graph("probe", [*inputs], [*outputs], [op])
        device = QnnLowering(single, BACKEND.rows, self._target).run()
        rejection = probe_for(self._target).rejection(signature(op, outputs), device)
        return [] if rejection is None else [rejection]

    def lower(self, group: Graph) -> LoweredBackendModule:
        device = to_qnn(group, self._target)
        twin, specs, expected = make_twin(device), {KEY: self._target.value}, estimate(device, self._target)
        if self.simulate_only:
            if twin is None:
                rule = "cannot be simulated without Qualcomm's libraries"
                raise UsageError(", ".join(unsupported_ops(device)), rule, remedy="Leave it out with skip_node_op_set.")
            specs["target"] = f"{self._target.soc.name}{SIMULATED}".encode()
            return LoweredBackendModule(self.backend.id, twin, specs, {}, estimates=expected)
        build = probe_for(self._target).build
        _warn_release(release(build))
        if self.shared is not None:
            deferred = LoweredBackendModule(self.backend.id, b"", specs, {}, twin, estimates=expected)
            self.shared.add(self._method, device, deferred)
            return deferred
        context = compile_in_subprocess(device, self._target, self._method)
        expected = {**expected, "compiler": f"QNN {build}"}
        lowered = LoweredBackendModule(self.backend.id, write_blob(context), specs, {}, twin, estimates=expected)
        self.spills.add(self._target, lowered, context)
        return lowered


def reject_skip_mutable_buffer(value: Any) -> None:
    """Raise unless ``value`` is False: the option of ExecuTorch's partitioner has no meaning here."""
    if value:
        rule = "must be False: state is always an input and an output of delegates here, and never inside one"
        raise UsageError("skip_mutable_buffer", rule, value=value, remedy="Leave it out.")


def _specs(soc: str) -> list[Any]:
    return list(generate_qnn_executorch_compiler_spec(soc, generate_htp_compiler_spec(use_fp16=True)))


@cache
def _warn_release(reasons: str) -> None:
    """Warn once: a device rejects contexts from a newer compiler."""
    log.warning("compiled with QNN %s: needs QNN >= %s on the device", reasons, reasons)


def to_qnn(group: Graph, target: QnnTarget) -> Graph:
    """Lower a partition to a QNN device graph."""
    apply(
        group,
        lambda graph: fold_constants(graph, OPS),
        lambda graph: fold_batch_norms(graph, batch_norm_factors),
    )
    device = QnnLowering(group, BACKEND.rows, target).run()
    verify(device)
    return device


# ------------------------------------------------------------------------------------------------- one-call lowering


def to_edge_transform_and_lower_to_qnn(
    module: Any, inputs: Any, compiler_specs: Any, constant_methods: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None, skip_node_id_set: Any = None, skip_node_op_set: Any = None,
    optimization_level: int = 3, transform_passes: Any = None, integer_state: bool = True,
) -> Any:  # fmt: skip
    """Export and lower a module, or a dict of modules by method name; arguments may then be dicts by method as well.

    ``skip_node_id_set`` and ``skip_node_op_set``: names of nodes and operators to leave to the CPU. Methods with
    ``use_weight_sharing=True`` are compiled into one context. ``optimization_level``: 1 to 3.
    ``transform_passes``: custom passes, run before lowering. ``integer_state``: store quantized state (a cache) as
    integers.
    """
    from edgewright.program.edge import to_edge_transform_and_lower

    several = isinstance(module, Mapping)
    modules = dict(module) if several else {"forward": module}
    partitioners, exported, shared, spills = {}, {}, SharedContexts(), SharedSpills()
    name_exclusions = NameExclusions(skip_node_id_set, skip_node_op_set)
    for name, method_module in modules.items():
        specs = _for_method(compiler_specs, name)
        partitioner = QnnPartitioner(
            specs, optimization_level=optimization_level, shared=shared if _shares(modules, specs) else None,
            spills=spills, integer_state=integer_state, name_exclusions=name_exclusions,
        )  # fmt: skip
        partitioners[name] = [partitioner]
        shapes = _shapes(dynamic_shapes, name, several)
        exported[name] = _export(name, method_module, _for_method(inputs, name), shapes)
    lowered = to_edge_transform_and_lower(exported, transform_passes, partitioners, constant_methods)
    targets = {p.target() for (p,) in partitioners.values() if p.shared is not None}
    if len(targets) > 1:
        raise UsageError("compiler_specs", "of methods that share weights must be the same", value=len(targets))
    for target in targets:
        shared.compile(target, spills)
    return lowered


def _export(name: str, module: Any, inputs: Any, shapes: Any) -> ExportedProgram:
    if not isinstance(module, torch.nn.Module):
        remedy = "Pass the model or the result of convert_pt2e. For an exported program, use QnnPartitioner."
        raise UsageError(f"module of {name!r}", "must be a torch.nn.Module", value=type(module).__name__, remedy=remedy)
    if not isinstance(inputs, tuple):
        remedy = "Pass a tuple, or a dict of tuples by method."
        raise UsageError(f"inputs of {name!r}", "must be a tuple", value=type(inputs).__name__, remedy=remedy)
    return export(module, inputs, dynamic_shapes=shapes)


def _shapes(argument: Any, method: str, several: bool) -> Any:
    """Dynamic shapes of a method. Those of a single module are a dict, too, keyed by argument."""
    by_method = isinstance(argument, Mapping) and (several or set(argument) == {method})
    return _for_method(argument, method) if by_method else argument


def _shares(modules: Mapping[str, Any], specs: Any) -> bool:
    return len(modules) > 1 and QnnTarget.of(specs).sharing


def _for_method(argument: Any, method: str) -> Any:
    """The argument for a method: by method name, or the same for all."""
    if not isinstance(argument, Mapping):
        return argument
    if method not in argument:
        names = list(map(str, argument))
        rule = f"must be one of {', '.join(names)}"
        raise UsageError(f"method {method!r}", rule, remedy=did_you_mean(method, names))
    return argument[method]

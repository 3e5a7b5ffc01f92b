"""``EnnPartitioner``: assigns operators to an Exynos NPU and lowers each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch.export import ExportedProgram

from edgewright.backends.samsung import sdk
from edgewright.backends.samsung.dialect import DIALECT
from edgewright.backends.samsung.estimates import estimate
from edgewright.backends.samsung.lower import EnnLowering
from edgewright.backends.samsung.norm import batch_norm_scale_shift
from edgewright.backends.samsung.ops import BACKEND
from edgewright.backends.samsung.target import KEY, TARGET, EnnTarget, gen_samsung_backend_compile_spec
from edgewright.backends.samsung.worker import compile_graph
from edgewright.errors import UsageError
from edgewright.formats.schema import CompileSpec
from edgewright.formats.twin_writer import write_twin
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph
from edgewright.ir.verify import verify
from edgewright.lowering.partition.partitioner import Partitioner
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_batch_norms, fold_constants

DEFAULT = "E9955"
_INT16_NOTE = "16-bit integers, which ExecuTorch does not pass to AI LiteCore"
_UNSIGNED_NOTE = "unsigned integers, which ExecuTorch does not pass to AI LiteCore"


class EnnPartitioner(Partitioner):
    """Delegates every operator that Exynos NPUs support.

    ``compile_specs``: a list with the result of ``gen_samsung_backend_compile_spec``; by default that of the Exynos
    2500, E9955.
    """

    backend = BACKEND

    def __init__(
        self, compile_specs: Sequence[Any] | None = None, *, exclude: Sequence[Any] = (), verbose: bool = False
    ) -> None:
        super().__init__(exclude, verbose=verbose)
        default = [gen_samsung_backend_compile_spec(DEFAULT)] if compile_specs is None else compile_specs
        self.compile_specs = list(default)
        self._target = EnnTarget.of(self.compile_specs)

    @classmethod
    def for_target(cls, target: str | None) -> EnnPartitioner:
        """For a chip by name; the default is the Exynos 2500."""
        return cls([gen_samsung_backend_compile_spec(target or DEFAULT)])

    @classmethod
    def for_simulation(cls, target: str | None) -> EnnPartitioner:
        """For a program that runs on the host only."""
        return cls([gen_samsung_backend_compile_spec(target or DEFAULT, simulate_only=True)])

    @classmethod
    def for_spec(cls, spec: Any, *, simulate_only: bool = False) -> EnnPartitioner:
        specs = list(spec) if isinstance(spec, Sequence) else [spec]
        if simulate_only:
            specs = [CompileSpec(key=KEY, value=replace(EnnTarget.of(specs), simulate_only=True).value)]
        return cls(specs)

    def simulate(self) -> None:
        self._target = replace(self._target, simulate_only=True)

    def target(self) -> EnnTarget:
        return self._target

    @property
    def files(self) -> list[bytes]:
        """AI LiteCore is called through an interface: there is no intermediate file to emit."""
        raise UsageError("--emit", "is for backends whose vendor's compiler reads a file", value=self.backend.name)

    def program_specs(self) -> dict[str, bytes]:
        return {KEY: self._target.value}

    def delegate(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        if not self._target.simulate_only:
            sdk.require()
        return super().delegate(exported, method)

    def lower(self, group: Graph) -> LoweredBackendModule:
        device = to_enn(group, self._target)
        twin, expected = write_twin({"": device}), estimate(device, self._target)
        description = self._target.describe(*_notes(device))
        specs = {KEY: self._target.value, TARGET: description.encode()}
        if self._target.simulate_only:
            return LoweredBackendModule(self.backend.id, twin, specs, {}, estimates=expected)
        blob = compile_graph(device, self._target)
        return LoweredBackendModule(self.backend.id, blob, specs, {}, twin, estimates=expected)


def _notes(device: Graph) -> list[str]:
    """Notes about features that are not verified on devices."""
    dtypes = {str(v.q.dtype) for v in device.values() if v.q is not None}
    wide, unsigned = any("16" in name for name in dtypes), any(name.startswith("u") for name in dtypes)
    return [*([_INT16_NOTE] if wide else []), *([_UNSIGNED_NOTE] if unsigned else [])]


def to_enn(group: Graph, target: EnnTarget | None = None) -> Graph:
    """Lower a partition to an ENN device graph."""
    apply(
        group,
        lambda graph: fold_constants(graph, OPS),
        lambda graph: fold_batch_norms(graph, batch_norm_scale_shift),
    )
    device = EnnLowering(group, BACKEND.rows, target).run()
    verify(device, DIALECT)
    return device

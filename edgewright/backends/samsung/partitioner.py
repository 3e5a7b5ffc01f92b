"""``EnnPartitioner``: what runs on an Exynos NPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewright.backends.samsung import sdk
from edgewright.backends.samsung.estimates import estimate
from edgewright.backends.samsung.lower import EnnLowering
from edgewright.backends.samsung.norm import batch_norm_factors
from edgewright.backends.samsung.ops import BACKEND
from edgewright.backends.samsung.options import KEY
from edgewright.backends.samsung.target import REMEDY, TARGET, EnnTarget, gen_samsung_backend_compile_spec
from edgewright.errors import UsageError
from edgewright.formats.twin_writer import write_twin
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, verify
from edgewright.lowering.partition.partitioner import Partitioner
from edgewright.lowering.passes import apply
from edgewright.lowering.passes.constant_folding import fold_batch_norms, fold_constants

aten = torch.ops.aten
DEFAULT = "E9955"
KEPT = (
    aten.hardswish.default, aten.max_pool2d.default, aten.linear.default, aten.upsample_bilinear2d.vec,
    aten.upsample_nearest2d.vec, aten.prelu.default, aten.layer_norm.default,
    aten.pixel_shuffle.default, aten.hardsigmoid.default, aten.relu6.default, aten.leaky_relu.default,
    aten.softmax.int, aten.log_softmax.int, aten.group_norm.default, aten.rms_norm.default,
    aten.adaptive_avg_pool2d.default, aten.gelu.default,
)  # fmt: skip
# Movement and conversion alone are not worth a delegate.
_IDLE = {
    "permute", "transpose", "t", "view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "clone", "dropout",
    "requantize", "quantize", "dequantize",
}  # fmt: skip
_WIDE = "16-bit integers, which stock's software does not send to AI LiteCore"
_UNSIGNED = "unsigned integers, which stock's software does not send to AI LiteCore"


class EnnPartitioner(Partitioner):
    """Delegates to an Exynos NPU as much as its rows take.

    ``compile_specs``: of ``gen_samsung_backend_compile_spec``, in a list.
    """

    backend = BACKEND
    backend_id = "EnnBackend"
    kept = KEPT

    def __init__(
        self, compile_specs: Sequence[Any] | None = None, *, exclude: Sequence[Any] = (), verbose: bool = False
    ) -> None:
        super().__init__(exclude, verbose=verbose)
        if compile_specs is None:
            rule = "must be given: the chip decides what AI LiteCore makes"
            raise UsageError("compile_specs", rule, remedy=f"EnnPartitioner(compile_specs). {REMEDY}")
        self.compile_specs = list(compile_specs)
        self._target = EnnTarget.of(self.compile_specs)

    @classmethod
    def for_target(cls, target: str | None) -> EnnPartitioner:
        """For a chip by its name; the Exynos 2500 if none is named."""
        return cls([gen_samsung_backend_compile_spec(target or DEFAULT)])

    @classmethod
    def for_simulation(cls, target: str | None) -> EnnPartitioner:
        """For a program that runs on this machine only."""
        return cls([gen_samsung_backend_compile_spec(target or DEFAULT, simulate_only=True)])

    def target(self) -> EnnTarget:
        return self._target

    @property
    def files(self) -> list[bytes]:
        """AI LiteCore is given no file: there is nothing to write in a program's place."""
        raise UsageError("--emit", "is for backends whose vendor's compiler is given a file", value=self.backend.name)

    @property
    def ops_to_not_decompose(self) -> list[Any]:
        """Operators of torch that come here whole."""
        return list(self.kept)

    def keep(self, ops: Sequence[Op]) -> bool:
        return any(op.kind not in _IDLE for op in ops)

    def partition(self, exported: ExportedProgram, method: str = "forward") -> ExportedProgram:
        if not self._target.simulate_only:
            sdk.require()
        return super().partition(exported, method)

    def lower(self, group: Graph) -> LoweredBackendModule:
        device = to_enn(group, self._target)
        twin, expected = write_twin({"": device}), estimate(device, self._target)
        said = self._target.describe(*_notes(device))
        specs = {KEY: self._target.value, TARGET: said.encode()}
        if self._target.simulate_only:
            return LoweredBackendModule(self.backend_id, twin, specs, {}, estimates=expected)
        blob = sdk.compile_graph(device, self._target)
        return LoweredBackendModule(self.backend_id, blob, specs, {}, twin, estimates=expected)


def _notes(device: Graph) -> list[str]:
    """What a device is not known to take."""
    held = {str(v.q.dtype) for v in device.values() if v.q is not None}
    wide, unsigned = any("16" in name for name in held), any(name.startswith("u") for name in held)
    return [*([_WIDE] if wide else []), *([_UNSIGNED] if unsigned else [])]


def to_enn(group: Graph, target: EnnTarget | None = None) -> Graph:
    """A group as a device graph of ENN's operators."""
    apply(
        group,
        lambda graph: fold_constants(graph, OPS),
        lambda graph: fold_batch_norms(graph, batch_norm_factors),
    )
    device = EnnLowering(group, BACKEND.rows, target).run()
    verify(device)
    return device

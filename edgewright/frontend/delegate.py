"""Delegate calls in an exported program: the module that holds a delegate's blob, and the operator that calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.layer_table import DelegateLayers
from edgewright.formats.twin_reader import read_twin
from edgewright.frontend.tensors import to_array
from edgewright.ir.graph import Array, Graph
from edgewright.runtime.delegates import ResultSpec


class LoweredBackendModule(torch.nn.Module):
    """A compiled partition: the blob of its delegate, and the named data that the blob refers to.

    ``overread``: bytes that the delegate may read past the end of a tensor.
    ``constants``: arrays in memory order that a call passes after its inputs, and the program stores.
    ``twin``: the partition as one graph written by ``formats.twin_writer``, if the blob cannot run on the host.
    ``layers``: the origins of the blob's operators, in its order.
    ``estimates``: a vendor compiler's performance estimates as data with their ``basis`` (``lowering.estimates``).
    The class name and the field names are those that torch's verifier accepts in an exported program.
    """

    def __init__(
        self, backend_id: str, processed_bytes: bytes, specs: Mapping[str, bytes], named_data: Mapping[str, Buffer],
        twin: bytes | None = None, overread: int = 0, estimates: Mapping[str, Any] | None = None,
        constants: Sequence[Array] = (), layers: DelegateLayers | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.backend_id = backend_id
        self.processed_bytes = processed_bytes
        self.compile_specs = list(specs.items())
        self.original_module: Any = None
        self.named_data = dict(named_data)
        self.twin = twin
        self.overread = overread
        self.constants = list(constants)
        self.estimates = estimates
        self.layers = layers or DelegateLayers()
        self.orders: Sequence[Sequence[int]] | None = None  # dim orders of the inputs, after layout assignment
        self.results: Sequence[ResultSpec] | None = None

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Run the delegate on the host."""
        from edgewright.runtime.delegates import DelegateBlob, invoke, make_delegate
        from edgewright.runtime.method_io import to_caller

        specs = dict(self.compile_specs)
        constants = dict(enumerate(self.constants, len(inputs)))
        blob = DelegateBlob(
            self.backend_id, self.processed_bytes, specs, self.named_data, twin=lambda digest: self._twin(),
            constants=constants,
        )  # fmt: skip
        delegate = make_delegate(blob)
        arrays = [to_array(i) for i in inputs]
        if self.orders is None or self.results is None:
            return [to_caller(a, as_torch=True) for a in delegate.execute(arrays)]
        return [to_caller(a, as_torch=True) for a in invoke(delegate, arrays, self.orders, self.results)]

    def _twin(self) -> Graph | None:
        return None if self.twin is None else next(iter(read_twin(self.twin).values()))


class _CallDelegate(HigherOrderOperator):
    """The operator that calls a compiled partition."""

    def __init__(self) -> None:
        super().__init__("executorch_call_delegate")  # type: ignore[no-untyped-call]

    def __call__(self, lowered: LoweredBackendModule, *inputs: torch.Tensor) -> Any:
        return lowered(*inputs)


executorch_call_delegate = _CallDelegate()

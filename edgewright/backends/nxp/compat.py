"""Names of ExecuTorch's Neutron package that scripts import and that have no effect here."""

from __future__ import annotations

from typing import Any

from torch.fx.passes.infra.pass_base import PassBase, PassResult

core_aten_ops_exception_list: list[Any] = []  # the frontend never decomposes supported operators


class QuantizeFusedConvBnBiasAtenPass(PassBase):
    """Quantizes the biases that folded batch norms leave, in ExecuTorch. Here lowering does, so the graph stays as it
    is."""

    def __init__(
        self, exported_program: Any = None, default_zero_bias: bool = False, symmetric_quant: bool = False
    ) -> None:
        super().__init__()

    def call(self, graph_module: Any) -> PassResult:
        return PassResult(graph_module, False)

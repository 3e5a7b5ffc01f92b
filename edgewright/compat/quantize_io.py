"""``executorch.exir.passes.quantize_io_pass``: programs with quantized inputs and outputs.

The quantization parameters become constant methods of the program (``input0_scale``, ``input0_zp``, ...), with which an
application converts its data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx

from edgewright.errors import UsageError
from edgewright.ir.dtypes import parse_dtype, to_scalar_type
from edgewright.quantize.integer_io import IOQParams, strip_boundary_qdq


class _QuantizeIO:
    """Pass that removes the conversions at the selected inputs or outputs."""

    side = ""

    def __init__(self, edge_program_manager: Any, indices: Iterable[int], method_name: str | None = None) -> None:
        if isinstance(indices, dict) and any(indices.values()):
            remedy = "Pass indices only: the model's own parameters are used."
            raise UsageError(type(self).__name__, "takes no parameters of its own", remedy=remedy)
        self.indices = list(indices)
        self._manager = edge_program_manager
        self._method = method_name or "forward"
        self._prefix = "" if method_name is None else f"{method_name}_"

    def __call__(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        signature = self._manager.exported_program(self._method).graph_signature
        indices = (self.indices, ()) if self.side == "input" else ((), self.indices)
        quantized, _ = strip_boundary_qdq(graph_module.graph, signature, *indices)
        graph_module.recompile()
        for name, parameters in quantized.items():
            self._add_constant_methods(name, parameters)
        return graph_module

    def _add_constant_methods(self, name: str, parameters: IOQParams) -> None:
        kind = parse_dtype(str(parameters.dtype).removeprefix("torch."))
        constants = {
            "scale": parameters.scale, "zp": parameters.zero_point, "quant_min": parameters.qmin,
            "quant_max": parameters.qmax, "dtype": int(to_scalar_type(kind)),
        }  # fmt: skip
        self._manager.constant_methods.update(
            {f"{self._prefix}{name}_{key}": value for key, value in constants.items()}
        )


class QuantizeInputs(_QuantizeIO):
    """Quantized inputs at these indices."""

    side = "input"


class QuantizeOutputs(_QuantizeIO):
    """Quantized outputs at these indices."""

    side = "output"

"""``executorch.exir.passes.quantize_io_pass``: programs whose inputs and outputs are integers.

The parameters become methods of the program that return constants (``input0_scale``, ``input0_zp``, ...), by which an
application converts what it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx

from edgewright.errors import UsageError
from edgewright.ir.dtypes import parse_dtype, to_scalar_type
from edgewright.quantize.integer_io import IOQParams, strip_boundary_qdq


class _IntegerEnds:
    """A pass: conversions at the named ends are left to the caller."""

    side = ""

    def __init__(self, edge_program_manager: Any, places: Iterable[int], method_name: str | None = None) -> None:
        if isinstance(places, dict) and any(places.values()):
            remedy = "Name the places only: the model's own parameters are used."
            raise UsageError(type(self).__name__, "takes no parameters of its own", remedy=remedy)
        self.places = list(places)
        self._manager = edge_program_manager
        self._method = method_name or "forward"
        self._prefix = "" if method_name is None else f"{method_name}_"

    def __call__(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        signature = self._manager.exported_program(self._method).graph_signature
        chosen = (self.places, ()) if self.side == "input" else ((), self.places)
        found, _ = strip_boundary_qdq(graph_module.graph, signature, *chosen)
        graph_module.recompile()
        for end, parameters in found.items():
            self._tell(end, parameters)
        return graph_module

    def _tell(self, end: str, parameters: IOQParams) -> None:
        kind = parse_dtype(str(parameters.dtype).removeprefix("torch."))
        told = {
            "scale": parameters.scale, "zp": parameters.zero_point, "quant_min": parameters.qmin,
            "quant_max": parameters.qmax, "dtype": int(to_scalar_type(kind)),
        }  # fmt: skip
        self._manager.constant_methods.update({f"{self._prefix}{end}_{key}": value for key, value in told.items()})


class QuantizeInputs(_IntegerEnds):
    """The inputs at these places are integers."""

    side = "input"


class QuantizeOutputs(_IntegerEnds):
    """The outputs at these places are integers."""

    side = "output"

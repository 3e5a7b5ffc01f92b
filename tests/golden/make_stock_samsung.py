"""Records the graphs that stock ExecuTorch describes to AI LiteCore for some small models, and how exact its
quantization of the example's networks is.

    python -m tests.golden.make_stock_samsung graphs
    python -m tests.golden.make_stock_samsung decibels

Writes ``samsung/graphs.json``: by model and precision, what stand-ins of its two native modules heard; or
``samsung/decibels.json``: signal to noise of A8W8, by network. Needs the ``test`` extra; the modules themselves are not
in any wheel.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import torch

from edgewright.files import write_file
from tests.backends.samsung.stock_models import MODELS, QUANTIZED, calibration, make

FOLDER = Path(__file__).parent / "samsung"
MODULES = ("PyEnnWrapperAdaptor", "PyGraphWrapperAdaptor")


def graphs(model: Any, inputs: Any) -> list[Any]:
    """What was told of each delegate."""
    from executorch.backends.samsung.serialization.compile_options import gen_samsung_backend_compile_spec
    from executorch.backends.samsung.utils.export_utils import to_edge_transform_and_lower_to_enn
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    specs = [gen_samsung_backend_compile_spec("E9955")]
    edge = to_edge_transform_and_lower_to_enn(model, inputs, compile_specs=specs)
    lowered = [module for _, module, _ in get_lowered_submodules(edge.exported_program().graph_module)]
    return [json.loads(bytes(m.processed_bytes).split(b"\n", 1)[1]) for m in lowered]


def quantized(model: Any, inputs: Any, data: Any) -> Any:
    from executorch.backends.samsung.quantizer import Precision
    from executorch.backends.samsung.utils.export_utils import quantize_module

    return quantize_module(model, inputs, data, Precision.A8W8)


def install() -> None:
    """Put the stand-ins where stock's software looks for its native modules."""
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float c) -> Tensor")
    import executorch.backends.samsung as package

    holder = types.ModuleType("executorch.backends.samsung.python")
    package.python = sys.modules[holder.__name__] = holder
    for name in MODULES:
        made = importlib.import_module(f"tests.backends.samsung.adaptors.{name}")
        sys.modules[f"{holder.__name__}.{name}"] = made
        setattr(holder, name, made)


def all_graphs() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in MODELS:
        model, inputs = make(name)
        found[name] = graphs(model, inputs)
        if name in QUANTIZED:
            found[f"{name} A8W8"] = graphs(quantized(model, inputs, calibration(inputs)), inputs)
        print(name, [len(g["nodes"]) for g in found[name]], flush=True)
    return found


def decibels() -> dict[str, float]:
    """Of what PyTorch computes for stock's quantized modules: nobody here can run what AI LiteCore makes of them."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "samsung"))
    models = importlib.import_module("models")
    found = {}
    for name in models.MODELS:
        model, inputs = models.make(name)
        torch.manual_seed(5)
        data = [inputs, tuple(torch.randn_like(x) for x in inputs)]
        with torch.no_grad():
            wanted = model(*inputs).double()
            made = quantized(model, inputs, data)(*inputs).double()
        found[name] = round(float(10 * torch.log10(wanted.square().sum() / (made - wanted).square().sum())), 1)
        print(name, found[name], flush=True)
    return found


if __name__ == "__main__":
    install()
    wanted = sys.argv[1]
    stored = {"graphs": all_graphs, "decibels": decibels}[wanted]()
    text = json.dumps(stored, separators=(",", ":")) + "\n"
    write_file(FOLDER / f"{wanted}.json", [text.encode()])

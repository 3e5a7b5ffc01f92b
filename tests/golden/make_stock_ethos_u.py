"""Makes the golden files of stock ExecuTorch's Ethos-U lowering: programs, and what their delegates compute.

    python -m tests.golden.make_stock_ethos_u

Expected outputs are the TOSA reference model's, for the graph that stock handed to Vela. Needs the ``test`` extra.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewright.cli.outputs import npz_bytes
from edgewright.files import write_file

FOLDER = Path(__file__).parent / "ethos_u"
TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


class Small(torch.nn.Module):
    """Convolutions with and without a stride, a depthwise one, a residual addition, a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(4, 16, 3, 2, 1)
        self.depth = torch.nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.point = torch.nn.Conv2d(16, 16, 1)
        self.act = torch.nn.ReLU()
        self.pool = torch.nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.stem(x))
        return self.pool(x + self.point(self.act(self.depth(x))))


Inputs = tuple[torch.Tensor, ...]


def network() -> tuple[torch.nn.Module, Inputs]:
    torch.manual_seed(0)
    model = Small().eval()
    return model, (torch.randn(1, 4, 16, 16).to(memory_format=torch.channels_last),)


def make(target: str) -> None:
    model, inputs = network()
    program = lower(model, inputs, target).buffer
    with tempfile.TemporaryDirectory() as folder:  # whose name goes into the program, so that it is made apart
        lower(model, inputs, target, folder)
        tosa = (Path(folder) / "out.tosa").read_bytes()  # what stock handed to Vela
    x = np.random.default_rng(0).integers(-128, 128, (1, 16, 16, 4), np.int8)
    stored = {"in0": x, "out0": reference(tosa, x), "tosa": np.frombuffer(tosa, np.uint8)}
    name = target.replace("-", "_")
    FOLDER.mkdir(exist_ok=True)
    write_file(FOLDER / f"{name}.pte", [program])
    write_file(FOLDER / f"{name}.npz", [npz_bytes(stored, compress=True)])


def make_external(target: str) -> None:
    """The same program with its constants in a file of their own."""
    from executorch.backends.arm.ethosu.compile_spec import VelaExternalBlockPlacements

    model, inputs = network()
    made = lower(model, inputs, target, placements=VelaExternalBlockPlacements(weight_data="flash"))
    name = target.replace("-", "_")
    write_file(FOLDER / f"{name}_external.pte", [made.buffer])
    with tempfile.TemporaryDirectory() as folder:
        made.write_tensor_data_to_file(folder)
        write_file(FOLDER / f"{name}_external.ptd", [(Path(folder) / "flash.ptd").read_bytes()])


def lower(
    model: torch.nn.Module, inputs: Inputs, target: str, folder: str | None = None, placements: Any = None
) -> Any:
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    spec = EthosUCompileSpec(target, external_block_placements=placements)
    quantizer = EthosUQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(check_guards=False), quantizer)
    prepared(*inputs)
    quantized = torch.export.export(convert_pt2e(prepared), inputs)
    if folder is not None:
        spec.dump_intermediate_artifacts_to(folder)
    config = EdgeCompileConfig(_check_ir_validity=False)
    edge = to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)], compile_config=config)
    return edge.to_executorch()


def reference(tosa: bytes, *inputs: Any) -> np.ndarray[Any, Any]:
    import tosa_reference_model

    outputs, status = tosa_reference_model.run(tosa, list(inputs))
    if status != tosa_reference_model.GraphStatus.TOSA_VALID or len(outputs) != 1:
        raise SystemExit(f"the reference model says {status} and gives {len(outputs)} outputs")
    return outputs[0]


if __name__ == "__main__":
    # torchvision, which stock's package imports, wants operators that a CPU-only build of it leaves out.
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float c) -> Tensor")
    for chosen in TARGETS:
        make(chosen)
    make_external(TARGETS[0])

"""Compiles one of ten networks for a Samsung Exynos NPU, and runs it here before any phone is touched.

    python aot_compiler.py -c E9955 -m mv2 -o out --simulate_only -e
    python aot_compiler.py -c E9955 -m resnet18 -o out -p A8W8 -cn 8 --simulate_only -e

Writes ``<model>_exynos_<precision>.pte``, the example inputs as ``<model>_input_0.bin`` and what the model gives for
them as ``<model>_output_0.bin``: what ``enn_executor_runner`` on the phone takes, and what it should give. Weights are
random unless ``--weights`` has them (a ``.safetensors`` with the names of this folder's networks); so are calibration
data unless ``--dataset`` has them. Without ``--simulate_only``, Samsung's AI LiteCore makes the program for the chip.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import MODELS, make

from edgewright import ExecutorchBackendConfig, Runtime
from edgewright.backends.samsung import (
    PerformanceMode,
    Precision,
    SamsungChipset,
    gen_samsung_backend_compile_spec,
    quantize_module,
    to_edge_transform_and_lower_to_enn,
)
from edgewright.cli import guard
from edgewright.errors import UsageError
from edgewright.frontend.safetensors import load_weights

Inputs = tuple[torch.Tensor, ...]
CHIPS = [chip.name for chip in SamsungChipset if chip]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compiles a network for a Samsung Exynos NPU.")
    add = parser.add_argument
    add("-c", "--chipset", required=True, help=f"{', '.join(CHIPS)}")
    add("-m", "--model_name", required=True, choices=MODELS, help="the network")
    add("-o", "--output_dir", "-a", "--artifact", required=True, metavar="FOLDER", help="where files are written")
    add("--perf_mode", choices=PerformanceMode.__members__, default="DEFAULT", help="what AI LiteCore compiles for")
    add("-p", "--precision", choices=Precision.__members__, help="quantize (default: floating point of 16 bits)")
    add("-d", "--dataset", metavar="x.npz", help="arrays to calibrate with, each an input (default: random ones)")
    add("-cn", "--calibration_number", type=int, default=100, metavar="N", help="how many of them (default: 100)")
    add("--per_tensor", action="store_true", help="one scale for each weight")
    add("--weights", metavar="w.safetensors", help="the model's weights")
    add("--simulate_only", action="store_true", help="a file for this machine only; needs no SDK of Samsung's")
    add("-e", "--evaluate", action="store_true", help="run the file here, and compare it with the model")
    add("--dump", action="store_true", help="write what the file gives here, too: <model>_host_0.bin")
    add("--report", action="store_true", help="say for every operator where it runs and, if not on the NPU, why")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    model, inputs = make(args.model_name)
    if args.weights:
        load_weights(model, args.weights)
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    chosen: Any = model
    if args.precision:
        chosen = quantize_module(model, inputs, calibration(args, inputs), args.precision, not args.per_tensor)
    mode = PerformanceMode[args.perf_mode]
    spec = gen_samsung_backend_compile_spec(args.chipset, mode, simulate_only=args.simulate_only)
    edge = to_edge_transform_and_lower_to_enn(chosen, inputs, compile_specs=[spec])
    for report in edge.partition_reports.values():
        print(report if args.report else report.summary)
    program = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=True))
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{args.model_name}_exynos_{(args.precision or 'fp32').lower()}.pte"
    program.save(path)
    for index, array in enumerate(inputs):
        array.numpy().tofile(folder / f"{args.model_name}_input_{index}.bin")
    wanted.tofile(folder / f"{args.model_name}_output_0.bin")
    print(f"wrote {path}: {path.stat().st_size:,} bytes")
    if args.evaluate or args.dump:
        evaluate(args, path, inputs, wanted)
    return 0


def calibration(args: argparse.Namespace, inputs: Inputs) -> list[Inputs]:
    """Inputs to calibrate with."""
    if args.calibration_number < 1:
        raise UsageError("--calibration_number", "must be at least 1", value=args.calibration_number)
    if args.dataset is None:
        torch.manual_seed(1)
        return [inputs, *(tuple(map(torch.randn_like, inputs)) for _ in range(args.calibration_number - 1))]
    with np.load(args.dataset) as file:
        arrays = [file[name] for name in file.files][: args.calibration_number]
    shape = tuple(inputs[0].shape)
    if any(array.shape != shape for array in arrays):
        raise UsageError("--dataset", f"must hold arrays of {shape}", value=[a.shape for a in arrays][:3])
    return [(torch.from_numpy(array.astype(np.float32)),) for array in arrays]


def evaluate(args: argparse.Namespace, path: Path, inputs: Inputs, wanted: Any) -> None:
    """Run the file on this machine, beside the model."""
    method = Runtime.get().load_program(path).load_method("forward")
    (made,) = (np.asarray(a) for a in method.execute([x.numpy() for x in inputs]))
    if args.dump:
        made.tofile(path.parent / f"{args.model_name}_host_0.bin")
    off = made - wanted
    ratio = float((wanted.astype(np.float64) ** 2).sum() / max(float((off.astype(np.float64) ** 2).sum()), 1e-30))
    largest = float(np.abs(off).max() / np.abs(wanted).max())
    print(f"on this machine: SQNR {10 * np.log10(ratio):.1f} dB, largest error {largest:.2e} of the largest result")


if __name__ == "__main__":
    raise SystemExit(guard(main))

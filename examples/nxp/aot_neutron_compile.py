"""Compiles a PyTorch model for NXP's eIQ Neutron NPU, and runs it here before any hardware is touched.

    python aot_neutron_compile.py -m cifar10 -q -d --simulate_only -e

A model is ``cifar10``, ``mobilenetv2``, ``mlperf_tiny_image_classification``, or ``package.module:factory`` (looked up
from this folder; the factory gives a module and example inputs), or a ``.pt2`` file. The weights of the named ones are
random unless ``--weights`` gives them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import MODELS

from edgewright import ExecutorchBackendConfig, Runtime, to_edge_transform_and_lower
from edgewright.backends.nxp import (
    NeutronEdgePassManager,
    NeutronPartitioner,
    NeutronQuantizer,
    NeutronTargetSpec,
    calibrate_and_quantize,
    generate_neutron_compile_spec,
    remove_io_quant_ops,
)
from edgewright.cli import guard
from edgewright.errors import UsageError
from edgewright.frontend.spec import load_spec
from edgewright.frontend.weights import load_weights

Inputs = tuple[torch.Tensor, ...]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compiles a PyTorch model for NXP's eIQ Neutron NPU.")
    add = parser.add_argument
    add("-m", "--model_name", required=True, help=f"{', '.join(MODELS)}, package.module:factory, or a .pt2")
    add("-d", "--delegate", action="store_true", help="give the NPU all it takes; the rest runs on the CPU")
    add("-q", "--quantize", action="store_true", help="quantize to 8 bits; Neutron runs integers only")
    add("--target", default="imxrt700", help="default: %(default)s")
    add("-o", "--output", help="the .pte (default: <model>[_nxp_delegate][_profile].pte)")
    add("-e", "--evaluate", action="store_true", help="run the file here, and compare it with the model")
    add("--weights", metavar="w.safetensors", help="the model's weights")
    add("--calibration_data", metavar="x.npz", help="arrays to calibrate with (default: the example inputs)")
    add("-r", "--remove-quant-io-ops", action="store_true", help="8-bit integers at the model's ends")
    add("--operators_not_to_delegate", nargs="*", default=[], metavar="NAME", help="such as aten::convolution")
    add("--use_channels_last_dim_order", action="store_true", help="the model and its inputs are channels last")
    add("--simulate_only", action="store_true", help="a file for this machine only; needs no NXP SDK")
    add("--per_tensor", action="store_true", help="one scale for each weight")
    add("--fetch_constants_to_sram", action="store_true", help="let the NPU fetch weights to SRAM as it needs them")
    add("--dump_kernel_selection_code", action="store_true", help="have NXP's converter write the kernels' selection")
    add("--use_profiling", action="store_true", help="have the NPU record how long its layers take")
    add("--intermediates", metavar="FOLDER", help="keep the TFLite files before and after NXP's converter")
    add("--report", action="store_true", help="say for every operator where it runs and, if not on the NPU, why")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    model, inputs = load_model(args)
    exported = torch.export.export(model, inputs, strict=True)
    target = NeutronTargetSpec(args.target)
    if args.quantize:
        quantizer = NeutronQuantizer(target, per_channel=not args.per_tensor)
        quantized = calibrate_and_quantize(exported, calibration(args, inputs), quantizer)
        exported = torch.export.export(quantized, inputs)
    if args.remove_quant_io_ops:
        exported, ends = remove_io_quant_ops(exported)
        for name, found in ends.items():
            print(f"{name}: real = {found.scale:g} * (stored - {found.zero_point})")
    partitioners = [NeutronPartitioner(compile_spec(args), target)] if args.delegate else []
    edge = to_edge_transform_and_lower(exported, transform_passes=[NeutronEdgePassManager()], partitioner=partitioners)
    for report in edge.partition_reports.values():
        print(report if args.report else "\n".join(str(report).splitlines()[: 1 + len(report.estimates)]))
    program = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    path = output_path(args)
    print(f"wrote {path} ({program.save(path)} bytes)")
    if args.evaluate:
        evaluate(path, model, inputs)
    return 0


def compile_spec(args: argparse.Namespace) -> list[Any]:
    return generate_neutron_compile_spec(
        args.target,
        intermediates_dir=args.intermediates,
        operators_not_to_delegate=args.operators_not_to_delegate,
        fetch_constants_to_sram=args.fetch_constants_to_sram,
        dump_kernel_selection_code=args.dump_kernel_selection_code,
        use_profiling=args.use_profiling,
        simulate_only=args.simulate_only,
    )


def load_model(args: argparse.Namespace) -> tuple[torch.nn.Module, Inputs]:
    if args.model_name in MODELS:
        torch.manual_seed(0)
        model, inputs = MODELS[args.model_name]()
    else:
        spec = load_spec(args.model_name)
        if spec.module is None:
            raise UsageError(args.model_name, "must be a module with example inputs")
        model, inputs = spec.module, spec.args
    if args.weights:
        load_weights(model, args.weights)
    model = model.eval()
    if args.use_channels_last_dim_order:
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    return model, inputs


def calibration(args: argparse.Namespace, inputs: Inputs) -> list[Inputs]:
    if not args.calibration_data:
        return [inputs]
    with np.load(args.calibration_data) as file:
        return [(torch.from_numpy(file[name]),) for name in file.files]


def output_path(args: argparse.Namespace) -> Path:
    name = args.model_name.partition(":")[0].replace("/", "_").removesuffix(".pt2")
    parts = [name, "_nxp_delegate" * args.delegate, "_profile" * args.use_profiling]
    return Path(args.output or "".join(parts) + ".pte")


def evaluate(path: Path, model: torch.nn.Module, inputs: Inputs) -> None:
    method = Runtime.get().load_program(path).load_method("forward")
    found = method.execute(list(inputs))[0]
    wanted = model(*inputs).detach()
    print(f"largest difference from the model: {float((torch.as_tensor(found) - wanted).abs().max()):.4g}")


if __name__ == "__main__":
    guard(main)

"""Compiles a PyTorch model for an Arm Ethos-U NPU, and runs it here before any hardware is touched.

    python aot_arm_compiler.py -m tiny:make -t ethos-u55-128 -q -d -o tiny_u55.pte -e

A model is ``package.module:factory`` (looked up from this folder; the factory gives a module and example inputs), a
``.pt2`` file, or the name of a torchvision model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright import ExecutorchBackendConfig, Runtime, to_edge_transform_and_lower
from edgewright.backends.ethos_u import (
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_quantization_config,
)
from edgewright.backends.ethos_u.target import ACCELERATORS
from edgewright.cli import guard
from edgewright.errors import UsageError
from edgewright.formats.bpte import BundledProgram, TestCase, write_bundled
from edgewright.frontend.model_spec import load_spec

Inputs = tuple[torch.Tensor, ...]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compiles a PyTorch model for an Arm Ethos-U NPU.")
    add = parser.add_argument
    add("-m", "--model_name", required=True, help="package.module:factory, a .pt2, or the name of a torchvision model")
    add("-t", "--target", default="ethos-u55-128", choices=list(ACCELERATORS), help="default: %(default)s")
    add("-q", "--quantize", action="store_true", help="quantize to 8 bits; an Ethos-U runs integers only")
    add("-d", "--delegate", action="store_true", help="give the NPU all it takes; the rest runs on the CPU")
    add("-o", "--output", help="the .pte, or a folder for it (default: <model>_<target>.pte)")
    add("-i", "--intermediates", metavar="FOLDER", help="keep the TOSA graphs that Vela is given")
    add("-e", "--evaluate", action="store_true", help="run the file here, and compare it with the model")
    add("--model_input", metavar="x.npz", help="example inputs in0, in1, … instead of the model's own")
    add("--calibration_data", metavar="FOLDER", help=".npz files to calibrate with (default: the example inputs)")
    add("--per_tensor", action="store_true", help="one scale for a whole weight, not one for each output channel")
    add("--bundleio", action="store_true", help="also write a .bpte with the inputs and the expected outputs")
    add("--report", action="store_true", help="say for every operator where it runs and, if not on the NPU, why")
    add("--system_config", help="a system configuration of vela.ini (default: ExecuTorch's for the target)")
    add("--memory_mode", help="a memory mode of vela.ini (default: ExecuTorch's for the target)")
    add("--config", metavar="vela.ini", help="your own vela.ini")
    add("--extra_flags", metavar="FLAGS", help='options of Vela: --extra_flags="--optimise Size"')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    model, inputs = load_model(args)
    spec = EthosUCompileSpec(args.target, args.system_config, args.memory_mode, args.extra_flags, args.config)
    if args.intermediates:
        spec = spec.dump_intermediate_artifacts_to(args.intermediates)
    exported = torch.export.export(model, inputs)
    if args.quantize:
        exported = quantize(exported, inputs, spec, args)
    partitioners = [EthosUPartitioner(spec)] if args.delegate else []
    edge = to_edge_transform_and_lower(exported, partitioner=partitioners)
    for report in edge.partition_reports.values():
        print(report if args.report else report.summary)
    program = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    path = output_path(args)
    print(f"wrote {path} ({program.save(path)} bytes)")
    if args.bundleio or args.evaluate:
        wanted = exported.module()(*inputs)
        evaluate(args, path, model, inputs, wanted)
    return 0


def load_model(args: argparse.Namespace) -> tuple[torch.nn.Module, Inputs]:
    name = args.model_name
    if ":" in name or name.endswith(".pt2"):
        spec = load_spec(name)
        if spec.module is not None:
            model, inputs = spec.module.eval(), spec.args
        else:
            assert spec.exported is not None
            model, inputs = spec.exported.module(), spec.exported.example_inputs[0]  # type: ignore[index]
    else:
        model, inputs = torchvision_model(name)
    return model, read_inputs(Path(args.model_input)) if args.model_input else tuple(inputs)


def torchvision_model(name: str) -> tuple[torch.nn.Module, Inputs]:
    try:
        from torchvision.models import get_model
    except (ImportError, RuntimeError) as error:
        raise UsageError(name, "needs torchvision, or must be package.module:factory or a .pt2") from error
    try:
        model = get_model(name, weights="DEFAULT").eval()
    except ValueError as error:
        raise UsageError("--model_name", f"is no model of torchvision: {error}", value=name) from error
    return model, (torch.randn(1, 3, 224, 224),)


def read_inputs(path: Path) -> Inputs:
    with np.load(path, allow_pickle=False) as stored:
        return tuple(torch.from_numpy(stored[f"in{i}"]) for i in range(len(stored.files)))


def quantize(
    exported: ExportedProgram, inputs: Inputs, spec: EthosUCompileSpec, args: argparse.Namespace
) -> ExportedProgram:
    """Calibrate, then convert: the flow of torchao's PT2E."""
    quantizer = EthosUQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=not args.per_tensor))
    prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
    samples = [inputs]
    if args.calibration_data:
        samples = [read_inputs(path) for path in sorted(Path(args.calibration_data).glob("*.npz"))]
        if not samples:
            raise UsageError("--calibration_data", "must be a folder with .npz files", value=args.calibration_data)
    for sample in samples:
        prepared(*sample)
    return torch.export.export(convert_pt2e(prepared), inputs)


def output_path(args: argparse.Namespace) -> Path:
    stem = args.model_name.replace(":", "_").replace(".", "_")
    name = f"{stem}_{args.target}.pte"
    path = Path(args.output or name)
    return path if path.suffix == ".pte" else path / name


def evaluate(args: argparse.Namespace, path: Path, model: torch.nn.Module, inputs: Inputs, wanted: Any) -> None:
    """What the file gives on this machine, beside what the model gives."""
    expected = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    if args.bundleio:
        case = TestCase([i.numpy() for i in inputs], [e.detach().numpy() for e in expected])
        bundle = path.with_suffix(".bpte")
        write_bundled(BundledProgram(path.read_bytes(), {"forward": [case]}), bundle)
        print(f"wrote {bundle}")
    if not args.evaluate:
        return
    found = Runtime.get().load_program(path).load_method("forward").execute(list(inputs))
    real = model(*inputs)
    for index, (a, b, c) in enumerate(zip(found, expected, [real] if len(expected) == 1 else real, strict=True)):
        print(
            f"output {index}: largest difference from the quantized model {(a - b).abs().max():.4g},"
            f" from the model {(a - c).abs().max():.4g} (values up to {c.abs().max():.4g})"
        )


if __name__ == "__main__":
    raise SystemExit(guard(main))

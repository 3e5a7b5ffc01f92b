"""Compiles a PyTorch model for NXP's eIQ Neutron NPU, and runs it here before any hardware is touched.

    python aot_neutron_compile.py -m cifar10 -q -d --simulate_only -t

A model is ``cifar10``, ``mobilenetv2``, ``mlperf_tiny_image_classification``, or ``package.module:factory`` (looked up
from this folder; the factory gives a module and example inputs), or a ``.pt2`` file. ``cifar10`` is trained, and has
images to calibrate, train and test with; the weights of the other two are random unless ``--weights`` gives them.
"""

from __future__ import annotations

import argparse
import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from data import Dataset, Inputs, accuracy, find_dataset, trainer
from models import MODELS, TRAINED
from page import show_page, write_page

from edgewright import ExecutorchBackendConfig, Runtime, to_edge_transform_and_lower
from edgewright.backends.nxp import (
    NeutronEdgePassManager,
    NeutronPartitioner,
    NeutronQuantizer,
    NeutronTargetSpec,
    RemoveAdditionalQDQClustersPass,
    RemoveIOQuantOpsPass,
    calibrate_and_quantize,
    generate_neutron_compile_spec,
)
from edgewright.cli import guard
from edgewright.errors import UsageError
from edgewright.frontend.model_spec import load_spec
from edgewright.frontend.safetensors import load_weights

LEARNING = 100  # samples to calibrate or train with; the others are for tests


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compiles a PyTorch model for NXP's eIQ Neutron NPU.")
    add = parser.add_argument
    add("-m", "--model_name", required=True, help=f"{', '.join(MODELS)}, package.module:factory, or a .pt2")
    add("-d", "--delegate", action="store_true", help="give the NPU all it takes; the rest runs on the CPU")
    add("-q", "--quantize", action="store_true", help="quantize to 8 bits; Neutron runs integers only")
    add("--target", default="imxrt700", help="default: %(default)s")
    add("-o", "--output", help="the .pte (default: <model>[_nxp_delegate][_profile].pte)")
    add("--weights", metavar="w.safetensors", help="the model's weights")
    add("-dst", "--dataset_path", "--calibration_data", metavar="x.npz", help="samples: see data.py for its form")
    add("--use_random_dataset", action="store_true", help="calibrate with random numbers")
    add("--use_qat", action="store_true", help="train the quantized model, two rounds over the first samples")
    add("--per_tensor", action="store_true", help="one scale for each weight")
    add("-r", "--remove-quant-io-ops", action="store_true", help="8-bit integers at the model's ends")
    add(
        "-t", "--test", action="store_true", help="run the file here on all samples, and the model, and count successes"
    )
    add("-e", "--evaluate", action="store_true", help="run the file here once, and compare it with the model")
    add("-s", "--so_library", metavar="ops.so", help="a library with operators of your own, loaded into torch")
    add("--operators_not_to_delegate", nargs="*", default=[], metavar="NAME", help="such as aten::convolution")
    add("--use_channels_last_dim_order", action="store_true", help="the model and its inputs are channels last")
    add("--simulate_only", action="store_true", help="a file for this machine only; needs no NXP SDK")
    add("--fetch_constants_to_sram", action="store_true", help="let the NPU fetch weights to SRAM as it needs them")
    add("--dump_kernel_selection_code", action="store_true", help="have NXP's converter write the kernels' selection")
    add("--use_profiling", action="store_true", help="have the NPU record how long its layers take; write an ETRecord")
    add("--intermediates", metavar="FOLDER", help="keep the TFLite files before and after NXP's converter")
    add("--report", action="store_true", help="say for every operator where it runs and, if not on the NPU, why")
    add("--visualize", choices=("show", "store"), help="the same as a web page: in the browser, or only written")
    add("--debug", action="store_true", help="say what is done on the way")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="[%(levelname)s %(name)s] %(message)s", force=True)
    logging.getLogger("edgewright").setLevel(logging.DEBUG if args.debug else logging.WARNING)
    if args.so_library:
        load_operators(args.so_library)
    model, inputs = load_model(args)
    learning, data = find_dataset(args.model_name, inputs, args.dataset_path, args.use_random_dataset).split(LEARNING)
    exported = torch.export.export(model, inputs, strict=True)
    if args.quantize:
        exported = torch.export.export(quantize(args, model, inputs, learning), inputs, strict=True)
    edge = lower(args, exported)
    path = output_path(args)
    report(args, edge, path)
    program = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    print(f"wrote {path} ({program.save(path)} bytes)")
    if args.use_profiling:
        program.get_etrecord().save(path.with_suffix(".etrecord"))
        print(f"wrote {path.with_suffix('.etrecord')}")
    if args.evaluate or args.test:
        evaluate(args, path, model, inputs, data)
    return 0


def load_operators(library: str) -> None:
    try:
        torch.ops.load_library(library)
    except OSError as error:
        raise UsageError(library, "must be a library that this machine can load") from error


def quantize(args: argparse.Namespace, model: torch.nn.Module, inputs: Inputs, data: Dataset) -> Any:
    target = NeutronTargetSpec(args.target)
    quantizer = NeutronQuantizer(target, is_qat=args.use_qat, per_channel=not args.per_tensor)
    if not args.use_qat:
        return calibrate_and_quantize(torch.export.export(model, inputs, strict=True), data.samples, quantizer)
    learner = torch.export.export(copy.deepcopy(model).train(), inputs, strict=True)
    return calibrate_and_quantize(learner, [], quantizer, is_qat=True, train_fn=trainer(model, data))


def lower(args: argparse.Namespace, exported: Any) -> Any:
    partitioners = [NeutronPartitioner(compile_spec(args), NeutronTargetSpec(args.target))] if args.delegate else []
    edge = to_edge_transform_and_lower(exported, transform_passes=NeutronEdgePassManager(), partitioner=partitioners)
    if args.remove_quant_io_ops:
        ends = RemoveIOQuantOpsPass(edge_program_manager=edge)
        edge = edge.transform([ends])
        for name, found in ends.ends.items():
            print(f"{name}: real = {found.scale:g} * (stored - {found.zero_point})")
    return edge.transform(NeutronEdgePassManager([RemoveAdditionalQDQClustersPass()]))


def report(args: argparse.Namespace, edge: Any, path: Path) -> None:
    for each in edge.partition_reports.values():
        print(each if args.report else each.summary)
    if args.visualize:
        page = path.with_suffix(".html")
        write_page(page, edge.partition_reports)
        print(f"wrote {page}")
        if args.visualize == "show":
            show_page(page)


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


def output_path(args: argparse.Namespace) -> Path:
    name = args.model_name.partition(":")[0].replace("/", "_").removesuffix(".pt2")
    parts = [name, "_nxp_delegate" * args.delegate, "_profile" * args.use_profiling]
    return Path(args.output or "".join(parts) + ".pte")


def evaluate(args: argparse.Namespace, path: Path, model: torch.nn.Module, inputs: Inputs, data: Dataset) -> None:
    if args.remove_quant_io_ops:
        raise UsageError("-t and -e", "need a file that takes real numbers: leave --remove-quant-io-ops away")
    method = Runtime.get().load_program(path).load_method("forward")
    with torch.no_grad():
        if args.evaluate:
            made = torch.as_tensor(method.execute(list(inputs))[0])
            print(f"largest difference from the model: {float((made - model(*inputs)).abs().max()):.4g}")
        if args.test:
            if args.model_name in MODELS and args.model_name not in TRAINED and not args.weights:
                print("weights: random (--weights w.safetensors gives others), so labels mean nothing")
                data = Dataset(data.samples)
            before = accuracy(lambda x: model(*x), data, lambda x: model(*x))
            after = accuracy(lambda x: method.execute(list(x))[0], data, lambda x: model(*x))
            seen = "classified as labelled" if data.labels is not None else "classified as the model does"
            print(f"{len(data.samples)} samples, {seen}: the model {before:.1f} %, the file {after:.1f} %")


if __name__ == "__main__":
    raise SystemExit(guard(main))

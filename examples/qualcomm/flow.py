"""What every script here does: a model is quantized, compiled for a SoC, and run on a phone or on this machine.

Flags are those of ExecuTorch's scripts, old and new. Weights are random unless ``--weights`` gives them, and inputs are
random unless ``--dataset`` does: then results say whether the compiled model does what the model does, not how well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright import Runtime
from edgewright.backends.qualcomm import (
    QnnQuantizer,
    QuantDtype,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    to_edge_transform_and_lower_to_qnn,
)
from edgewright.backends.qualcomm.adb import Adb
from edgewright.backends.qualcomm.libraries import find_runner, htp_files, sdk_root
from edgewright.backends.qualcomm.phone import LIST, Phone, needs_of
from edgewright.cli import guard
from edgewright.errors import UsageError
from edgewright.frontend.weights import load_weights
from edgewright.pte.reader import read_program

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Script:
    """A model, how it is quantized (None: real numbers of 16 bits), and what its file is called.

    ``make`` gives the model; ``example`` gives inputs, by a generator of random numbers and a size.
    """

    name: str
    file: str
    make: Callable[[argparse.Namespace], torch.nn.Module]
    example: Callable[[torch.Generator, int], Inputs]
    size: int
    scheme: QuantDtype | None = QuantDtype.use_8a8w
    report: Callable[[list[Any], list[Any]], str] | None = None


def image(generator: torch.Generator, size: int) -> Inputs:
    return (torch.randn(1, 3, size, size, generator=generator),)


def arguments(script: Script) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=script.name, description=f"Compiles {script.name} for Qualcomm's HTP.")
    add = parser.add_argument
    add("-m", "--model", "--soc_model", dest="soc", required=True, help="the SoC, such as SM8550")
    add("-b", "--build_folder", help="ExecuTorch's build for Android, with its runner")
    add("-s", "--device", help="the phone's serial, as adb devices lists it")
    add("-H", "--host", help="of an adb server on another machine")
    add("-a", "--artifact", default=f"./{script.name}", help="the folder for everything (default: %(default)s)")
    add("-d", "--dataset", help="inputs: an .npz of arrays, each a batch of one")
    add("-c", "--compile_only", action="store_true", help="stop after the .pte")
    add("--pre_gen_pte", metavar="FOLDER", help="a folder with a .pte that is ready")
    add("--download", action="store_true", help="get the data set that the model is tested with (PASCAL VOC 2009)")
    add("-x", "--enable_x86_64", action="store_true", help="run on this machine: Qualcomm's emulator, or the host twin")
    add("-z", "--shared_buffer", action="store_true", help="the phone's buffers are read where they are")
    add("-S", "--skip_delegate_node_ids", help="names of nodes to leave to the CPU, with commas")
    add("-f", "--skip_delegate_node_ops", help="operators to leave to the CPU, such as aten.add.Tensor, with commas")
    add("--profile_level", type=int, default=0, help="0 off, 2 detailed, 3 every operator")
    add("--htp_performance_mode", type=int, default=2, help="0 to 8 (default: 2, burst)")
    add("--skip_push", action="store_true", help="the phone has libraries and runner already")
    add("--ci", action="store_true", help="random inputs, whatever else is there")
    add("--seed", type=int, default=0, help="of random weights and inputs")
    add("--weights", metavar="w.safetensors", help="the model's weights (default: random)")
    add("--qnn-sdk", metavar="FOLDER", help="Qualcomm's SDK with libraries for phones (default: QNN_SDK_ROOT)")
    add("--fp16", action="store_true", help="real numbers of 16 bits, instead of integers")
    add("--count", type=int, default=1, help="how many inputs")
    add("--size", type=int, default=script.size, help="of an input's side, or its length (default: %(default)s)")
    return parser


def main(script: Script, argv: Sequence[str] | None = None) -> int:
    args = arguments(script).parse_args(argv)
    folder = Path(args.artifact)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    model = script.make(args).eval()
    data = inputs_of(script, args)
    if args.weights:
        load_weights(model, args.weights)
    else:
        randomize(model)
    write_inputs(folder, data)
    path = Path(args.pre_gen_pte or folder) / f"{script.file}.pte"
    if not args.pre_gen_pte:
        compile_model(script, args, model, data, path)
    if args.compile_only:
        return 0
    found = run_here(path, data) if args.enable_x86_64 else run_on_phone(args, path, folder, len(data))
    with torch.no_grad():
        wanted = [[o.numpy() for o in _listed(model(*given))] for given in data]
    if args.enable_x86_64:
        write_outputs(folder / "outputs", found)
    print((script.report or agreement)(wanted, found))
    return 0


def randomize(model: torch.nn.Module) -> None:
    """Weights that keep numbers, and differences between them, about as large as they are."""
    print("weights: random (--weights w.safetensors gives others)")
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Conv1d | torch.nn.Linear):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")


def script_main(script: Script) -> None:
    guard(lambda: main(script))


def _listed(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple | list) else [made]


# ------------------------------------------------------------------------------------------------------------- inputs


def inputs_of(script: Script, args: argparse.Namespace) -> list[Inputs]:
    if args.dataset and not args.ci:
        with np.load(args.dataset) as file:
            arrays = [torch.from_numpy(file[name]) for name in file.files]
        kinds = len(script.example(torch.Generator(), args.size))
        return [tuple(arrays[i : i + kinds]) for i in range(0, len(arrays), kinds)][: max(args.count, 1)]
    if args.download and not args.ci:
        from examples.qualcomm.voc import download

        found = download(Path(args.artifact), args.count, args.size)
        if found:
            return found
    print("inputs: random (--dataset x.npz gives others)")
    generator = torch.Generator().manual_seed(args.seed)
    return [script.example(generator, args.size) for _ in range(args.count)]


def write_inputs(folder: Path, data: list[Inputs]) -> None:
    """As the runner on a phone reads them: a file each, and a list with a line for every inference."""
    lines = []
    for number, given in enumerate(data):
        names = [f"input_{number}_{index}.raw" for index in range(len(given))]
        for name, tensor in zip(names, given, strict=True):
            tensor.numpy().tofile(folder / name)
        lines.append(" ".join(names))
    (folder / LIST).write_text("\n".join(lines) + "\n")


def write_outputs(folder: Path, runs: list[list[Any]]) -> None:
    folder.mkdir(exist_ok=True)
    for number, outputs in enumerate(runs):
        for index, array in enumerate(outputs):
            np.asarray(array).tofile(folder / f"output_{number}_{index}.raw")


# ---------------------------------------------------------------------------------------------------------- the model


def compile_model(
    script: Script, args: argparse.Namespace, model: torch.nn.Module, data: list[Inputs], path: Path
) -> None:
    real = args.fp16 or script.scheme is None
    htp = generate_htp_compiler_spec(use_fp16=real, htp_performance_mode=args.htp_performance_mode)
    options = {"profile_level": args.profile_level, "shared_buffer": args.shared_buffer}
    specs = generate_qnn_executorch_compiler_spec(args.soc, htp, **options)
    chosen = model if real else quantize(model, data, args.soc, script.scheme)
    skipped = {
        "skip_node_id_set": _names(args.skip_delegate_node_ids),
        "skip_node_op_set": _names(args.skip_delegate_node_ops),
    }
    edge = to_edge_transform_and_lower_to_qnn(chosen, data[0], specs, **skipped)
    for report in edge.partition_reports.values():
        print("\n".join(str(report).splitlines()[: 1 + len(report.estimates)]))
    program = edge.to_executorch()
    print(f"wrote {path} ({program.save(path)} bytes)")


def quantize(model: torch.nn.Module, data: list[Inputs], soc: str, scheme: QuantDtype | None) -> torch.nn.Module:
    assert scheme is not None
    quantizer = QnnQuantizer(soc)
    quantizer.set_default_quant_config(scheme, is_conv_per_channel=True, is_linear_per_channel=True)
    prepared = prepare_pt2e(torch.export.export(model, data[0]).module(check_guards=False), quantizer)
    with torch.no_grad():
        for given in data:
            prepared(*given)
    return convert_pt2e(prepared)


def _names(text: str | None) -> set[str] | None:
    return {name.strip() for name in text.split(",")} if text else None


# --------------------------------------------------------------------------------------------------------------- runs


def run_here(path: Path, data: list[Inputs]) -> list[list[Any]]:
    method = Runtime.get().load_program(path).load_method("forward")
    return [[np.asarray(o) for o in method.execute([t.numpy() for t in given])] for given in data]


def run_on_phone(args: argparse.Namespace, path: Path, folder: Path, count: int) -> list[list[Any]]:
    """Push, run, pull: outputs come to ``outputs`` in the artifact's folder, and the ETDump beside it."""
    if args.build_folder is None and not args.skip_push:
        raise UsageError("--build_folder", "is needed: ExecuTorch's build for Android, with its runner")
    program = read_program(path)
    needs = needs_of(program, str(path))
    files = []
    libraries: list[Path] = []
    if not args.skip_push:
        libraries = htp_files(sdk_root(args.qnn_sdk), needs.arch)
        files = [*libraries, *find_runner(args.build_folder, None).files]
    phone = Phone(Adb(args.device, args.host))
    phone.check(needs, libraries)
    inputs = [folder / LIST, *sorted(folder.glob("input_*_*.raw"))]
    pushed = phone.push((f, f.name) for f in (*files, path, *inputs))
    print(f"{phone.device.serial}: {pushed} files pushed to {phone.folder}")
    phone.run(path.name, inputs=True, say=print)
    raw = phone.pull(folder)
    from edgewright.ir.dtypes import dtype_named
    from edgewright.runtime.metadata import TensorInfo, describe

    infos = [info for info in describe(program.execution_plan[0]).outputs if isinstance(info, TensorInfo)]
    each = [np.fromfile(f, dtype_named(infos[i % len(infos)].dtype)) for i, f in enumerate(raw)]
    shaped = [a.reshape(infos[i % len(infos)].shape) for i, a in enumerate(each)]
    return [shaped[n * len(infos) : (n + 1) * len(infos)] for n in range(count)]


def agreement(wanted: list[list[Any]], found: list[list[Any]]) -> str:
    """How near the compiled model is to the model."""
    a, b = (np.concatenate([np.ravel(run[0]).astype(np.float64) for run in runs]) for runs in (wanted, found))
    noise = float(((a - b) ** 2).sum())
    ratio = 10 * np.log10(float((a**2).sum()) / noise) if noise else float("inf")
    return f"signal to noise against the model: {ratio:.1f} dB"


def top_one(wanted: list[list[Any]], found: list[list[Any]]) -> str:
    same = [np.argmax(w[0], 1) == np.argmax(f[0], 1) for w, f in zip(wanted, found, strict=True)]
    return f"top-1 agreement with the model: {np.mean(same):.1%}; {agreement(wanted, found)}"

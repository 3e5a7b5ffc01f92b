"""What every script here does: a model is quantized, compiled for a SoC, and run on a phone or on this machine.

Flags are those of ExecuTorch's scripts, old and new. Weights are random unless ``--weights`` gives them, and inputs are
random unless ``--dataset`` does: then results say whether the compiled model does what the model does, not how well.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

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
from edgewright.backends.qualcomm.phone import LIST, Phone, read_outputs, requirements_of
from edgewright.cli import guard
from edgewright.errors import ExecutionError, FormatError, UsageError
from edgewright.formats.pte_reader import read_program
from edgewright.frontend.safetensors import load_weights
from edgewright.runtime.metadata import describe
from examples.qualcomm import flags
from examples.qualcomm.pictures import Inputs, from_arrays, from_folder


@dataclass(frozen=True)
class Script:
    """A model, how it is quantized (None: real numbers of 16 bits), and what its file is called.

    ``make`` gives the model; ``example`` gives inputs, by a generator of random numbers and a size. ``flags`` adds the
    script's own; ``data`` gives the inputs that they ask for, and ``adapt`` a script changed by them.
    ``spread``: of random weights of linear layers, as transformers start with; else as networks with ReLU do.
    ``training``: quantize as for training; ``record``: also write an ETRecord under this name.
    """

    name: str
    file: str
    make: Callable[[argparse.Namespace], torch.nn.Module]
    example: Callable[[torch.Generator, int], Inputs]
    size: int
    scheme: QuantDtype | None = QuantDtype.use_8a8w
    report: Callable[[list[Any], list[Any]], str] | None = None
    flags: Callable[[argparse.ArgumentParser], None] = flags.dataset
    data: Callable[[argparse.Namespace], list[Inputs]] | None = None
    adapt: Callable[[Script, argparse.Namespace], Script] | None = None
    spread: float | None = None
    training: bool = False
    record: str = ""


def image(generator: torch.Generator, size: int) -> Inputs:
    return (torch.randn(1, 3, size, size, generator=generator),)


def arguments(script: Script) -> argparse.ArgumentParser:
    parser = flags.common(script.name, script.size)
    script.flags(parser)
    return parser


def main(script: Script, argv: Sequence[str] | None = None) -> int:
    args = flags.parsed(arguments(script), argv)
    script = script.adapt(script, args) if script.adapt is not None else script
    folder = Path(args.artifact)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    model = script.make(args).eval()
    data = inputs_of(script, args)
    if args.weights:
        give_weights(model, args.weights)
    else:
        randomize(model, script.spread)
    files = write_inputs(folder, data)
    path = Path(args.pre_gen_pte or folder) / f"{script.file}.pte"
    if not args.pre_gen_pte:
        compile_model(script, args, model, data, path)
    if args.compile_only:
        return 0
    found = run_here(path, data) if args.enable_x86_64 else run_on_phone(args, path, folder, files, len(data))
    with torch.no_grad():
        wanted = [[o.numpy() for o in _listed(model(*given))] for given in data]
    if args.enable_x86_64:
        write_outputs(folder / "outputs", found)
    print((script.report or agreement)(wanted, found))
    return 0


def randomize(model: torch.nn.Module, spread: float | None = None) -> None:
    """Weights that keep numbers, and differences between them, about as large as they are."""
    print("weights: random (--weights w.safetensors gives others)")
    for name, value in model.named_parameters():
        if name.endswith(("class_token", "pos_embedding")):  # or what it sees is lost beside the image's patches
            torch.nn.init.normal_(value)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and spread is not None:
            torch.nn.init.normal_(module.weight, std=spread)
        elif isinstance(module, torch.nn.Conv2d | torch.nn.Conv1d | torch.nn.Linear):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")


def give_weights(model: torch.nn.Module, path: str) -> None:
    """Of a .safetensors, or of a file that torch saved."""
    if path.endswith(".safetensors"):
        load_weights(model, path)
        return
    try:
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many kinds
        raise FormatError(f"must be the model's weights: {str(error)[:200]}", where=path) from error


def script_main(script: Script) -> None:
    raise SystemExit(guard(lambda: main(script)))


def _listed(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple | list) else [made]


# ------------------------------------------------------------------------------------------------------------- inputs


def inputs_of(script: Script, args: argparse.Namespace) -> list[Inputs]:
    """What the script's own flags ask for, or --dataset; else random numbers."""
    generator = torch.Generator().manual_seed(args.seed)
    if not args.ci:
        found = script.data(args) if script.data is not None else []
        if found:
            return found
        given = getattr(args, "dataset", None)
        if given and Path(given).is_dir():
            return from_folder(Path(given), args.count, args.size)
        if given:
            return from_arrays(Path(given), args.count, script.example(generator, args.size))
    print("inputs: random (--dataset gives others)")
    return [script.example(generator, args.size) for _ in range(args.count)]


def write_inputs(folder: Path, data: list[Inputs]) -> list[Path]:
    """As the runner on a phone reads them: a file each, and a list with a line for every inference. Those files."""
    for old in folder.glob("input_*_*.raw"):
        old.unlink()
    lines, files = [], [folder / LIST]
    for number, given in enumerate(data):
        names = [f"input_{number}_{index}.raw" for index in range(len(given))]
        for name, tensor in zip(names, given, strict=True):
            tensor.numpy().tofile(folder / name)
        files += [folder / name for name in names]
        lines.append(" ".join(names))
    (folder / LIST).write_text("\n".join(lines) + "\n")
    return files


def write_outputs(folder: Path, runs: list[list[Any]]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
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
    specs = generate_qnn_executorch_compiler_spec(args.soc_model, htp, **options)
    chosen = model if real else quantize(model, data, args.soc_model, script)
    skipped = {
        "skip_node_id_set": _names(args.skip_delegate_node_ids),
        "skip_node_op_set": _names(args.skip_delegate_node_ops),
    }
    edge = to_edge_transform_and_lower_to_qnn(chosen, data[0], specs, **skipped)
    for report in edge.partition_reports.values():
        print("\n".join(str(report).splitlines()[: 1 + len(report.estimates)]))
    program = edge.to_executorch()
    if script.record:
        program.get_etrecord().save(str(path.with_name(script.record)))
    print(f"wrote {path} ({program.save(path)} bytes)")


def quantize(model: torch.nn.Module, data: list[Inputs], soc: str, script: Script) -> torch.nn.Module:
    assert script.scheme is not None
    quantizer = QnnQuantizer(soc)
    quantizer.set_default_quant_config(
        script.scheme, is_qat=script.training, is_conv_per_channel=True, is_linear_per_channel=True
    )
    exported = torch.export.export(model, data[0]).module(check_guards=False)
    prepared = prepare_qat_pt2e(exported, quantizer) if script.training else prepare_pt2e(exported, quantizer)
    with torch.no_grad():
        for given in data:
            prepared(*given)
    converted: torch.nn.Module = convert_pt2e(prepared)
    return converted


def _names(text: str | None) -> set[str] | None:
    return {name.strip() for name in text.split(",")} if text else None


# --------------------------------------------------------------------------------------------------------------- runs


def run_here(path: Path, data: list[Inputs]) -> list[list[Any]]:
    method = Runtime.get().load_program(path).load_method("forward")
    return [[np.asarray(o) for o in method.execute([t.numpy() for t in given])] for given in data]


def run_on_phone(args: argparse.Namespace, path: Path, folder: Path, inputs: list[Path], count: int) -> list[list[Any]]:
    """Push, run, pull: outputs come to ``outputs`` in the artifact's folder, and the ETDump beside it."""
    if args.build_folder is None and not args.skip_push:
        remedy = "-b build-android; or -x runs it on this machine."
        raise UsageError("--build_folder", "is needed: ExecuTorch's build for Android, with its runner", remedy=remedy)
    program = read_program(path)
    needs = requirements_of(program, str(path))
    files = []
    libraries: list[Path] = []
    if not args.skip_push:
        libraries = htp_files(sdk_root(args.qnn_sdk), needs.arch)
        files = [*libraries, *find_runner(args.build_folder, None).files]
    phone = Phone(Adb(args.device, args.host))
    phone.check(needs, libraries)
    pushed = phone.push((f, f.name) for f in (*files, path, *inputs))
    print(f"{phone.device.serial}: {pushed} files pushed to {phone.folder}")
    phone.run(path.name, inputs=True, on_line=print)
    return read_outputs(phone.pull(folder), describe(program.execution_plan[0]), count)


def agreement(wanted: list[list[Any]], found: list[list[Any]]) -> str:
    """How near the compiled model is to the model."""
    a, b = (np.concatenate([np.ravel(run[0]).astype(np.float64) for run in runs]) for runs in (wanted, found))
    if not np.isfinite(b).all():
        remedy = "Real numbers of 16 bits end at 65504: quantize it, or scale what is too large."
        raise ExecutionError("outputs", "must be finite", value=f"{np.sum(~np.isfinite(b))} of {b.size}", remedy=remedy)
    noise = float(((a - b) ** 2).sum())
    ratio = 10 * np.log10(float((a**2).sum()) / noise) if noise else float("inf")
    return f"signal to noise against the model: {ratio:.1f} dB"


def top_one(wanted: list[list[Any]], found: list[list[Any]]) -> str:
    ratio = agreement(wanted, found)
    same = [np.argmax(w[0], 1) == np.argmax(f[0], 1) for w, f in zip(wanted, found, strict=True)]
    return f"top-1 agreement with the model: {np.mean(same):.1%}; {ratio}"

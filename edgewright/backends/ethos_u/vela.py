"""Runs Vela, Arm's compiler: in process where possible, through its command line where an option requires it.

Inputs and outputs of the result are compared with those of the graph: Vela sometimes drops an output silently.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.backends.capture import capture_streams
from edgewright.backends.ethos_u import estimates
from edgewright.backends.ethos_u.blob import Blob, Tensor
from edgewright.backends.ethos_u.target import ACCELERATORS, EthosUCompileSpec
from edgewright.backends.ethos_u.vela_ini import lookup
from edgewright.backends.ethos_u.vela_options import CLI, Flag, options_text, parse_flags
from edgewright.errors import FormatError, MissingError, UsageError, VendorError
from edgewright.files import write_file
from edgewright.units import size

log = logging.getLogger("edgewright.ethos_u")

_ARCHITECTURES = {"u55": "EthosU55", "u65": "EthosU65", "u85": "EthosU85"}
_MAX_TOSA = (1 << 31) - 1
_TIMEOUT = 3600  # seconds, for Vela's command line
_NOISE = re.compile(r"^\s*$|deprecat|^Warning: Consider|^Info:|^Traceback|^  File |^ {4}", re.IGNORECASE)

_REMEDIES = {
    "inputs": "Vela drops an input that nothing reads. Leave it out of the delegate.",
    "outputs": "Vela drops an output that is also read by the transposition that undoes its own. Keep such a tensor out"
    " of the delegate's outputs.",
}

# Memories that may hold constants, arena and cache. All three in one SRAM is allowed as well.
_ALLOWED_MEMORIES = {
    "const": ("Dram", "OnChipFlash", "OffChipFlash"),
    "arena": ("Sram", "Dram"),
    "cache": ("Sram",),
}

TensorSizes = int | Sequence[int]


@dataclass(frozen=True)
class VelaOutput(Blob):
    """Result of Vela. ``fast_scratch_size``: provided by the application, as blobs do not record it. ``queue``: the
    byte offset of the last command of an operation among the commands, and the operation's index in the estimates; the
    command line does not report it."""

    fast_scratch_size: int = 0
    queue: Sequence[tuple[int, int]] = ()
    performance: estimates.Estimates | None = None
    log: str = ""


def compile_tosa(tosa: bytes, spec: EthosUCompileSpec, *, inputs: TensorSizes, outputs: TensorSizes) -> VelaOutput:
    """Compile a TOSA graph. ``inputs``, ``outputs``: the number of tensors or, better, the bytes of each."""
    if len(tosa) > _MAX_TOSA:
        raise VendorError(f"Vela for {spec.target}", "takes graphs of at most 2 GiB", value=f"{len(tosa)} bytes")
    _require_vela()
    if spec.intermediates is not None:
        _save_tosa(tosa, spec.intermediates)
    _memories(spec, config_text(spec))
    flags = parse_flags(spec.extra_flags)
    through_cli = any(flag.option.handling == CLI for flag in flags)
    compiled = _run_cli(tosa, spec, flags) if through_cli else _run_in_process(tosa, spec, flags)
    if any(flag.option.prints for flag in flags):
        print(compiled.log, end="")
    else:
        log.debug("Vela for %s printed:\n%s", spec.target, compiled.log)
    _check_tensors("inputs", compiled.inputs, inputs, spec)
    _check_tensors("outputs", compiled.outputs, outputs, spec)
    _warn_of_limit(compiled, spec)
    return compiled


def _warn_of_limit(compiled: VelaOutput, spec: EthosUCompileSpec) -> None:
    """Vela aims at the limit of the arena, and takes more where a layer needs more."""
    used = compiled.fast_scratch_size or compiled.scratch_size
    if spec.limits_arena and used > spec.arena_limit:
        log.warning(
            "arena_cache_size: Vela for %s cannot keep activations within %s; they take %s. The layers with the most "
            "bytes in `edgewright size` decide: reduce their width or the size of the input.",
            spec.target, size(spec.arena_limit), size(used),
        )  # fmt: skip


def _require_vela() -> Any:
    try:
        from ethosu import regor
    except ImportError as error:
        remedy = 'pip install "edgewright[ethos-u]"'
        raise MissingError("Vela, Arm's compiler for Ethos-U", "is not installed", remedy=remedy) from error
    return regor


def _save_tosa(tosa: bytes, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    write_file(Path(folder) / tosa_file_name(tosa), [tosa])


def tosa_file_name(tosa: bytes) -> str:
    """The name of a delegate's graph in the folder of intermediate files."""
    return f"delegate_{hashlib.sha256(tosa).hexdigest()[:12]}.tosa"


# ---------------------------------------------------------------------------------------------------- in process


def _run_in_process(tosa: bytes, spec: EthosUCompileSpec, flags: Sequence[Flag]) -> VelaOutput:
    regor = _require_vela()
    ini = config_text(spec)
    _, macs, cores = ACCELERATORS[spec.target]
    system = (
        f"[architecture]\nmacs={macs}\ncores={cores}\n"
        f"[vela]\nsystem_config_name={spec.system_config}\nmemory_mode_name={spec.memory_mode}\n{ini}"
    )
    options = options_text(flags, spec.arena_limit)
    failure: Exception | None = None
    with capture_streams() as output:
        try:
            model = regor.compile(_ARCHITECTURES[spec.family], tosa, "TOSA", system, options=options, verbose=True)
        except Exception as error:  # any exception of the C++ compiler
            failure = error
    if failure is not None:
        raise _compile_error(spec, f"{output.text}\n{failure}") from failure
    if not isinstance(model, regor.CompiledRawModel):
        raise _compile_error(spec, f"{output.text}\nVela returned no raw model")
    performance = estimates.from_report(model.perf_report, model.opt_database, spec, _system(spec, ini))
    return VelaOutput(
        bytes(model.command_stream),
        bytes(model.read_only.data) or b"\0",  # ExecuTorch's blobs, made by the command line, cannot be empty
        int(model.scratch.size),
        [_tensor(t.shape, t.element_size, t.address, t.region) for t in model.inputs],
        [_tensor(t.shape, t.element_size, t.address, t.region) for t in model.outputs],
        fast_scratch_size=_fast_scratch_bytes(model.scratch_fast.region, model.scratch_fast.size),
        queue=_queue(model.opt_database),
        performance=performance,
        log=output.text,
    )


def _queue(database: Any) -> list[tuple[int, int]]:
    rows = enumerate(estimates.table_rows(database, "perf"))
    index = {row["id"]: at for at, row in rows}
    queued = estimates.table_rows(database, "queue")
    return [(int(row["offset"]), index[row["scheduled_id"]]) for row in queued if row["scheduled_id"] in index]


def _tensor(shape: Any, size: Any, offset: Any, region: Any) -> Tensor:
    return Tensor(tuple(int(n) for n in shape), int(size), int(offset), int(region))


def _fast_scratch_bytes(region: Any, size: Any) -> int:
    """Size of the fast scratch; zero if it shares the region of the scratch."""
    return int(size) if int(region) == 2 else 0


def config_text(spec: EthosUCompileSpec) -> str:
    """The vela.ini of a spec: the user's, or Vela's own."""
    if spec.config_text:
        return spec.config_text
    import ethosu

    return (Path(next(iter(ethosu.__path__))) / "config_files" / "Arm" / "vela.ini").read_text(encoding="utf-8")


def _system(spec: EthosUCompileSpec, ini: str) -> dict[str, Any]:
    """Configuration that estimates need: the clock, and whether constants share the arena's SRAM."""
    section = f"System_Config.{spec.system_config}"
    clock = float(lookup(ini, section, "core_clock") or 1)
    return {"clock": clock, "constants_in_sram": _memories(spec, ini)["const"] == "Sram"}


def _memories(spec: EthosUCompileSpec, ini: str) -> dict[str, str]:
    """The memories of a mode on a system, validated: the in-process compiler does not check them."""
    mode = f"Memory_Mode.{spec.memory_mode}"
    used = {}
    for use in _ALLOWED_MEMORIES:
        port = lookup(ini, mode, f"{use}_mem_area") or "Axi0"
        used[use] = lookup(ini, f"System_Config.{spec.system_config}", f"{port.lower()}_port") or "Sram"
    for use, memories in _ALLOWED_MEMORIES.items():
        if used[use] not in memories and set(used.values()) != {"Sram"}:
            rule = f"memory mode {spec.memory_mode} needs {' or '.join(memories)} as its {use} memory"
            remedy = "Choose another memory mode, or a system configuration that has this memory."
            raise UsageError(f"{spec.target} in {spec.system_config}", rule, value=used[use], remedy=remedy)
    return used


# --------------------------------------------------------------------------------------------------- command line


def _run_cli(tosa: bytes, spec: EthosUCompileSpec, flags: Sequence[Flag]) -> VelaOutput:
    with tempfile.TemporaryDirectory(prefix="edgewright-vela-") as folder:
        network = Path(folder) / tosa_file_name(tosa)
        network.write_bytes(tosa)
        output_dir = next((f.value for f in flags if f.option.name == "--output-dir"), None)
        output = Path(folder) / "output" if output_dir is None else Path(output_dir).resolve()
        flag_args = [f for f in spec.compile_flags if not f.startswith(("--output-dir", "--config="))]
        if spec.config_text:
            ini_path = Path(folder) / "vela.ini"
            ini_path.write_text(spec.config_text, encoding="utf-8")
        command = [
            *(sys.executable, "-m", "ethosu.vela", *flag_args),
            f"--config={ini_path if spec.config_text else spec.config_ini}",
            f"--output-dir={output}",
            str(network),
        ]
        process = _call(command, folder, spec)
        printed = process.stdout + process.stderr
        npz = output / f"{network.stem}_vela.npz"
        if process.returncode or not npz.exists():
            raise _compile_error(spec, printed)
        return _read_files(output, network.stem, spec, printed)


def _call(command: list[str], folder: str, spec: EthosUCompileSpec) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise VendorError(f"Vela for {spec.target}", f"must end within {_TIMEOUT} seconds") from error


def _read_files(folder: Path, stem: str, spec: EthosUCompileSpec, printed: str) -> VelaOutput:
    """Read the model and the estimates that the command line wrote."""
    with np.load(folder / f"{stem}_vela.npz", allow_pickle=False) as npz:
        tensors = {
            kind: [
                _tensor(*row)
                for row in zip(*(npz[f"{kind}_{k}"] for k in ("shape", "elem_size", "offset", "region")), strict=True)
            ]
            for kind in ("input", "output")
        }
        parts = {name: npz[name].tobytes() for name in ("cmd_data", "weight_data")}
        numbers = {name: npz[name].item() for name in ("scratch_size", "scratch_fast_region", "scratch_fast_size")}
    (row,) = _table(folder / f"{stem}_summary_{spec.system_config}.csv")
    layers = folder / f"{stem}_per-layer.csv"
    return VelaOutput(
        parts["cmd_data"],
        parts["weight_data"],
        int(numbers["scratch_size"]),
        tensors["input"],
        tensors["output"],
        fast_scratch_size=_fast_scratch_bytes(numbers["scratch_fast_region"], numbers["scratch_fast_size"]),
        performance=estimates.from_table(row, spec, _table(layers) if layers.exists() else ()),
        log=printed,
    )


def _table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --------------------------------------------------------------------------------------------------------- checks


def _compile_error(spec: EthosUCompileSpec, printed: str) -> VendorError:
    """An error with Vela's message, without its noise."""
    lines = [line.strip() for line in printed.splitlines() if not _NOISE.search(line)]
    message = " / ".join(dict.fromkeys(lines[-6:])) or "no reason given"
    remedy = "Exclude the operator that Vela rejects from the partitioner."
    return VendorError(f"Vela for {spec.target}", f"cannot compile the delegate: {message}"[:1000], remedy=remedy)


def _check_tensors(kind: str, tensors: Sequence[Tensor], expected: TensorSizes, spec: EthosUCompileSpec) -> None:
    count = expected if isinstance(expected, int) else len(expected)
    subject = f"Vela for {spec.target}"
    if len(tensors) != count:
        shapes = ", ".join(str(list(t.shape)) for t in tensors) or "none"
        rule = f"must keep the graph's {count} {kind}"
        raise VendorError(subject, rule, value=f"{len(tensors)} ({shapes})", remedy=_REMEDIES[kind])
    for index, tensor in enumerate(tensors):
        try:
            size = tensor.nbytes
        except FormatError as error:
            raise VendorError(subject, f"gave {kind}[{index}] an invalid shape", value=tensor.shape) from error
        if not isinstance(expected, int) and size != expected[index]:
            rule = f"must keep the {expected[index]} bytes of {kind}[{index}]"
            raise VendorError(subject, rule, value=f"{size} bytes, shape {list(tensor.shape)}")

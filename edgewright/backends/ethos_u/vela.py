"""Drives Vela, Arm's compiler: in this process where it can be, through its command line where it must be.

Its answer is compared with what was asked: Vela is known to drop an output without a word.
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

from edgewright.backends.capture import captured
from edgewright.backends.ethos_u import estimates
from edgewright.backends.ethos_u.blob import Blob, Tensor
from edgewright.backends.ethos_u.target import ACCELERATORS, EthosUCompileSpec
from edgewright.backends.ethos_u.vela_ini import lookup
from edgewright.backends.ethos_u.vela_options import CLI, Flag, options_text, parse_flags
from edgewright.errors import FormatError, MissingError, UsageError, VendorError
from edgewright.files import write_file

log = logging.getLogger("edgewright.ethos_u")

_ARCHITECTURES = {"u55": "EthosU55", "u65": "EthosU65", "u85": "EthosU85"}
_MAX_TOSA = (1 << 31) - 1
_TIMEOUT = 3600  # seconds for Vela's command line: it must end some day
_NOISE = re.compile(r"^\s*$|deprecat|^Warning: Consider|^Info:|^Traceback|^  File |^ {4}", re.IGNORECASE)

_LOSSES = {
    "inputs": "Vela drops an input that nothing reads. Leave it out of the delegate.",
    "outputs": "Vela drops an output that is also read by the transposition that undoes its own. Keep such a tensor out"
    " of the delegate's outputs.",
}

# Where constants, the arena and its cache may lie. All three in one SRAM is a case of its own, and allowed.
_SUITABLE = {
    "const": ("Dram", "OnChipFlash", "OffChipFlash"),
    "arena": ("Sram", "Dram"),
    "cache": ("Sram",),
}

Ends = int | Sequence[int]


@dataclass(frozen=True)
class Compiled(Blob):
    """What Vela made of a graph. ``fast_scratch_size`` is the application's to provide: blobs do not tell it."""

    fast_scratch_size: int = 0
    performance: estimates.Estimates | None = None
    log: str = ""


def compile_tosa(tosa: bytes, spec: EthosUCompileSpec, *, inputs: Ends, outputs: Ends) -> Compiled:
    """Compile a TOSA graph. ``inputs`` and ``outputs``: how many the graph has or, better, the bytes of each."""
    if len(tosa) > _MAX_TOSA:
        raise VendorError(f"Vela for {spec.target}", "takes graphs of at most 2 GiB", value=f"{len(tosa)} bytes")
    _require_vela()
    if spec.intermediates is not None:
        _keep(tosa, spec.intermediates)
    _memories(spec, config_text(spec))
    flags = parse_flags(spec.extra_flags)
    through_cli = any(flag.option.how == CLI for flag in flags)
    compiled = _run_cli(tosa, spec, flags) if through_cli else _run_here(tosa, spec, flags)
    if any(flag.option.prints for flag in flags):
        print(compiled.log, end="")
    else:
        log.debug("Vela for %s said:\n%s", spec.target, compiled.log)
    _compare("inputs", compiled.inputs, inputs, compiled, spec)
    _compare("outputs", compiled.outputs, outputs, compiled, spec)
    return compiled


def _require_vela() -> Any:
    try:
        from ethosu import regor
    except ImportError as error:
        remedy = 'pip install "edgewright[ethos-u]"'
        raise MissingError("Vela, Arm's compiler for Ethos-U", "is not installed", remedy=remedy) from error
    return regor


def _keep(tosa: bytes, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    write_file(Path(folder) / _file_name(tosa), [tosa])


def _file_name(tosa: bytes) -> str:
    return f"delegate_{hashlib.sha256(tosa).hexdigest()[:12]}.tosa"


# ---------------------------------------------------------------------------------------------------- in process


def _run_here(tosa: bytes, spec: EthosUCompileSpec, flags: Sequence[Flag]) -> Compiled:
    regor = _require_vela()
    ini = config_text(spec)
    _, macs, cores = ACCELERATORS[spec.target]
    system = (
        f"[architecture]\nmacs={macs}\ncores={cores}\n"
        f"[vela]\nsystem_config_name={spec.system_config}\nmemory_mode_name={spec.memory_mode}\n{ini}"
    )
    options = options_text(flags, spec.arena_limit)
    failure: Exception | None = None
    with captured() as said:
        try:
            made = regor.compile(_ARCHITECTURES[spec.family], tosa, "TOSA", system, options=options, verbose=True)
        except Exception as error:  # whatever a compiler in C++ throws
            failure = error
    if failure is not None:
        raise _failed(spec, f"{said.text}\n{failure}") from failure
    if not isinstance(made, regor.CompiledRawModel):
        raise _failed(spec, f"{said.text}\nVela gave no raw model")
    performance = estimates.from_report(made.perf_report, made.opt_database, spec, _system(spec, ini))
    return Compiled(
        bytes(made.command_stream),
        bytes(made.read_only.data) or b"\0",  # the command line's files, hence stock's blobs, cannot hold nothing
        int(made.scratch.size),
        [_tensor(t.shape, t.element_size, t.address, t.region) for t in made.inputs],
        [_tensor(t.shape, t.element_size, t.address, t.region) for t in made.outputs],
        fast_scratch_size=_fast(made.scratch_fast.region, made.scratch_fast.size),
        performance=performance,
        log=said.text,
    )


def _tensor(shape: Any, size: Any, offset: Any, region: Any) -> Tensor:
    return Tensor(tuple(int(n) for n in shape), int(size), int(offset), int(region))


def _fast(region: Any, size: Any) -> int:
    """Bytes of a fast scratch of its own: where it shares a region with the scratch, there is none."""
    return int(size) if int(region) == 2 else 0


def config_text(spec: EthosUCompileSpec) -> str:
    """The vela.ini of a spec: the user's, or the one that comes with Vela."""
    if spec.config_text:
        return spec.config_text
    import ethosu

    return (Path(next(iter(ethosu.__path__))) / "config_files" / "Arm" / "vela.ini").read_text()


def _system(spec: EthosUCompileSpec, ini: str) -> dict[str, Any]:
    """What estimates need of the configuration: the clock, and whether constants share the arena's SRAM."""
    section = f"System_Config.{spec.system_config}"
    clock = float(lookup(ini, section, "core_clock") or 1)
    return {"clock": clock, "constants_in_sram": _memories(spec, ini)["const"] == "Sram"}


def _memories(spec: EthosUCompileSpec, ini: str) -> dict[str, str]:
    """The memories that a mode uses on a system, which must suit: the in-process compiler does not look."""
    mode = f"Memory_Mode.{spec.memory_mode}"
    found = {}
    for use in _SUITABLE:
        port = lookup(ini, mode, f"{use}_mem_area") or "Axi0"
        found[use] = lookup(ini, f"System_Config.{spec.system_config}", f"{port.lower()}_port") or "Sram"
    for use, memories in _SUITABLE.items():
        if found[use] not in memories and set(found.values()) != {"Sram"}:
            rule = f"memory mode {spec.memory_mode} needs {' or '.join(memories)} as its {use} memory"
            remedy = "Choose another memory mode, or a system configuration that has this memory."
            raise UsageError(f"{spec.target} in {spec.system_config}", rule, value=found[use], remedy=remedy)
    return found


# --------------------------------------------------------------------------------------------------- command line


def _run_cli(tosa: bytes, spec: EthosUCompileSpec, flags: Sequence[Flag]) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="edgewright-vela-") as folder:
        network = Path(folder) / _file_name(tosa)
        network.write_bytes(tosa)
        chosen = next((f.value for f in flags if f.option.name == "--output-dir"), None)
        output = Path(folder) / "output" if chosen is None else Path(chosen).resolve()
        given = [f for f in spec.compile_flags if not f.startswith(("--output-dir", "--config="))]
        if spec.config_text:
            own = Path(folder) / "vela.ini"
            own.write_text(spec.config_text)
        command = [
            *(sys.executable, "-m", "ethosu.vela", *given),
            f"--config={own if spec.config_text else spec.config_ini}",
            f"--output-dir={output}",
            str(network),
        ]
        done = _call(command, folder, spec)
        said = done.stdout + done.stderr
        made = output / f"{network.stem}_vela.npz"
        if done.returncode or not made.exists():
            raise _failed(spec, said)
        return _read_files(output, network.stem, spec, said)


def _call(command: list[str], folder: str, spec: EthosUCompileSpec) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise VendorError(f"Vela for {spec.target}", f"must end within {_TIMEOUT} seconds") from error


def _read_files(folder: Path, stem: str, spec: EthosUCompileSpec, said: str) -> Compiled:
    """What the command line wrote: the model, and the tables of its estimates."""
    with np.load(folder / f"{stem}_vela.npz", allow_pickle=False) as made:
        ends = {
            kind: [
                _tensor(*row)
                for row in zip(*(made[f"{kind}_{k}"] for k in ("shape", "elem_size", "offset", "region")), strict=True)
            ]
            for kind in ("input", "output")
        }
        parts = {name: made[name].tobytes() for name in ("cmd_data", "weight_data")}
        numbers = {name: made[name].item() for name in ("scratch_size", "scratch_fast_region", "scratch_fast_size")}
    (row,) = _table(folder / f"{stem}_summary_{spec.system_config}.csv")
    layers = folder / f"{stem}_per-layer.csv"
    return Compiled(
        parts["cmd_data"],
        parts["weight_data"],
        int(numbers["scratch_size"]),
        ends["input"],
        ends["output"],
        fast_scratch_size=_fast(numbers["scratch_fast_region"], numbers["scratch_fast_size"]),
        performance=estimates.from_table(row, spec, _table(layers) if layers.exists() else ()),
        log=said,
    )


def _table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


# --------------------------------------------------------------------------------------------------------- checks


def _failed(spec: EthosUCompileSpec, said: str) -> VendorError:
    """Vela's own words, without its chatter."""
    lines = [line.strip() for line in said.splitlines() if not _NOISE.search(line)]
    words = " / ".join(dict.fromkeys(lines[-6:])) or "no reason given"
    remedy = "An operator that Vela refuses must stay outside the delegate: exclude it from the partitioner."
    return VendorError(f"Vela for {spec.target}", f"cannot compile the delegate: {words}"[:1000], remedy=remedy)


def _compare(kind: str, found: Sequence[Tensor], asked: Ends, compiled: Compiled, spec: EthosUCompileSpec) -> None:
    count = asked if isinstance(asked, int) else len(asked)
    subject = f"Vela for {spec.target}"
    if len(found) != count:
        shapes = ", ".join(str(list(t.shape)) for t in found) or "none"
        rule = f"must keep the graph's {count} {kind}"
        raise VendorError(subject, rule, value=f"{len(found)} ({shapes})", remedy=_LOSSES[kind])
    for index, tensor in enumerate(found):
        try:
            size = tensor.nbytes
        except FormatError as error:
            raise VendorError(subject, f"gave {kind}[{index}] a shape that is none", value=tensor.shape) from error
        if not isinstance(asked, int) and size != asked[index]:
            rule = f"must keep the {asked[index]} bytes of {kind}[{index}]"
            raise VendorError(subject, rule, value=f"{size} bytes, shape {list(tensor.shape)}")

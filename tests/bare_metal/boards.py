"""Builds a firmware image from ``model.o`` and runs it on QEMU's model of an Arm MPS board."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from edgewright.engine.plan import TensorSpec

FOLDER = Path(__file__).parent / "board"
GCC, QEMU = "arm-none-eabi-gcc", "qemu-system-arm"
LOOP = 2_000_000  # instructions of the loop that the ticks of the model are compared with


@dataclass(frozen=True)
class Board:
    """QEMU's machine, its processor, origins and lengths of two memories, and of one for constants."""

    machine: str
    cpu: str
    flash: tuple[int, int]
    ram: tuple[int, int]
    rom: tuple[int, int]  # for constants; the memory that the processor boots from may be small


BOARDS = {
    "cortex-m4": Board("mps2-an386", "cortex-m4", (0x0, 4 << 20), (0x20000000, 3 << 20), (0x20300000, 1 << 20)),
    "cortex-m7": Board("mps2-an500", "cortex-m7", (0x0, 4 << 20), (0x20000000, 3 << 20), (0x20300000, 1 << 20)),
    "cortex-m33": Board(
        "mps2-an505", "cortex-m33", (0x10000000, 2 << 20), (0x38000000, 2 << 20), (0x10200000, 2 << 20)
    ),
    "cortex-m55": Board(
        "mps3-an547", "cortex-m55", (0x10000000, 512 << 10), (0x31000000, 2 << 20), (0x70000000, 16 << 20)
    ),
}
# QEMU has no Cortex-M85. Its Cortex-M55 has the same instructions, but those of pointer authentication, which LLVM
# does not emit unasked.
BOARDS["cortex-m85"] = BOARDS["cortex-m55"]


@dataclass(frozen=True)
class Execution:
    output: bytes
    instructions: int
    stack: int


def require_tools(*names: str) -> None:
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


def run_on_board(
    target: str, folder: Path, inputs: Sequence[np.ndarray], flags: tuple[str, ...] = ()
) -> list[Execution]:
    """Link ``model.o`` of ``folder`` with the start-up code, boot it, and return what it printed for each input."""
    image = link_image(target, folder, inputs, flags)
    printed = boot(target, image, "-icount", "shift=0")
    (loop,) = (int(ticks, 16) for ticks in re.findall(r"loop (\w+)", printed))
    found = re.findall(r"ticks (\w+) stack (\w+) output (\w+)", printed)
    assert len(found) == len(inputs), printed
    return [
        Execution(bytes.fromhex(output), int(ticks, 16) * LOOP // loop, int(stack, 16))
        for ticks, stack, output in found
    ]


def link_image(target: str, folder: Path, inputs: Sequence[np.ndarray], flags: tuple[str, ...] = ()) -> Path:
    data = ", ".join(map(str, b"".join(x.tobytes() for x in inputs)))
    (folder / "input.h").write_text(
        f"#define RUNS {len(inputs)}\nstatic const unsigned char input_bytes[] = {{{data}}};\n"
    )
    return link_program(target, folder / "image.elf", FOLDER / "runner.c", folder / "model.o", *flags)


def run_graph_on_board(target: str, folder: Path, inputs: Sequence[np.ndarray], outputs: Sequence[TensorSpec],
                       arena: int) -> list[bytes]:  # fmt: skip
    """Boot ``model.o`` of ``folder``, of any number of inputs and outputs, and return the bytes of each output."""
    data = b"".join(x.tobytes() for x in inputs)

    def row(name: str, values: Iterable[int], kind: str = "uint32_t") -> str:
        return f"static const {kind} {name}[] = {{{', '.join(map(str, values))}}};"

    lines = [
        "#include <stddef.h>", "#include <stdint.h>",
        f"#define ARENA_SIZE {arena}", f"#define INPUTS {len(inputs)}", f"#define OUTPUTS {len(outputs)}",
        f"#define INPUT_BYTES {len(data)}", f"#define OUTPUT_BYTES {sum(y.nbytes for y in outputs)}",
        row("input_bytes", data, "unsigned char"),
        row("input_sizes", (x.nbytes for x in inputs)), row("input_items", (x.itemsize for x in inputs)),
        row("output_sizes", (y.nbytes for y in outputs)), row("output_items", (y.dtype.itemsize for y in outputs)),
    ]  # fmt: skip
    (folder / "ports.h").write_text("\n".join(lines) + "\n")
    image = link_program(target, folder / "image.elf", FOLDER / "graph_runner.c", folder / "model.o")
    found = [bytes.fromhex(line) for line in boot(target, image).splitlines()]
    assert [len(each) for each in found] == [y.nbytes for y in outputs]
    return found


def link_program(target: str, image: Path, *sources: Path | str) -> Path:
    """An image of ``sources``, one of which defines ``main``, with the start-up code."""
    board = BOARDS[target]
    places = zip(
        ("flash_origin", "flash_length", "ram_origin", "ram_length", "rom_origin", "rom_length"),
        (*board.flash, *board.ram, *board.rom), strict=True,
    )  # fmt: skip
    subprocess.run(
        [GCC, f"-mcpu={board.cpu}", "-mfloat-abi=hard", "-mthumb", "-O2", "-Wall", "-Werror", "-nostdlib",
         *(f"-Wl,--defsym={name}={value}" for name, value in places), "-Wl,--no-warn-rwx-segments",
         "-T", str(FOLDER / "link.ld"), f"-I{image.parent}", "-o", str(image),
         str(FOLDER / "start.c"), *map(str, sources)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return image


def boot(target: str, image: Path, *options: str) -> str:
    """Run an image to its end; returns what it printed."""
    ran = subprocess.run(
        [QEMU, "-M", BOARDS[target].machine, "-kernel", str(image), "-nographic", "-monitor", "none", "-serial", "none",
         "-semihosting-config", "enable=on,target=native", *options],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    printed = ran.stdout + ran.stderr
    assert ran.returncode == 0, f"exit code {ran.returncode}: {printed}"
    return printed


def count_instructions(target: str, folder: Path, inputs: Sequence[np.ndarray]) -> int:
    """Instructions of ``model.o`` that run, counted one by one in QEMU's trace."""
    names = {name for _, name in _functions(folder / "model.o")}
    return trace_functions(target, link_image(target, folder, inputs), names)


def trace_functions(target: str, image: Path, names: Collection[str]) -> int:
    """Executed instructions from the first to the last of these functions, counted one by one in QEMU's trace."""
    code, log = _functions(image), image.with_suffix(".log")
    first, last = (choose(at for at, name in code if name in names) for choose in (min, max))
    end = min((at for at, _ in code if at > last), default=last + 4096)
    boot(target, image, "-singlestep", "-d", "exec,nochain", "-D", str(log))
    with log.open() as lines:
        executed = (re.search(r"/([0-9a-f]{8})/", line) for line in lines)
        return sum(first <= int(match[1], 16) < end for match in executed if match is not None)


def _functions(file: Path) -> list[tuple[int, str]]:
    listed = subprocess.run(["arm-none-eabi-nm", file], check=True, capture_output=True, text=True).stdout
    return [(int(address, 16), name) for address, kind, name in (line.split() for line in listed.splitlines()
            if not line.startswith(" ")) if kind in "tT" and not name.startswith("$")]  # fmt: skip

"""Builds a firmware image from ``model.o`` and runs it on QEMU's model of an Arm MPS board."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "board"
GCC, QEMU = "arm-none-eabi-gcc", "qemu-system-arm"
_LOOP = 2_000_000  # instructions of the loop that the ticks of the model are compared with


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


@dataclass(frozen=True)
class Execution:
    output: bytes
    instructions: int
    stack: int


def require_tools(*names: str) -> None:
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


def run_on_board(target: str, folder: Path, inputs: np.ndarray, flags: tuple[str, ...] = ()) -> Execution:
    """Link ``model.o`` of ``folder`` with the start-up code, boot it, and return what it printed."""
    board = BOARDS[target]
    data = ", ".join(map(str, inputs.tobytes()))
    alignment = "__attribute__((aligned(16)))"
    (folder / "input.h").write_text(f"static const unsigned char input_bytes[] {alignment} = {{{data}}};\n")
    image = folder / "image.elf"
    places = zip(
        ("flash_origin", "flash_length", "ram_origin", "ram_length", "rom_origin", "rom_length"),
        (*board.flash, *board.ram, *board.rom), strict=True,
    )  # fmt: skip
    subprocess.run(
        [GCC, f"-mcpu={board.cpu}", "-mfloat-abi=hard", "-mthumb", "-O2", "-Wall", "-Werror", "-nostdlib",
         *(f"-Wl,--defsym={name}={value}" for name, value in places), "-Wl,--no-warn-rwx-segments",
         "-T", str(FOLDER / "link.ld"), f"-I{folder}", "-o", str(image), str(FOLDER / "start.c"),
         str(FOLDER / "runner.c"), str(folder / "model.o"), "-lgcc", *flags],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    ran = subprocess.run(
        [QEMU, "-M", board.machine, "-kernel", str(image), "-nographic", "-monitor", "none", "-serial", "none",
         "-semihosting-config", "enable=on,target=native", "-icount", "shift=0"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    printed = ran.stdout + ran.stderr
    assert ran.returncode == 0, f"exit code {ran.returncode}: {printed}"
    match = re.search(r"loop (\w+) ticks (\w+) stack (\w+) output (\w+)", printed)
    assert match is not None, printed
    loop, ticks, stack = (int(match[group], 16) for group in (1, 2, 3))
    return Execution(bytes.fromhex(match[4]), ticks * _LOOP // loop, stack)

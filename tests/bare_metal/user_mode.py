"""Runs ``model.o`` for x86-64 or AArch64 as a program under QEMU's user mode, and counts its instructions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np

from tests.bare_metal.boards import Execution

# By the target's first part: a compiler for it, and an emulator that has its instructions.
TOOLS = {"x86": ("gcc", "qemu-x86_64"), "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64")}
_MAIN = """
#include "input.h"
#include "model.h"
#include <stdio.h>
static _Alignas(64) unsigned char arena[MODEL_ARENA_SIZE + 1], output[MODEL_OUTPUT_0_SIZE];
__attribute__((noinline)) void first_marker(void) { __asm__ volatile(""); }
__attribute__((noinline)) void second_marker(void) { __asm__ volatile(""); }
int main(void) {
  const model_inputs in = {(const void *)input_bytes};
  model_outputs out = {(void *)output};
  first_marker();
  const int result = model_run(&in, &out, arena);
  second_marker();
  fwrite(output, 1, sizeof output, stdout);
  return result;
}
"""


def tools(target: str) -> tuple[str, str]:
    return TOOLS[target.split("-")[0]]


def run_in_user_mode(target: str, folder: Path, x: np.ndarray) -> Execution:
    """The output for an input, and the instructions of ``model_run`` with the library functions that it calls."""
    compiler, emulator = tools(target)
    (folder / "input.h").write_text(
        f"static const _Alignas(64) unsigned char input_bytes[] = {{{', '.join(map(str, x.tobytes()))}}};\n"
    )
    (folder / "main.c").write_text(_MAIN)
    image, trace = folder / "program", folder / "trace"
    subprocess.run(
        [compiler, "-std=c11", "-O1", "-static", "-Wall", "-Werror", f"-I{folder}", folder / "main.c",
         folder / "model.o", "-o", image], check=True, capture_output=True, text=True,
    )  # fmt: skip
    listed = subprocess.run(["nm", image], check=True, capture_output=True, text=True).stdout
    symbols = {line.split()[-1]: int(line.split()[0], 16) for line in listed.splitlines() if line[0] != " "}
    markers = [b"/%016x/" % symbols[name] for name in ("first_marker", "second_marker")]
    trace.unlink(missing_ok=True)
    os.mkfifo(trace)
    command = [emulator, "-cpu", "max", "-singlestep", "-d", "exec,nochain", "-D", trace, image]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, trace.open("rb") as lines:
        executed, inside = 0, False
        for line in lines:
            if any(marker in line for marker in markers):
                inside = markers[0] in line
            executed += inside
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 0
    return Execution(output, executed, 0)

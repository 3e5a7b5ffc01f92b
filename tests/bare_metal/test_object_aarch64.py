"""Object files for AArch64, in ELF and in Apple's Mach-O, called by an Arm Python under qemu."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgewright.bare_metal.object_export import export_object
from edgewright.bare_metal.object_header import ObjectDescription
from tests.bare_metal.boards import require_tools
from tests.bare_metal.programs import compile_network, expected_output, random_inputs
from tests.bare_metal.tiny_networks import NETWORKS
from tests.bare_metal.user_mode import run_in_user_mode, tools
from tests.engine.test_aarch64 import arm_python, run_on_arm  # noqa: F401


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["aarch64-linux", "aarch64-linux+dotprod", "aarch64-android", "aarch64-android+i8mm"]
)
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_networks_on_aarch64(name: str, target: str, tmp_path: Path) -> None:
    path = compile_network(name, tmp_path)
    about, _ = export_object(path, tmp_path, target)
    _compare(path, about, tmp_path, "model.o")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64-apple", "aarch64-apple+dotprod", "aarch64-apple+i8mm"])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_networks_in_mach_o(name: str, target: str, tmp_path: Path) -> None:
    """Linked for macOS by LLVM's linker; the segment of code and constants then runs without Apple's system."""
    require_tools("clang", _LINKER)
    path = compile_network(name, tmp_path)
    about, _ = export_object(path, tmp_path, target)
    image, offset = _link_mach_o(tmp_path)
    (tmp_path / "image").write_bytes(image)
    _compare(path, about, tmp_path, "image", str(offset))


def _compare(path: Path, about: ObjectDescription, folder: Path, code: str, *offset: str) -> None:
    """Outputs of three inputs are the bytes of this machine's."""
    inputs, found = random_inputs(about, 3), folder / "outputs"
    (folder / "inputs").write_bytes(b"".join(x.tobytes() for x in inputs))
    arguments = (folder / code, about.object.arena_size, folder / "inputs", found, 3, about.outputs[0].bytes, *offset)
    run_on_arm(folder, "tests.support.aarch64_object", *map(str, arguments))
    wanted = [expected_output(path, x) for x in inputs]
    got = np.frombuffer(found.read_bytes(), wanted[0].dtype).reshape(3, *wanted[0].shape)
    np.testing.assert_array_equal(got, wanted)


_LINKER = "ld64.lld-14"  # of Debian's package lld
_COPIES = """
typedef __SIZE_TYPE__ size_t;
#define KEEP __asm__ volatile("") /* not to become a call of itself */
void *memcpy(void *t, const void *s, size_t n) {
  for (; n--; ((char *)t)[n] = ((const char *)s)[n]) KEEP;
  return t;
}
void *memset(void *t, int c, size_t n) {
  for (; n--; ((char *)t)[n] = (char)c) KEEP;
  return t;
}
void bzero(void *t, size_t n) { memset(t, 0, n); }
void *memmove(void *t, const void *s, size_t n) {
  if (t > s) return memcpy(t, s, n);
  for (size_t i = 0; i < n; i++) { ((char *)t)[i] = ((const char *)s)[i]; KEEP; }
  return t;
}
"""


def _link_mach_o(folder: Path) -> tuple[bytes, int]:
    """A library for macOS, with functions for memory of its own: the segment of its code, and where the model is."""
    (folder / "copies.c").write_text(_COPIES)
    compiler = ["clang", "--target=arm64-apple-macosx11", "-O1", "-ffreestanding", "-fno-builtin"]
    subprocess.run([*compiler, "-c", folder / "copies.c", "-o", folder / "copies.o"], check=True)
    platform = ["-arch", "arm64", "-platform_version", "macos", "11.0", "11.0", "-dylib"]
    library = folder / "model.dylib"
    subprocess.run([_LINKER, *platform, "-o", library, folder / "model.o", folder / "copies.o"], check=True)
    data, at, segment, address = library.read_bytes(), 32, b"", -1
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        command, length = struct.unpack_from("<II", data, at)
        if command == 0x19 and data[at + 8 : at + 14] == b"__TEXT":  # LC_SEGMENT_64
            start, _, offset, size = struct.unpack_from("<QQQQ", data, at + 24)
            assert start == 0
            segment = data[offset : offset + size]
        elif command == 0x2:  # LC_SYMTAB
            symbols, count, strings, _ = struct.unpack_from("<IIII", data, at + 8)
            for k in range(count):
                name, _, _, _, value = struct.unpack_from("<IBBHQ", data, symbols + 16 * k)
                if data[strings + name :].startswith(b"_model_run\0"):
                    address = value
        at += length
    assert segment and address >= 0
    return segment, address


@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64-linux", "aarch64-linux+i8mm", "x86-64-v3"])
def test_linked_into_a_program(target: str, tmp_path: Path) -> None:
    """By the system's compiler, as an application would, and run under QEMU's user mode."""
    require_tools(*tools(target))
    path = compile_network("ds_cnn", tmp_path)
    about, _ = export_object(path, tmp_path, target)
    (x,) = random_inputs(about, 1)
    execution = run_in_user_mode(target, tmp_path, x)
    assert execution.output == expected_output(path, x).tobytes()
    assert about.macs / 64 < execution.instructions < 2 * about.macs

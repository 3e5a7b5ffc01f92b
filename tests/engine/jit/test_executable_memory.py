"""Code runs from pages that nobody can write to, on every system; where that is forbidden, the error has a remedy."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path
from typing import Any

import pytest

from edgewright.engine.jit import build, elf
from edgewright.engine.jit.elf import CodegenError, CodeImage, Library, link
from edgewright.engine.jit.executable_memory import WindowsPages, map_code
from edgewright.runtime import Runtime
from tests.support import golden

CODE = bytes(range(256)) * 20


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_pages_are_private_and_never_writable_and_executable() -> None:
    address, owner = map_code(CODE)
    assert ctypes.string_at(address, len(CODE)) == CODE
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    (modes,) = [w[1] for w in lines if int(w[0].split("-")[0], 16) <= address < int(w[0].split("-")[1], 16)]
    assert modes == "r-xp"
    assert owner is not None


def test_a_system_that_forbids_it_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(code: bytes) -> tuple[int, Any]:
        raise OSError(13, "mprotect")

    monkeypatch.setattr(elf, "map_code", refuse)
    with pytest.raises(CodegenError, match=r"(?s)machine code: must be allowed to run.*EDGEWRIGHT_ENGINE=reference"):
        Library(CodeImage(CODE, {}))


class Function:
    """A function of the stand-in for kernel32."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name, self.restype = kernel, name, None

    def __call__(self, *arguments: Any) -> Any:
        values = [getattr(a, "value", a) for a in arguments]
        if self.name in self.kernel.failing:
            return 0
        self.kernel.calls.append((self.name, *values))
        return self.kernel.address if self.name == "VirtualAlloc" else 1


class Kernel:
    """Stands in for Windows' kernel32: one allocation."""

    def __init__(self, *failing: str) -> None:
        self.failing, self.calls, self.functions = failing, [], {}
        self.memory = ctypes.create_string_buffer(len(CODE))
        self.address = ctypes.addressof(self.memory)

    def __getattr__(self, name: str) -> Function:
        return self.functions.setdefault(name, Function(self, name))


def test_pages_of_windows() -> None:
    kernel = Kernel()
    pages = WindowsPages(CODE, kernel)
    assert pages.address == kernel.address
    assert kernel.memory.raw == CODE
    assert kernel.VirtualAlloc.restype is ctypes.c_void_p
    names = [call[0] for call in kernel.calls]
    assert names == ["VirtualAlloc", "VirtualProtect", "GetCurrentProcess", "FlushInstructionCache"]
    assert kernel.calls[0] == ("VirtualAlloc", None, len(CODE), 0x3000, 0x04)
    assert kernel.calls[1][:4] == ("VirtualProtect", kernel.address, len(CODE), 0x20)
    del pages
    gc.collect()
    assert kernel.calls[-1] == ("VirtualFree", kernel.address, 0, 0x8000)


@pytest.mark.parametrize("function", ["VirtualAlloc", "VirtualProtect"])
def test_what_windows_refuses_is_an_error_and_leaves_no_pages(function: str) -> None:
    kernel = Kernel(function)
    with pytest.raises(OSError, match=function):
        WindowsPages(CODE, kernel)
    gc.collect()
    assert ("VirtualFree" in [call[0] for call in kernel.calls]) == (function == "VirtualProtect")


@pytest.mark.parametrize("triple", ["x86_64-pc-windows-msvc-elf", "x86_64-unknown-unknown-elf"])
def test_kernels_of_a_program_link_for_other_systems(
    triple: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their calling conventions differ, and code for Windows may call functions that are not there."""
    if build.target_triple().partition("-")[0] != "x86_64":
        pytest.skip("needs LLVM for x86-64")
    sources: list[build.Source] = []
    original = build.build_kernels

    def build_kernels(kernels: Any, *arguments: Any, **options: Any) -> list[bytes]:
        sources.extend(kernels.values())
        return original(kernels, *arguments, **options)

    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr("edgewright.engine.jit.driver.build_kernels", build_kernels)
    Runtime.get().load_program(golden.path("linear_fp32_xnnpack").read_bytes()).load_method("forward")
    texts = [source if isinstance(source, str) else source() for source in sources]
    assert texts
    monkeypatch.setattr(build, "target_triple", lambda: triple)
    image = link(build.compile_all(texts, "x86-64-v3", ""))
    assert len(image.code) > 100 * len(texts)

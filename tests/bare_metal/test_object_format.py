"""Object files as linkers and compilers see them: symbols, sections, relocations, and the header."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

from edgewright.bare_metal.object_export import build_object, export_object
from edgewright.bare_metal.object_header import object_header
from edgewright.engine.cross_target import CROSS_TARGETS
from tests.bare_metal import tiny_networks
from tests.bare_metal.boards import require_tools
from tests.bare_metal.programs import U55, WARNINGS, compile_network, save
from tests.bare_metal.tiny_networks import FloatingPoint

EXTERNAL = {"memcpy", "memset"}
_RELATIVE = {"R_ARM_PREL31", "R_ARM_REL32", "R_ARM_THM_CALL", "R_ARM_THM_JUMP24", "R_ARM_NONE", "R_AARCH64_CALL26",
             "R_AARCH64_ADR_PREL_PG_HI21", "R_AARCH64_ADD_ABS_LO12_NC", "R_AARCH64_JUMP26", "R_AARCH64_PREL32",
             "R_X86_64_PC32", "R_X86_64_PLT32"}  # fmt: skip


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55", "aarch64-linux", "x86-64-v4"])
def test_code_is_position_independent_without_variables(target: str, tmp_path: Path) -> None:
    require_tools("readelf")
    layers = torch.nn.Linear(8, 40), torch.nn.Sigmoid(), torch.nn.Linear(40, 8)
    path = save(torch.nn.Sequential(*layers), (torch.ones(3, 8),), tmp_path / "net.pte")
    about, _ = export_object(path, tmp_path, target)
    shown = [subprocess.run(["readelf", "-W", option, tmp_path / "model.o"], check=True, capture_output=True, text=True)
             for option in ("-r", "-S", "-s")]  # fmt: skip
    relocations, sections, symbols = (each.stdout for each in shown)
    assert set(re.findall(r"\bR_[A-Z0-9_]+", relocations)) <= _RELATIVE
    flags = {m[1]: m[2] for m in re.finditer(r"\] (\S+) +[A-Z]\w+ +\w+ \w+ \w+ \w+ +([A-Z]*)", sections)}
    assert {".text", ".rodata.model_weights0"} <= set(flags)
    assert not [name for name, text in flags.items() if "W" in text]
    assert re.findall(r"GLOBAL +DEFAULT +\d+ (\S+)", symbols) == ["model_run"]
    assert set(about.object.external) <= EXTERNAL


@pytest.mark.parametrize(("target", "platform"), [("aarch64-apple", "macos"), ("aarch64-ios+i8mm", "ios")])
def test_mach_o_for_other_readers(target: str, platform: str, tmp_path: Path) -> None:
    """LLVM's tools see one global function, no variables, and relative relocations only."""
    require_tools("llvm-objdump", "llvm-readobj")
    layers = torch.nn.Linear(8, 40), torch.nn.Sigmoid(), torch.nn.Linear(40, 8)
    path = save(torch.nn.Sequential(*layers), (torch.ones(3, 8),), tmp_path / "net.pte")
    about, _ = export_object(path, tmp_path, target)
    shown = [subprocess.run([*command, tmp_path / "model.o"], check=True, capture_output=True, text=True).stdout
             for command in (["llvm-objdump", "-h"], ["llvm-objdump", "-t"], ["llvm-objdump", "-r"],
                             ["llvm-readobj", "--file-headers", "--macho-version-min"])]  # fmt: skip
    sections, symbols, relocations, header = shown
    sizes = {m[1]: int(m[2], 16) for m in re.finditer(r"^ +\d+ (\S+) +([0-9a-f]{8}) ", sections, re.MULTILINE)}
    assert set(sizes) <= {"__text", "__const", "__literal4", "__literal8", "__literal16"}
    assert about.object.code_size == sizes.pop("__text") and about.object.rodata_size == sum(sizes.values())
    assert re.findall(r" g .* (\S+)$", symbols, re.MULTILINE) == ["_model_run"]
    undefined = set(re.findall(r"\*UND\* _(\S+)$", symbols, re.MULTILINE))
    assert undefined == set(about.object.external) <= EXTERNAL
    relative = {"ARM64_RELOC_BRANCH26", "ARM64_RELOC_PAGE21", "ARM64_RELOC_PAGEOFF12"}
    assert set(re.findall(r"ARM64_RELOC_\w+", relocations)) <= relative
    assert re.search(r"CpuType: Arm64\b", header) and re.search(rf"Platform: {platform}\b", header)


@pytest.mark.parametrize("prefix", ["", "arm-none-eabi-"])
@pytest.mark.parametrize("compiler", [("gcc", "-x", "c", "-std=c99"), ("g++", "-x", "c++", "-std=c++17")])
def test_header_compiles_without_warnings(prefix: str, compiler: tuple[str, ...], tmp_path: Path) -> None:
    require_tools(prefix + compiler[0])
    export_object(U55, tmp_path, "cortex-m55")
    subprocess.run([prefix + compiler[0], *compiler[1:], *WARNINGS, "-fsyntax-only", tmp_path / "model.h"], check=True)


def undefined_symbols(data: bytes, folder: Path) -> set[str]:
    """As LLVM's tool lists them."""
    file = folder / "symbols.o"
    file.write_bytes(data)
    listed = subprocess.run(["llvm-nm", "-u", "-j", file], check=True, capture_output=True, text=True).stdout
    apple = data[:4] != b"\x7fELF"
    return {name.removeprefix("_") if apple else name for name in listed.split()}


@pytest.mark.parametrize("name", ["ds_cnn", "lstm"])
def test_code_for_cortex_m85_has_instructions_of_cortex_m55_only(name: str, tmp_path: Path) -> None:
    """QEMU has no Cortex-M85, so its Cortex-M55 runs this code in other tests. LLVM's disassembler, told that the
    processor is one with fewer instructions, marks what it does not have."""
    require_tools("llvm-objdump", "llvm-objcopy")
    export_object(compile_network(name, tmp_path), tmp_path, "cortex-m85")
    code = tmp_path / "code.o"  # without what the file says about its processor
    subprocess.run(["llvm-objcopy", "--remove-section=.ARM.attributes", tmp_path / "model.o", code], check=True)

    def unknown(processor: str, architecture: str) -> int:
        command = ["llvm-objdump", "-d", f"--mcpu={processor}", f"--triple=thumb{architecture}-none-eabi", code]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return shown.count("<unknown>")

    assert unknown("cortex-m55", "v8.1m.main") == 0
    assert unknown("cortex-m33", "v8m.main") > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tiny_networks.NETWORKS))
def test_networks_call_nothing_but_copies(name: str, tmp_path: Path) -> None:
    """For every processor, the symbols that a linker must find are those of two functions."""
    require_tools("llvm-nm")
    path = compile_network(name, tmp_path)
    for target in CROSS_TARGETS:
        assert undefined_symbols(build_object(path, target).object.data, tmp_path) <= EXTERNAL


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "aarch64-linux", "x86-64-v3"])
def test_float64_is_computed_in_the_object(target: str, tmp_path: Path) -> None:
    require_tools("llvm-nm")
    x = (torch.randn(3, 16, generator=torch.Generator().manual_seed(0)),)
    path = save(FloatingPoint(), x, tmp_path / "net.pte", quantize="dynamic")
    about = build_object(path, target)
    needed = undefined_symbols(about.object.data, tmp_path)
    assert needed == set(about.object.external) <= EXTERNAL
    assert f"needs of C's library: {', '.join(sorted(needed)) or 'none'}. */" in object_header(about)

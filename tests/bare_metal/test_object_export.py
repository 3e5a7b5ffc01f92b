"""Object files without a runtime: run natively and on QEMU's boards, bit for bit as the Python runtime."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewright
from edgewright.bare_metal.object_export import build_object, export_object
from edgewright.bare_metal.object_header import ObjectDescription
from edgewright.engine.isa import host_isa
from edgewright.errors import LimitError, UnsupportedOperatorError, UsageError
from edgewright.runtime import Runtime
from tests.bare_metal import tiny_networks
from tests.bare_metal.boards import BOARDS, GCC, QEMU, require_tools, run_on_board
from tests.cli.cli import GOLDEN, Cli

U55 = GOLDEN / "ethos_u" / "ethos_u55_128.pte"
_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wpedantic")


def compile_network(name: str, folder: Path) -> Path:
    network, x = tiny_networks.make(name)
    options: dict[str, Any] = {}
    if name != "lstm":
        generator = torch.Generator().manual_seed(1)
        data = [(torch.randn(x.shape, generator=generator),) for _ in range(4)]
        options = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
    result = edgewright.compile(network, (x,), "xnnpack", check=False, evaluate=0, quiet=True, **options)
    result.save(folder / f"{name}.pte")
    return folder / f"{name}.pte"


def random_inputs(about: ObjectDescription, count: int) -> list[np.ndarray]:
    rng, port = np.random.default_rng(5), about.inputs[0]
    if port.type == "int8":
        return [rng.integers(-128, 128, port.shape).astype(np.int8) for _ in range(count)]
    return [rng.standard_normal(port.shape).astype(np.float32) for _ in range(count)]


def expected(path: Path, x: np.ndarray) -> np.ndarray:
    (y,) = Runtime(threads=1).load_program(path).load_method("forward").execute([x])
    return np.asarray(y)


class NativeModel:
    """``model.o`` as a shared library of this process."""

    def __init__(self, folder: Path, about: ObjectDescription, *sources: Path) -> None:
        library = folder / "model.so"
        command = ["gcc", "-shared", "-fPIC", "-Wl,--no-undefined", f"-I{folder}", "-o", library, *sources]
        subprocess.run([*command, folder / "model.o"], check=True)
        self.function, self.about = ctypes.CDLL(str(library)).model_run, about
        self.memory = np.full(about.object.arena_size + 128, 0x5A, np.uint8)
        self.start = -self.memory.ctypes.data % 64

    def run(self, inputs: list[Any], outputs: list[np.ndarray], offset: int = 0) -> int:
        pointers = [(ctypes.c_void_p * len(arrays))(*(None if a is None else a.ctypes.data for a in arrays))
                    for arrays in (inputs, outputs)]  # fmt: skip
        arena = ctypes.c_void_p(self.memory.ctypes.data + self.start + offset)
        result = int(self.function(*pointers, arena))
        assert (self.memory[self.start + self.about.object.arena_size :] == 0x5A).all() or offset
        return result


def native_target() -> str:
    isa = host_isa()
    if isa.arch != "x86_64" or isa.lanes < 8:
        pytest.skip("needs an x86-64 processor with AVX2")
    require_tools("gcc")
    return "x86-64-v3"


def check_natively(name: str, target: str, folder: Path) -> None:
    path = compile_network(name, folder)
    about, _ = export_object(path, folder, target)
    assert not set(about.object.external) - {"memcpy", "memmove", "memset"}
    model = NativeModel(folder, about)
    for x in random_inputs(about, 5):
        y = expected(path, x)
        out = np.full_like(y, 77)
        assert model.run([x], [out]) == 0
        np.testing.assert_array_equal(out.view(np.uint8), y.view(np.uint8))
    assert model.run([None], [out]) == 1
    assert model.run([x], [out], offset=1) == 2


def test_quantized_network_natively(tmp_path: Path) -> None:
    check_natively("ds_cnn", native_target(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tiny_networks.NETWORKS))
def test_networks_natively(name: str, tmp_path: Path) -> None:
    check_natively(name, native_target(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tiny_networks.NETWORKS))
@pytest.mark.parametrize("target", BOARDS)
def test_networks_on_boards(target: str, name: str, tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    path = compile_network(name, tmp_path)
    about, _ = export_object(path, tmp_path, target)
    for x in random_inputs(about, 3):
        y = expected(path, x)
        execution = run_on_board(target, tmp_path, x)
        assert execution.output == y.tobytes()
        assert 0 < execution.stack < 8192
        assert about.macs < execution.instructions < 20 * about.macs


def test_npu_commands_are_passed_to_the_application(tmp_path: Path) -> None:
    target = native_target()
    about, _ = export_object(U55, tmp_path, target)
    assert about.npu_calls == 1
    hook = tmp_path / "hook.c"
    hook.write_text(
        '#include "model.h"\n#include <string.h>\n'
        "size_t seen[3]; unsigned char first[4]; int answer;\n"
        "int model_npu_invoke(const void *c, size_t cn, const void *w, size_t wn, void *s, size_t sn) {\n"
        "  seen[0] = cn; seen[1] = wn; seen[2] = sn; memcpy(first, c, 4); (void)w; (void)s; return answer; }\n"
    )
    subprocess.run(["gcc", "-std=c99", *_WARNINGS, "-c", hook, "-o", tmp_path / "hook.o"], check=True)
    model = NativeModel(tmp_path, about, hook)
    library = ctypes.CDLL(str(tmp_path / "model.so"))
    inputs = [np.zeros(port.bytes, np.uint8) for port in about.inputs]
    outputs = [np.zeros(port.bytes, np.uint8) for port in about.outputs]
    assert model.run(inputs, outputs) == 0
    assert bytes((ctypes.c_ubyte * 4).in_dll(library, "first")) == b"COP1"
    assert list((ctypes.c_size_t * 3).in_dll(library, "seen"))[2] == 3568
    ctypes.c_int.in_dll(library, "answer").value = 1
    assert model.run(inputs, outputs) == 4


@pytest.mark.parametrize("compiler", [("gcc", "-x", "c", "-std=c99"), ("g++", "-x", "c++", "-std=c++17")])
def test_header_compiles_without_warnings(compiler: tuple[str, ...], tmp_path: Path) -> None:
    require_tools(compiler[0])
    export_object(U55, tmp_path, "cortex-m55")
    subprocess.run([*compiler, *_WARNINGS, "-fsyntax-only", tmp_path / "model.h"], check=True)


def save(module: torch.nn.Module, inputs: tuple[Any, ...], path: Path, target: str = "xnnpack", **options: Any) -> Path:
    edgewright.compile(module, inputs, target, check=False, evaluate=0, quiet=True, **options).save(path)
    return path


def test_rejections_name_the_rule(tmp_path: Path) -> None:
    x = torch.ones(1, 8)
    path = save(torch.nn.Linear(8, 64), (x,), tmp_path / "linear.pte")
    with pytest.raises(UsageError, match="cortex-m55"):
        build_object(path, "cortex-m56")
    with pytest.raises(LimitError, match="--flash"):
        build_object(path, "cortex-m4", flash=1000)
    with pytest.raises(LimitError, match="--sram"):
        build_object(path, "cortex-m4", sram=100)
    sizes = {"x": {0: torch.export.Dim("n", max=4)}}

    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    dynamic = save(Double(), (torch.ones(2, 8),), tmp_path / "dynamic.pte", dynamic_shapes=sizes)
    with pytest.raises((UsageError, UnsupportedOperatorError), match="fixed shape"):
        build_object(dynamic, "cortex-m4")


def test_delegates_without_code_are_rejected(tmp_path: Path) -> None:
    path = save(torch.nn.Linear(8, 8), (torch.ones(1, 8),), tmp_path / "qnn.pte", "sm8550", simulate=True)
    with pytest.raises(UsageError, match="QnnBackend"):
        build_object(path, "cortex-m4")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(capsys)
    done = cli("export", U55, "--object", tmp_path, "--cpu", "cortex-m55", "--name", "net")
    assert done.code == 0, done.err
    assert (tmp_path / "net.o").read_bytes()[:4] == b"\x7fELF" and "int net_run(" in (tmp_path / "net.h").read_text()
    for options in (("--object", tmp_path), ("--c", tmp_path, "--cpu", "cortex-m4"), ()):
        assert cli("export", U55, *options).code == 2

"""Object files without a runtime: run natively and on QEMU's boards, bit for bit as the Python runtime."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewright
from edgewright.backends.ethos_u import EthosUCompileSpec, npu
from edgewright.bare_metal.object_export import build_object, export_object
from edgewright.bare_metal.object_header import ObjectDescription, object_header
from edgewright.engine.isa import host_isa
from edgewright.engine.object_file import RUNTIME_LIBRARY
from edgewright.errors import LimitError, UnsupportedOperatorError, UsageError
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.bare_metal import tiny_networks
from tests.bare_metal.boards import (
    BOARDS,
    FOLDER,
    GCC,
    QEMU,
    boot,
    count_instructions,
    link_program,
    require_tools,
    run_on_board,
    trace_functions,
)
from tests.bare_metal.native import GuardedMemory, NativeModel, stored_bytes
from tests.bare_metal.simulated_npu import simulated_npu
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


def expected_output(path: Path, x: np.ndarray) -> np.ndarray:
    (y,) = Runtime(threads=1).load_program(path).load_method("forward").execute([x])
    return np.asarray(y)


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
    for x in random_inputs(about, 3):
        (y,) = model.run([x])
        np.testing.assert_array_equal(y, *stored_bytes([expected_output(path, x)], about.outputs))


def test_bad_arguments_are_reported(tmp_path: Path) -> None:
    path = save(torch.nn.Linear(8, 4), (torch.ones(1, 8),), tmp_path / "linear.pte")
    about, _ = export_object(path, tmp_path, native_target())
    model = NativeModel(tmp_path, about)
    arena, x, y = (GuardedMemory(n, 64, False).address for n in (about.object.arena_size, 32, 16))
    assert model.call([x], [y], arena) == 0
    assert model.call([None], [y], arena) == model.call([x], [None], arena) == model.call([x], [y], 0) == 1
    assert model.call([x], [y], arena + 1) == 2


def test_quantized_network_natively(tmp_path: Path) -> None:
    check_natively("ds_cnn", native_target(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tiny_networks.NETWORKS))
def test_networks_natively(name: str, tmp_path: Path) -> None:
    check_natively(name, native_target(), tmp_path)


# Instructions per product; with less than two products for each operand that is loaded and extended it is more.
_MOST_PER_MAC = {("cortex-m4", "ds_cnn"): 1.95, ("cortex-m4", "cifar_net"): 1.53, ("cortex-m4", "mobilenet_v2"): 2.55}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tiny_networks.NETWORKS))
@pytest.mark.parametrize("target", BOARDS)
def test_networks_on_boards(target: str, name: str, tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    path = compile_network(name, tmp_path)
    about, _ = export_object(path, tmp_path, target)
    inputs = random_inputs(about, 4)
    for x, execution in zip(inputs, run_on_board(target, tmp_path, inputs), strict=True):
        assert execution.output == expected_output(path, x).tobytes()
        assert 0 < execution.stack < 8192
        # At most 16 products an instruction, of Helium's VMLADAV on int8.
        assert about.macs / 16 < execution.instructions < _MOST_PER_MAC.get((target, name), 20) * about.macs


class _Repeated(torch.nn.Module):
    """A layer that is applied again and again, as in every step of a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(self.layer(x))
        return x


@pytest.mark.parametrize("target", ["cortex-m55", "aarch64-linux", "x86-64-v3"])
def test_weights_of_a_layer_that_is_applied_often_are_stored_once(target: str, tmp_path: Path) -> None:
    path = save(_Repeated(), (torch.ones(1, 64),), tmp_path / "net.pte")
    assert build_object(path, target).object.rodata_size < 1.2 * 64 * 64 * 4


class _Recurrent(torch.nn.Module):
    """Steps whose operators have the same shapes, each with its own scales once they are quantized."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = torch.nn.LSTM(6, 12, batch_first=True), torch.nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.cell(x)[0][:, -1])
        return y


@pytest.mark.slow
def test_steps_of_a_quantized_recurrent_network_share_code(tmp_path: Path) -> None:
    """Twice as many steps take a call each, but no kernels, and compute what the runtime does."""
    torch.manual_seed(0)
    network, sizes = _Recurrent().eval(), []
    for steps in (4, 8):
        folder = tmp_path / str(steps)
        folder.mkdir()
        data = [(torch.randn(1, steps, 6) * scale,) for scale in (0.5, 1.0, 2.0)]
        options: dict[str, Any] = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
        path = save(network, data[0], folder / "net.pte", **options)
        sizes.append(build_object(path, "cortex-m4").object.code_size)
        about, _ = export_object(path, folder, native_target())
        model = NativeModel(folder, about)
        for x in random_inputs(about, 3):
            (y,) = model.run([x])
            np.testing.assert_array_equal(y, *stored_bytes([expected_output(path, x)], about.outputs))
    assert sizes[1] < 1.35 * sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize("target", BOARDS)
def test_a_quantized_recurrent_network_on_boards(target: str, tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    torch.manual_seed(0)
    data = [(torch.randn(1, 8, 6) * scale,) for scale in (0.5, 1.0, 2.0)]
    options: dict[str, Any] = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
    path = save(_Recurrent().eval(), data[0], tmp_path / "net.pte", **options)
    about, _ = export_object(path, tmp_path, target)
    inputs = random_inputs(about, 3)
    for x, execution in zip(inputs, run_on_board(target, tmp_path, inputs), strict=True):
        assert execution.output == expected_output(path, x).tobytes()


def test_npu_commands_are_passed_to_the_application(tmp_path: Path) -> None:
    target = native_target()
    about, _ = export_object(U55, tmp_path, target)
    assert about.npu.calls == 1
    hook = tmp_path / "hook.c"
    hook.write_text(
        '#include "model.h"\n#include <string.h>\n'
        "size_t seen[3]; unsigned char first[4]; int answer;\n"
        "int model_npu_invoke(const void *c, size_t cn, const void *w, size_t wn, void *s, size_t sn) {\n"
        "  seen[0] = cn; seen[1] = wn; seen[2] = sn; memcpy(first, c, 4); (void)w; (void)s; return answer; }\n"
    )
    subprocess.run(["gcc", "-std=c99", *_WARNINGS, "-c", hook, "-o", tmp_path / "hook.o"], check=True)
    model = NativeModel(tmp_path, about, hook)
    library = model.library
    sides = [[GuardedMemory(port.bytes, 4, True) for port in ports] for ports in (about.inputs, about.outputs)]
    addresses = [[memory.address for memory in side] for side in sides]
    arena = GuardedMemory(about.object.arena_size, 16, True).address
    assert model.call(*addresses, arena) == 0
    assert bytes((ctypes.c_ubyte * 4).in_dll(library, "first")) == b"COP1"
    assert list((ctypes.c_size_t * 3).in_dll(library, "seen"))[2] == 3568
    ctypes.c_int.in_dll(library, "answer").value = 1
    assert model.call(*addresses, arena) == 4


def test_npu_in_the_loop(tmp_path: Path) -> None:
    """The object's CPU part and the simulated NPU together compute what the runtime does."""
    about, _ = export_object(U55, tmp_path, native_target())
    signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p, ctypes.c_size_t] * 3)

    def invoke(commands: int, n: int, weights: int, m: int, scratch: int, size: int) -> int:
        stream = npu.decode(ctypes.string_at(commands, n))
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(scratch))
        npu.run(stream, weights=ctypes.string_at(weights, m), scratch=memory, fast_scratch=np.zeros(1 << 16, np.uint8))
        return 0

    hook = tmp_path / "hook.c"
    hook.write_text(
        '#include "model.h"\n'
        "int (*npu)(const void *, size_t, const void *, size_t, void *, size_t);\n"
        "int model_npu_invoke(const void *c, size_t cn, const void *w, size_t wn, void *s, size_t sn) {\n"
        "  return npu(c, cn, w, wn, s, sn); }\n"
    )
    model, callback = NativeModel(tmp_path, about, hook), signature(invoke)
    ctypes.c_void_p.in_dll(model.library, "npu").value = ctypes.cast(callback, ctypes.c_void_p).value
    method = Runtime(threads=1).load_program(U55).load_method("forward")
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal(port.shape).astype(port.type) for port in about.inputs]
    wanted = stored_bytes(method.execute(inputs), about.outputs)
    for found, expected in zip(model.run(inputs), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


class _TwoStreams(torch.nn.Module):
    """Convolutions for the NPU, and between them an operator of the processor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(torch.sort(self.first(x), -1)[0])
        return y


@pytest.mark.parametrize(("target", "mode"), [("ethos-u55-128", "Shared_Sram"), ("ethos-u65-256", "Dedicated_Sram")])
def test_a_board_with_a_simulated_npu(target: str, mode: str, tmp_path: Path) -> None:
    """A Cortex-M55 in QEMU converts the input, calls its NPU, computes between two command streams, and converts."""
    require_tools(GCC, QEMU)
    torch.manual_seed(0)
    model, data = _TwoStreams(), [(torch.randn(1, 3, 10, 12),) for _ in range(4)]
    spec = EthosUCompileSpec(target, memory_mode=mode)
    path = save(model, data[0], tmp_path / "net.pte", spec, quantize="int8", calibration=data)
    about, _ = export_object(path, tmp_path, "cortex-m55")
    assert about.npu.calls == 2
    inputs = random_inputs(about, 2)
    with simulated_npu(tmp_path, calls=2 * len(inputs)) as linked:
        executions = run_on_board("cortex-m55", tmp_path, inputs, linked)
    for x, execution in zip(inputs, executions, strict=True):
        assert execution.output == expected_output(path, x).tobytes()


class Moves(torch.nn.Module):
    """Starts with data movement, and returns a view of what it computes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x.transpose(1, 2)[:, 1:].contiguous())
        return y.reshape(-1), x.reshape(4, 6) * 2


def test_data_movement_and_views(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 4)
    path = tmp_path / "moves.pte"
    path.write_bytes(to_edge_transform_and_lower(torch.export.export(Moves(), (x,))).to_executorch().buffer)
    about, _ = export_object(path, tmp_path, native_target())
    wanted = stored_bytes(Moves()(x), about.outputs)
    for found, array in zip(NativeModel(tmp_path, about).run([x.numpy()]), wanted, strict=True):
        np.testing.assert_array_equal(found, array)


_MAIN = """
#include "first.h"
#include "second.h"
alignas(64) static unsigned char arena[FIRST_ARENA_SIZE + SECOND_ARENA_SIZE + 1];
int main() {
  float x[FIRST_INPUT_0_SIZE / 4], y[3][FIRST_OUTPUT_0_SIZE / 4];
  for (int i = 0; i < 8; i++) x[i] = 0.25f * static_cast<float>(i);
  const first_inputs in = {x};
  const second_inputs in2 = {x};
  first_outputs out = {y[0]}, again = {y[2]};
  second_outputs out2 = {y[1]};
  if (first_run(&in, &out, arena) || second_run(&in2, &out2, arena) || first_run(&in, &again, arena)) return 1;
  for (int i = 0; i < 4; i++)
    if (y[0][i] != y[2][i] || y[1][i] != 2 * y[0][i]) return 2;
  return 0;
}
"""


def test_several_models_in_a_program(tmp_path: Path) -> None:
    """Two models of the same kernels in one arena, from C++; the second has twice the weights of the first."""
    layer = torch.nn.Linear(8, 4)
    for name in ("first", "second"):
        path = save(layer, (torch.ones(1, 8),), tmp_path / f"{name}.pte")
        export_object(path, tmp_path, native_target(), name=name)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter *= 2
    (tmp_path / "main.cpp").write_text(_MAIN)
    files = [tmp_path / name for name in ("main.cpp", "first.o", "second.o")]
    subprocess.run(["g++", "-std=c++17", *_WARNINGS, *files, "-o", tmp_path / "main"], check=True)
    subprocess.run([tmp_path / "main"], check=True)


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
    assert set(about.object.external) <= {"memcpy", "memmove", "memset"}


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
    assert undefined == set(about.object.external) <= {"memcpy", "memmove", "memset", "bzero"}
    relative = {"ARM64_RELOC_BRANCH26", "ARM64_RELOC_PAGE21", "ARM64_RELOC_PAGEOFF12"}
    assert set(re.findall(r"ARM64_RELOC_\w+", relocations)) <= relative
    assert re.search(r"CpuType: Arm64\b", header) and re.search(rf"Platform: {platform}\b", header)


@pytest.mark.parametrize("prefix", ["", "arm-none-eabi-"])
@pytest.mark.parametrize("compiler", [("gcc", "-x", "c", "-std=c99"), ("g++", "-x", "c++", "-std=c++17")])
def test_header_compiles_without_warnings(prefix: str, compiler: tuple[str, ...], tmp_path: Path) -> None:
    require_tools(prefix + compiler[0])
    export_object(U55, tmp_path, "cortex-m55")
    subprocess.run([prefix + compiler[0], *compiler[1:], *_WARNINGS, "-fsyntax-only", tmp_path / "model.h"], check=True)


def save(module: torch.nn.Module, inputs: tuple[Any, ...], path: Path, target: Any = "xnnpack", **options: Any) -> Path:
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


class _Nonzero(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x > 0)


def test_a_size_that_depends_on_values_is_rejected_with_the_operator(tmp_path: Path) -> None:
    path = save(torch.nn.Sequential(OrderedDict(front=torch.nn.Linear(4, 4), found=_Nonzero())), (torch.ones(2, 4),),
                tmp_path / "nonzero.pte")  # fmt: skip
    with pytest.raises(UnsupportedOperatorError, match=r"nonzero\.out in layer found: has a result whose size depends"):
        build_object(path, "cortex-m4")


def test_instance_norm(tmp_path: Path) -> None:
    """Normalization by statistics of the input, as a part of an object file."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.InstanceNorm2d(6, affine=True), torch.nn.PReLU(6))
    torch.nn.init.normal_(network[1].weight)
    x = torch.randn(1, 3, 9, 11)
    about, _ = export_object(save(network, (x,), tmp_path / "net.pte"), tmp_path, native_target())
    (found,) = NativeModel(tmp_path, about).run([x.numpy()])
    wanted = network(x).detach().numpy()
    np.testing.assert_allclose(found.view(np.float32).reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)


class _Expm1(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.expm1(self.scale(x))


def test_what_a_processor_cannot_compute_is_rejected_with_its_layer(tmp_path: Path) -> None:
    """A product and sum of float64 rounded once, which no run-time library of a compiler has."""
    path = save(_Expm1(), (torch.ones(1, 4),), tmp_path / "expm1.pte")
    with pytest.raises(UnsupportedOperatorError, match=r"no instructions for fma; got linear\+expm1 in layer scale\n"):
        build_object(path, "cortex-m4")
    assert build_object(path, "cortex-m55").object.code_size


def test_what_does_not_fit_names_the_layer_that_takes_most(tmp_path: Path) -> None:
    """Of flash, the layer with most weights; of memory, the one with the largest tensors."""
    layers = {"wide": torch.nn.Linear(8, 900), "deep": torch.nn.Linear(900, 40), "last": torch.nn.Linear(40, 4)}
    path = save(torch.nn.Sequential(OrderedDict(layers)), (torch.ones(5, 8),), tmp_path / "layers.pte")
    with pytest.raises(LimitError, match=r"Largest layer: deep \(14\d KiB\)"):
        build_object(path, "cortex-m4", flash=100_000)
    with pytest.raises(LimitError, match=r"Largest layer: (wide|deep) \(1\d\.\d KiB\)"):
        build_object(path, "cortex-m4", sram=10_000)


def _npu_program(folder: Path, **options: Any) -> Path:
    torch.manual_seed(0)
    layers = {"stem": torch.nn.Conv2d(3, 16, 3), "body": torch.nn.Conv2d(16, 48, 3), "top": torch.nn.Conv2d(48, 4, 1)}
    data = [(torch.randn(1, 3, 20, 20),)]
    target = EthosUCompileSpec(**options)
    save(torch.nn.Sequential(OrderedDict(layers)), data[0], folder / "net.pte", target, quantize="int8",
         calibration=data, integer_io="int8")  # fmt: skip
    return folder / "net.pte"


def test_limits_count_what_the_npu_takes(tmp_path: Path) -> None:
    """The layers are the NPU's, too, and the remedies are those of integers on an NPU."""
    path = _npu_program(tmp_path, target="ethos-u55-128")
    with pytest.raises(LimitError, match=r"Prune or cluster .* Largest layer: body \([78]\.\d+ KiB\)"):
        build_object(path, "cortex-m55", flash=4096)
    with pytest.raises(LimitError, match=r"--optimise size.* Largest layer: (body|top) \("):
        build_object(path, "cortex-m55", sram=4096)


def test_memory_modes_of_an_npu(tmp_path: Path) -> None:
    """Fast memory beside the arena, an arena in DRAM, and constants in SRAM are in the header and in the limits."""
    path = _npu_program(tmp_path, target="ethos-u65-256", memory_mode="Dedicated_Sram_384KB")
    about = build_object(path, "cortex-m55")
    assert about.npu.scratch_in_dram and about.npu.fast_scratch_exact and about.npu.fast_scratch > 10_000
    assert f"MODEL_NPU_FAST_SCRATCH_SIZE {about.npu.fast_scratch}u" in object_header(about)
    needed = about.npu.fast_scratch + sum(port.bytes for port in (*about.inputs, *about.outputs))
    assert build_object(path, "cortex-m55", sram=needed).object == about.object
    with pytest.raises(LimitError, match="the NPU's fast scratch"):
        build_object(path, "cortex-m55", sram=needed - 1)
    about = build_object(_npu_program(tmp_path, target="ethos-u55-128", memory_mode="Sram_Only"), "cortex-m55")
    assert about.npu.constants_in_sram and about.npu.fast_scratch == 0 and "npu_weights" in object_header(about)
    with pytest.raises(LimitError, match="the NPU's commands and weights"):
        build_object(path, "cortex-m55", sram=about.object.arena_size + 4096)


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


_MODULE = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval(), (torch.randn(1, 3, 8, 8),)
def data():
    return [make()[1]]
"""


def test_compile_emits_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "object_net.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cli = Cli(capsys)
    command = ("compile", "object_net:make", "--quantize", "int8", "--calibrate", "object_net:data", "--no-check",
               "--emit", "object")  # fmt: skip
    done = cli(*command, "--target", "cortex-m55")
    assert done.code == 0, done.err
    assert "cortex-m55" in done.out
    assert "xnnpack is the graph that the object file was made of, measured on this machine" in done.out
    assert "int model_run(const model_inputs *" in (tmp_path / "model.h").read_text()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["model.h", "model.o", "object_net.py"]
    # export of the program is the same code
    done = cli(*command, "--target", "cortex-m4", "--target", "cortex-m33", "-o", "net.pte")
    assert done.code == 0, done.err
    for cpu in ("cortex-m4", "cortex-m33"):
        export_object(tmp_path / "net.pte", tmp_path / "again", cpu, name="net")
        assert (tmp_path / "again" / "net.o").read_bytes() == (tmp_path / cpu / "net.o").read_bytes()
    done = cli(*command, "--target", "ethos-u55-128", "--cpu", "cortex-m55", "-o", "net.o", "--io", "int8")
    assert done.code == 0, done.err
    assert "net_npu_invoke" in (tmp_path / "net.h").read_text()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--target", "cortex-m55", "-o", "m.pte"), "--target: is a processor that object files"),
        (("--target", "ethos-u55-128", "--emit", "object"), "--emit object: needs a processor"),
        (("--target", "cortex-m4", "--target", "xnnpack", "--emit", "object"), "must not name processors and other"),
        (("--target", "cortex-m4", "--cpu", "cortex-m7", "--emit", "object"), "--cpu: is for an NPU's --target"),
        (("--target", "sm8550", "--cpu", "cortex-m7", "--emit", "object"), "--emit object: is for processors"),
        (("--target", "cortex-m4", "--emit", "object", "-o", "out"), "-o: must end in .o"),
        (("--backend", "xnnpack", "--emit", "object"), "--emit object: goes with --target"),
        (("--target", "xnnpack", "-o", "m.pte", "--flash", "1M"), "--flash: goes with --emit object"),
        (("--target", "xnnpack"), "-o: must name the output file"),
    ],
)
def test_compile_rejects(options: tuple[str, ...], rule: str, capsys: Any) -> None:
    done = Cli(capsys)("compile", "missing:make", *options)
    assert done.code == 2
    assert rule in done.err


class _Residual(torch.nn.Module):
    """A residual block around an operator that keeps the shape."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.inner(x))


def random_network(seed: int) -> tuple[torch.nn.Module, tuple[int, ...]]:
    """Two convolutions of random sizes, strides, dilations and groups, and what may follow them."""
    rng = np.random.default_rng(seed)
    pick = lambda *values: values[rng.integers(len(values))]  # noqa: E731
    channels, layers = pick(1, 2, 3, 4, 8, 20, 33), list[torch.nn.Module]()
    shape, width = (1, channels, pick(7, 12), pick(9, 14)), channels
    for _ in range(2):
        kernel, dilation, groups = (pick(1, 2, 3), pick(1, 3, 4)), pick(1, 1, 2), pick(1, 1, width)
        out = width * pick(1, 1, 2) if groups > 1 else pick(3, 12, 16, 31, 40)
        layers += [torch.nn.Conv2d(width, out, kernel, pick(1, 2), pick(0, 1), 1, groups), pick(
            torch.nn.ReLU(), torch.nn.ReLU6(), torch.nn.Identity(), torch.nn.Hardtanh(-1.0, 0.5))]  # fmt: skip
        if dilation > 1 and kernel == (3, 3):
            layers[-2].dilation = (2, 2)
        width = out
    if pick(True, False):
        layers.append(_Residual(torch.nn.Conv2d(width, width, 3, 1, 1, groups=pick(1, width))))
    layers += (
        [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 10)] if pick(True, False) else []
    )
    return torch.nn.Sequential(*layers).eval(), shape


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
def test_random_convolutions_on_boards(target: str, seed: int, tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    torch.manual_seed(seed)
    network, shape = random_network(seed)
    data = [(torch.randn(shape),) for _ in range(3)]
    options: dict[str, Any] = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
    path = save(network, data[0], tmp_path / "net.pte", **options)
    about, _ = export_object(path, tmp_path, target)
    inputs = random_inputs(about, 2)
    for x, execution in zip(inputs, run_on_board(target, tmp_path, inputs), strict=True):
        assert execution.output == expected_output(path, x).tobytes()


@pytest.mark.slow
def test_clock_of_the_boards_counts_instructions(tmp_path: Path) -> None:
    """Ticks of -icount against a trace of every instruction between the model's first and last address."""
    require_tools(GCC, QEMU)
    path = compile_network("lstm", tmp_path)
    for target in ("cortex-m4", "cortex-m55"):
        about, _ = export_object(path, tmp_path, target)
        inputs = random_inputs(about, 1)
        (execution,) = run_on_board(target, tmp_path, inputs)
        assert abs(count_instructions(target, tmp_path, inputs) / execution.instructions - 1) < 1e-3


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
def test_ticks_of_known_loops(target: str, tmp_path: Path) -> None:
    """Ticks are proportional to the number of instructions, whatever they are: adds, loads, divisions, floats."""
    require_tools(GCC, QEMU)
    count = 20_000
    image = link_program(target, tmp_path / "clock.elf", FOLDER / "clock.c", f"-DCOUNT={count}")
    *ticks, thrice = (int(line, 16) for line in boot(target, image, "-icount", "shift=0").split())
    assert len(ticks) == 4
    for each in (*ticks[1:], thrice / 3):
        assert abs(each / ticks[0] - 1) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("target", BOARDS)
def test_trace_of_known_loops(target: str, tmp_path: Path) -> None:
    """The trace that the ticks of a model are compared with counts every instruction once."""
    require_tools(GCC, QEMU)
    count = 1000
    image = link_program(target, tmp_path / "clock.elf", FOLDER / "clock.c", f"-DCOUNT={count}")
    names = ("adds_loop", "loads_loop", "divisions_loop", "floats_loop")
    found = [trace_functions(target, image, [name]) for name in names]
    assert found == [2 * 3 + 10 * 4 * count, *[3 + 10 * count] * 3]


def test_compilers_have_the_run_time_library(tmp_path: Path) -> None:
    """All that an object may call on a Cortex-M, beside copies, is in GCC's library."""
    require_tools(GCC)
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    names = [name for name in RUNTIME_LIBRARY if "__aeabi_mem" not in name]
    for target in BOARDS:
        link_program(target, tmp_path / "all.elf", tmp_path / "main.c", *(f"-Wl,-u,{name}" for name in names))

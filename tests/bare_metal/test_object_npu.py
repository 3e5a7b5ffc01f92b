"""Object files beside an Ethos-U: command streams that the application runs, and memory in the header and in limits."""

from __future__ import annotations

import ctypes
import subprocess
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright.backends.ethos_u import EthosUCompileSpec, npu
from edgewright.bare_metal.object_export import build_object, export_object
from edgewright.bare_metal.object_header import object_header
from edgewright.errors import LimitError
from edgewright.runtime import Runtime
from tests.bare_metal.boards import GCC, QEMU, require_tools, run_on_board
from tests.bare_metal.native import GuardedMemory, NativeModel, stored_bytes
from tests.bare_metal.programs import U55, WARNINGS, expected_output, native_target, random_inputs, save
from tests.bare_metal.simulated_npu import simulated_npu


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
    subprocess.run(["gcc", "-std=c99", *WARNINGS, "-c", hook, "-o", tmp_path / "hook.o"], check=True)
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

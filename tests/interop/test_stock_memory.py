"""Pool sizes of ``edgewright.bare_metal`` against the allocators of ExecuTorch's own runtime, to the byte."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewright
from edgewright.bare_metal.export import export_c
from edgewright.bare_metal.runtime_memory import (
    ABIS,
    Struct,
    kernel_temp_bytes,
    method_allocator_bytes,
    temp_allocator_bytes,
)
from edgewright.formats import read_program, schema, write_program
from edgewright.runtime.device_memory import DeviceMemory
from tests.cli.cli import GOLDEN
from tests.ir.aten.harness import all_samples, eager
from tests.support.build import one_call

HERE = Path(__file__).parent
PER_OPERATOR = 12
pytestmark = pytest.mark.slow


def package() -> Path:
    executorch = pytest.importorskip("executorch")
    return Path(next(iter(executorch.__path__)))


def includes() -> list[str]:
    root = package() / "include"
    c10 = root / "executorch" / "runtime" / "core" / "portable_type" / "c10"
    return ["-std=c++17", "-w", f"-I{root}", f"-I{c10}", "-DC10_USING_CUSTOM_GENERATED_MACROS"]


def compiler(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def link(sources: list[Path], program: Path, *options: str) -> Path:
    libraries = package() / "lib"
    names = ("executorch", "executorch_kernels_optimized", "executorch_kernels_quantized", "executorch_threadpool")
    flags = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed", *(f"-l{name}" for name in names)]
    command = [compiler("g++"), "-O1", *includes(), *options, *map(str, sources), "-o", str(program), *flags]
    subprocess.run(command, check=True, timeout=300)
    return program


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link([HERE / "stock_memory.cpp"], tmp_path_factory.mktemp("stock") / "measure")


def measure(stock: Path, paths: list[Path]) -> dict[Path, tuple[int, int, int]]:
    """What the runtime's allocators gave out: of the method allocator, and of the temp allocator at load and execution.
    Programs that it refuses are left out; one that ends the process is skipped."""
    found, left = {}, list(paths)
    while left:
        done = subprocess.run([stock], input="\n".join(map(str, left)), capture_output=True, text=True, timeout=600)
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith("/")]
        for path, *numbers in lines:
            if numbers[0] != "-":
                method, load, execute = map(int, numbers[:3])
                found[Path(path)] = (method, load, execute)
        if done.returncode == 0:
            break
        left = left[len(lines) + 1 :]
    return found


def temp_of_the_only_call(path: Path) -> int:
    plan = read_program(path).execution_plan[0]
    (call,) = plan.chains[0].instructions
    assert isinstance(call, schema.KernelCall)
    return kernel_temp_bytes(plan, call)


def ours(path: Path) -> tuple[int, int]:
    plan = read_program(path).execution_plan[0]
    delegates = [DeviceMemory("npu", {}, 0, 16, handle_words=9)] * len(plan.delegates)
    return method_allocator_bytes(plan, ABIS[64], delegates), temp_allocator_bytes(plan, ABIS[64], delegates)


def test_programs_of_every_operator(stock: Path, tmp_path: Path) -> None:
    taken: Counter[str] = Counter()
    paths = []
    for sample in all_samples():
        if sample.stock and taken[sample.key] < PER_OPERATOR:
            taken[sample.key] += 1
            paths.append(tmp_path / f"{len(paths)}.pte")
            paths[-1].write_bytes(write_program(one_call(sample.key, sample.args, eager(sample), sample.dim_order)))
    found = measure(stock, paths)
    assert len(found) > 0.95 * len(paths) > 1000
    assert {path: method for path, (method, _, _) in found.items()} == {path: ours(path)[0] for path in found}
    # The runtime asks for more room in the temp allocator at load than it takes; what kernels take is exact.
    sorting = {path: execute for path, (_, _, execute) in found.items() if execute}
    assert len(sorting) >= taken["aten::topk.values"] - 1 > 5  # one sorts nothing
    assert sorting == {path: temp_of_the_only_call(path) for path in sorting}
    assert all(max(load, execute) <= ours(path)[1] for path, (_, load, execute) in found.items())


def test_files_that_stock_compiled_for_ethos_u(stock: Path) -> None:
    paths = sorted((GOLDEN / "ethos_u").glob("*.pte"))
    found = measure(stock, paths)
    assert len(found) == len(paths) > 2
    assert {path: method for path, (method, _, _) in found.items()} == {path: ours(path)[0] for path in paths}


@pytest.mark.parametrize(("name", "bits"), [("g++", 64), ("arm-none-eabi-g++", 32)])
def test_structures_have_the_sizes_of_stocks_headers(name: str, bits: int, tmp_path: Path) -> None:
    target = ["-mcpu=cortex-m55", "-mthumb"] if bits == 32 else []
    made = tmp_path / "sizes.o"
    command = [
        compiler(name),
        *target,
        "-fno-exceptions",
        "-fno-rtti",
        *includes(),
        "-c",
        str(HERE / "stock_sizes.cpp"),
    ]
    built = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, timeout=300)
    if built.returncode and "No such file" in built.stderr and bits == 32:
        pytest.skip("libstdc++-arm-none-eabi-newlib is not installed")
    assert built.returncode == 0, built.stderr
    listed = subprocess.run([name.replace("g++", "nm"), "-S", made], capture_output=True, text=True)
    symbols = {f[3]: int(f[1], 16) for f in map(str.split, listed.stdout.splitlines()) if len(f) == 4}
    abi = ABIS[bits]
    fields = [f for f in vars(abi) if f != "word"]
    assert {f: Struct(symbols[f"size_{f}"], symbols[f"align_{f}"]) for f in fields} == {
        f: getattr(abi, f) for f in fields
    }
    assert symbols["size_word"] == symbols["size_tensor"] == symbols["size_op_function"] == abi.word
    assert symbols["size_boxed_tensors"] == symbols["size_boxed_optionals"] == abi.boxed_list.size
    assert [symbols[f"size_{n}_type"] for n in ("sizes", "strides", "dim_order")] == [4, 4, 1]
    assert symbols["size_int64"] == symbols["align_int64"] == 8


RUN = """
#include "net.h"
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>
#include <cstdio>
#include <cstdlib>
using namespace executorch::runtime;
alignas(16) static uint8_t planned[NET_PLANNED_MEMORY_0_SIZE];
alignas(16) static uint8_t method_pool[NET_METHOD_ALLOCATOR_SIZE];
alignas(16) static uint8_t temp_pool[NET_TEMP_ALLOCATOR_SIZE];
int main(int, char** missing) {  // bytes to leave out of the two pools
  runtime_init();
  executorch::extension::BufferDataLoader loader(net_pte, NET_PTE_SIZE);
  auto program = Program::load(&loader);
  Span<uint8_t> spans[] = {{planned, sizeof planned}};
  HierarchicalAllocator arena({spans, 1});
  MemoryAllocator methods(sizeof method_pool - atoi(missing[1]), method_pool);
  MemoryAllocator temp(sizeof temp_pool - atoi(missing[2]), temp_pool);
  MemoryManager manager(&methods, &arena, &temp);
  auto method = program->load_method(NET_METHOD, &manager);
  if (!method.ok()) return 3;
  executorch::aten::SizesType sizes[8];
  executorch::aten::DimOrderType order[8];
  for (int i = 0; i < net_inputs[0].rank; i++) { sizes[i] = net_inputs[0].shape[i]; order[i] = i; }
  static float values[NET_INPUT_0_SIZE / 4];
  for (size_t i = 0; i < NET_INPUT_0_SIZE / 4; i++) values[i] = (float)i / 100;
  auto type = (executorch::aten::ScalarType)net_inputs[0].type;
  executorch::aten::TensorImpl x(type, net_inputs[0].rank, sizes, values, order);
  if (method->set_input(EValue(executorch::aten::Tensor(&x)), 0) != Error::Ok) return 4;
  if (method->execute() != Error::Ok) return 5;
  auto y = method->get_output(0).toTensor();
  if (y.nbytes() != net_outputs[0].size) return 6;
  fwrite(y.const_data_ptr(), 1, y.nbytes(), stdout);
}
"""


def test_exported_c_runs_in_stocks_runtime_with_pools_of_exactly_these_sizes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 5))
    x = torch.arange(72, dtype=torch.float32).reshape(1, 2, 6, 6) / 100
    edge = edgewright.to_edge_transform_and_lower(torch.export.export(net.eval(), (x,)))
    edge.to_executorch().save(tmp_path / "net.pte")
    export_c(tmp_path / "net.pte", tmp_path, name="net")
    (tmp_path / "main.cpp").write_text(RUN)
    made = tmp_path / "net.o"
    subprocess.run([compiler("gcc"), "-c", str(tmp_path / "net.c"), "-o", str(made)], check=True)

    path = link([tmp_path / "main.cpp", made], tmp_path / "main", f"-I{tmp_path}")

    def run(*missing: str) -> Any:
        return subprocess.run([path, *missing], capture_output=True, timeout=60)

    done = run("0", "0")
    assert done.returncode == 0, done.stderr
    actual = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(actual, net(x).detach().numpy().reshape(-1), rtol=1e-4, atol=1e-5)
    assert run("1", "0").returncode == run("0", "1").returncode == 3  # one byte less does not load

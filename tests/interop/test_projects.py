"""Projects of ``edgewright export --project``: built with ExecuTorch's wheel and run here, and built for Cortex-M."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewright
from edgewright.bare_metal.export import export_c
from tests.cli.cli import GOLDEN
from tests.interop.test_stock_memory import package

pytestmark = pytest.mark.slow
STRICT = "-Wall -Wextra -Werror -Wpedantic"


def build(folder: Path, *options: str) -> None:
    for program in ("cmake", "make"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    for command in (["cmake", "-S", folder, "-B", folder / "build", *options], ["cmake", "--build", folder / "build"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def test_cmake_project_gives_the_results_of_the_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 5))
    x = torch.randn(1, 2, 6, 6)
    config = edgewright.EdgeCompileConfig(runtime="cortex-m")
    edge = edgewright.to_edge_transform_and_lower(torch.export.export(net.eval(), (x,)), compile_config=config)
    edge.to_executorch().save(tmp_path / "net.pte")
    export_c(tmp_path / "net.pte", tmp_path / "out", name="net", project="cmake")
    main = (tmp_path / "out" / "main.c").read_text()
    assert "return status;" in main
    values = ", ".join(f"{v:.9g}f" for v in x.flatten().tolist())
    main = main.replace("int main(void) {", f"static const float values[] = {{{values}}};\n\nint main(void) {{")
    main = main.replace("  int status", "  memcpy(input_0, values, sizeof values);\n  int status")
    main = main.replace("  return status;", "  fwrite(output_0, 1, NET_OUTPUT_0_SIZE, stdout);\n  return status;")
    main = main.replace("#include <string.h>", "#include <stdio.h>\n#include <string.h>")
    (tmp_path / "out" / "main.c").write_text(main)
    build(tmp_path / "out", f"-DCMAKE_PREFIX_PATH={package()}", f"-DCMAKE_C_FLAGS={STRICT}")
    done = subprocess.run([tmp_path / "out" / "build" / "net_firmware"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    actual = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(actual, net(x).detach().numpy().reshape(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ethos_u55_128", "ethos_u65_256", "ethos_u85_256"])
def test_cmake_project_compiles_for_a_cortex_m(name: str, tmp_path: Path) -> None:
    if shutil.which("arm-none-eabi-g++") is None:
        pytest.skip("arm-none-eabi-g++ is not installed (apt install gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib)")
    about, _ = export_c(GOLDEN / "ethos_u" / f"{name}.pte", tmp_path, name="net", project="cmake")
    include = package() / "include"
    c10 = include / "executorch" / "runtime" / "core" / "portable_type" / "c10"
    options = ("-DCMAKE_TOOLCHAIN_FILE=cortex-m.cmake", "-DCPU=cortex-m55", f"-DCMAKE_C_FLAGS={STRICT}")
    build(tmp_path, *options, f"-DEXECUTORCH_INCLUDE_DIRS={include};{c10}")
    command = ["arm-none-eabi-nm", "-S", tmp_path / "build" / "libnet.a"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = {f[3]: int(f[1], 16) for f in map(str.split, listed) if len(f) == 4}
    pools = {n: s for n, s in symbols.items() if n.endswith(("method_poolE", "temp_poolE", "planned_0E"))}
    assert sorted(pools.values()) == sorted((about.pools.method[32], about.pools.temp[32], *about.pools.planned))
    assert any("ethosu_fast_scratch" in line for line in listed) == bool(about.pools.fast_scratch)


STAND_INS = Path(__file__).parent / "build_systems"


def export_project(kind: str, folder: Path) -> Path:
    export_c(GOLDEN / "ethos_u" / "ethos_u55_128.pte", folder / "net", name="net", project=kind)
    (folder / "top").mkdir()
    shutil.copy(STAND_INS / f"{kind.replace('-', '_')}.cmake", folder / "top" / "CMakeLists.txt")
    return folder / "net"


def cross(compiler: str, flags: str) -> tuple[str, ...]:
    if shutil.which(f"{compiler}-gcc") is None:
        pytest.skip(f"{compiler}-gcc is not installed")
    languages = {"C": ("gcc", f"{flags} -std=c99 {STRICT}"), "CXX": ("g++", f"{flags} -std=c++17 {STRICT}")}
    options = [o for language, (name, text) in languages.items() for o in
               (f"-DCMAKE_{language}_COMPILER={compiler}-{name}", f"-DCMAKE_{language}_FLAGS={text}")]  # fmt: skip
    headers = package() / "include"
    executorch = f"-DEXECUTORCH_INCLUDE_DIRS={headers};{headers / 'executorch/runtime/core/portable_type/c10'}"
    return "-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY", *options, executorch


def sections(compiler: str, file: Path) -> str:
    return subprocess.run([f"{compiler}-objdump", "-h", file], capture_output=True, text=True, check=True).stdout


def test_esp_idf_component_compiles_with_stand_ins(tmp_path: Path) -> None:
    """Of ESP-IDF's functions; for the processor of an ESP32-C3 without the C++ runner, which needs a C++ library that
    Debian's compiler lacks, and whole for a Cortex-M."""
    component = export_project("esp-idf", tmp_path)
    for compiler, flags, sources in (
        ("riscv64-unknown-elf", "-march=rv32imc -mabi=ilp32 --specs=picolibc.specs", "[.]c$"),
        ("arm-none-eabi", "-mcpu=cortex-m33 -mthumb -mfloat-abi=hard", ".*"),
    ):
        options = cross(compiler, flags)
        build(tmp_path / "top", f"-DCOMPONENT={component}", f"-DSOURCES={sources}", *options)
        shown = sections(compiler, tmp_path / "top" / "build" / "net" / "libidf_net.a")
        assert ".rodata.net_pte" in shown
        assert ("net_runner" in shown) == (compiler == "arm-none-eabi")
        shutil.rmtree(tmp_path / "top" / "build")


def test_zephyr_module_compiles_with_stand_ins(tmp_path: Path) -> None:
    """Of Zephyr's functions; its fragment of a linker script places the program among constants."""
    module = export_project("zephyr", tmp_path)
    compiler = "arm-none-eabi"
    build(tmp_path / "top", f"-DMODULE={module}", *cross(compiler, "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard"))
    folder, image = tmp_path / "top" / "build", tmp_path / "net.elf"
    command = [f"{compiler}-ld", "-r", "-T", folder / "linker.ld", "--whole-archive", folder / "net" / "libnet.a"]
    subprocess.run([*command, "-o", image], check=True)
    shown = sections(compiler, image)
    size = int(next(line for line in shown.splitlines() if " .rodata " in line).split()[2], 16)
    assert "network_model_sec" not in shown
    assert size >= (GOLDEN / "ethos_u" / "ethos_u55_128.pte").stat().st_size


def test_other_projects_say_that_they_were_not_built(tmp_path: Path) -> None:
    for kind, file in (("zephyr", "zephyr/CMakeLists.txt"), ("esp-idf", "CMakeLists.txt")):
        export_c(GOLDEN / "ethos_u" / "ethos_u55_128.pte", tmp_path / kind, name="net", project=kind)
        assert "Not built" in (tmp_path / kind / file).read_text()

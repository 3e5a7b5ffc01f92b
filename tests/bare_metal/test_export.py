"""``edgewright export``: the C sources compile, and say what the program is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewright
from edgewright.bare_metal.describe import describe
from edgewright.errors import MissingDataError, UsageError
from edgewright.formats import read_program, schema, write_program
from tests.cli.cli import GOLDEN, Cli
from tests.support.build import PlanBuilder, program

U55 = GOLDEN / "ethos_u" / "ethos_u55_128.pte"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wpedantic")
COMPILERS = {
    "gcc, C99": ("gcc", "-x", "c", "-std=c99"),
    "g++, C++17": ("g++", "-x", "c++", "-std=c++17"),
    "Cortex-M55, C99": ("arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mthumb", "-x", "c", "-std=c99"),
    "Cortex-M55, C++17": ("arm-none-eabi-g++", "-mcpu=cortex-m55", "-mthumb", "-x", "c++", "-std=c++17"),
    "Cortex-M0+, C99": ("arm-none-eabi-gcc", "-mcpu=cortex-m0plus", "-mthumb", "-x", "c", "-std=c99"),
}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiles_without_warnings(compiler: str, cli: Cli, tmp_path: Path) -> None:
    program, *options = COMPILERS[compiler]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (apt install gcc-arm-none-eabi)")
    done = cli("export", U55, "--c", tmp_path, "--name", "net")
    assert done.code == 0, done.err
    made = tmp_path / "net.o"
    built = subprocess.run([program, *options, *WARNINGS, "-c", tmp_path / "net.c", "-o", made], capture_output=True)
    assert built.returncode == 0, built.stderr.decode()
    dump = program.replace("gcc", "objdump").replace("g++", "objdump")
    if shutil.which(dump):
        lines = subprocess.run([dump, "-h", made], capture_output=True, text=True, check=True).stdout.splitlines()
        (at,) = (n for n, line in enumerate(lines) if "network_model_sec" in line)
        assert int(lines[at].split()[2], 16) == U55.stat().st_size
        assert int(lines[at].split()[-1].removeprefix("2**")) >= 4 and "READONLY" in lines[at + 1]


def macros(text: str) -> dict[str, str]:
    return {m[1]: m[2] for m in re.finditer(r"^#define (\w+) (\S+)", text, re.MULTILINE)}


def test_bytes_and_facts_are_those_of_the_file(cli: Cli, tmp_path: Path) -> None:
    done = cli("export", U55, "--c", tmp_path, "--name", "net", "--section", ".qspi_flash")
    assert done.code == 0, done.err
    data = U55.read_bytes()
    source, header = ((tmp_path / name).read_text() for name in ("net.c", "net.h"))
    array = source.split("= {", 1)[1].split("};", 1)[0]
    assert bytes(int(b, 16) for b in re.findall(r"0x[0-9a-f]{2}", array)) == data
    known = macros(header)
    assert known["NET_PTE_SIZE"] == f"{len(data)}u" and known["NET_SECTION"] == '".qspi_flash"'
    assert known["NET_PTE_CRC32"] == f"UINT32_C(0x{zlib.crc32(data):08x})"
    assert known["NET_NPU_SCRATCH_SIZE"] == "3568u" and known["NET_NPU_FAST_SCRATCH_SIZE"] == "0u"
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    plan = read_program(U55).execution_plan[0]
    assert manifest["pools"]["planned_memory"] == list(plan.non_const_buffer_sizes[1:])
    assert manifest["operators"] == sorted(o.key for o in plan.operators or ())
    assert manifest["delegates"][0]["target"] == "ethos-u55-128"


def test_integer_inputs_have_their_scale(tmp_path: Path, cli: Cli) -> None:
    torch.manual_seed(0)
    net, x = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), torch.randn(1, 3, 8, 8)
    options = {"quantize": "int8", "calibration": [(x,)], "integer_io": True, "check": False, "evaluate": 0}
    result = edgewright.compile(net, x, "ethos-u55-128", **options, quiet=True)
    path = tmp_path / "net.pte"
    result.save(path)
    about = describe(str(path))
    parameters = result.io.parameters
    for port in (*about.inputs, *about.outputs):
        assert (port.type, port.scale, port.zero_point) == (
            "int8", parameters[port.name].scale, parameters[port.name].zero_point,
        )  # fmt: skip
    assert not about.operators  # the conversions are gone, so the board needs no kernel at all
    assert cli("export", path, "--c", tmp_path / "c").code == 0
    known = macros((tmp_path / "c" / "net.h").read_text())
    assert np.float32(known["NET_INPUT_0_SCALE"].removesuffix("f")) == np.float32(parameters["input0"].scale)
    assert known["NET_INPUT_0_ZERO_POINT"] == f"({parameters['input0'].zero_point})"


def test_operators_are_those_of_stocks_selective_build(tmp_path: Path, cli: Cli) -> None:
    yaml = pytest.importorskip("yaml")
    gen_oplist = pytest.importorskip("executorch.codegen.tools.gen_oplist")
    assert cli("export", U55, "--c", tmp_path).code == 0
    gen_oplist.gen_oplist(tmp_path / "stock.yaml", model_file_path=str(U55))
    theirs, ours = (yaml.safe_load((tmp_path / n).read_text()) for n in ("stock.yaml", "selected_operators.yaml"))
    for operator in theirs["operators"].values():
        operator["debug_info"] = [U55.name]
    assert ours == theirs and len(ours["operators"]) == 2


def a_program(*, value: schema.Value | None = None, dynamic: bool = False, external: bool = False) -> bytes:
    build = PlanBuilder()
    x = build.input(np.float32, (2, 3))
    tensor = build.values[x]
    assert isinstance(tensor, schema.Tensor)
    if dynamic:
        tensor.shape_dynamism = int(schema.Dynamism.DYNAMIC_BOUND)
    if external:
        info = schema.ExtraTensorInfo(fully_qualified_name="w", location=int(schema.TensorDataLocation.EXTERNAL))
        build.value(schema.Tensor(scalar_type=6, sizes=(1,), dim_order=(0,), extra_tensor_info=info))
    if value is not None:
        build.inputs.append(build.value(value))
    out = build.tensor(np.float32, (2, 3))
    build.call("aten::relu.out", [x, out, out])
    build.outputs.append(out)
    return write_program(program(build.plan()))


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"dynamic": True}, UsageError, "must have a fixed shape on a board"),
        ({"external": True}, MissingDataError, "must not have weights in a .ptd"),
        ({"value": schema.Int(int_val=3)}, UsageError, "must be a tensor on a board; got int"),
    ],
)
def test_what_a_board_cannot_run(options: dict[str, object], error: type, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(a_program(**options))  # type: ignore[arg-type]
    with pytest.raises(error, match=re.escape(sentence)):
        describe(str(tmp_path / "m.pte"))


def test_refusals(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(a_program())
    assert cli("export", path, "--c", tmp_path / "c").code == 0
    for options, sentence in (
        (("--name", "a-b"), "--name: must be a C identifier"),
        (("--section", 'a"b'), "--section: must be the name of a linker section"),
        (("--project", "cmak"), "Did you mean cmake?"),
        (("--method", "forwrd"), "--method: must be a method of the file; got forwrd"),
    ):
        refused = cli("export", path, "--c", tmp_path / "d", *options)
        assert refused.code == 2 and sentence in refused.err
    assert not (tmp_path / "d").exists()
    xnnpack = cli("export", GOLDEN / "linear_fp32_xnnpack.pte", "--c", tmp_path / "d")
    assert "must be one that ExecuTorch's bare-metal runtime executes; got XnnpackBackend" in xnnpack.err
    missing = cli("export", tmp_path / "none.pte", "--c", tmp_path / "d")
    assert missing.code != 0 and "none.pte" in missing.err

"""Vela's driver: in process and by command line it gives the same, and nothing it loses goes unnoticed."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.backends.ethos_u import EthosUCompileSpec
from edgewright.backends.ethos_u.blob import write_blob
from edgewright.backends.ethos_u.target import ACCELERATORS, MEMORY_MODES, SYSTEM_CONFIGS
from edgewright.backends.ethos_u.vela import VelaOutput, compile_tosa
from edgewright.backends.ethos_u.vela_options import OPTIONS, REJECTED, parse_flags
from edgewright.errors import UsageError, VendorError
from edgewright.formats import read_program
from tests.backends.ethos_u.graphs import GRAPHS, GraphBuilder, lost_output, residual
from tests.backends.ethos_u.test_target import MINE
from tests.support.golden import GOLDEN

BY_CLI = "--recursion-limit=1000"  # means nothing, but only the command line knows it


def compiled(name: str, spec: EthosUCompileSpec) -> VelaOutput:
    make, inputs, outputs = GRAPHS[name]
    return compile_tosa(make(), spec, inputs=inputs, outputs=outputs)


def parts(made: VelaOutput) -> tuple[object, ...]:
    return made.cmd_data, made.weight_data, made.scratch_size, made.fast_scratch_size, made.inputs, made.outputs


def check_same(here: VelaOutput, there: VelaOutput) -> None:
    assert parts(here) == parts(there)
    assert write_blob(here) == write_blob(there)
    assert here.performance is not None and there.performance is not None
    assert here.performance.summary() == there.performance.summary()


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", ACCELERATORS)
@pytest.mark.parametrize("name", GRAPHS)
def test_both_ways_give_the_same(name: str, target: str) -> None:
    check_same(compiled(name, EthosUCompileSpec(target)), compiled(name, EthosUCompileSpec(target, extra_flags=BY_CLI)))


@pytest.mark.parametrize("name", ["ethos_u55_128", "ethos_u65_256", "ethos_u85_256"])
def test_stocks_graph_gives_stocks_blob(name: str) -> None:
    program = read_program(GOLDEN / "ethos_u" / f"{name}.pte")
    with np.load(GOLDEN / "ethos_u" / f"{name}.npz") as stored:
        tosa, sizes = stored["tosa"].tobytes(), [stored[key].nbytes for key in ("in0", "out0")]
    spec = EthosUCompileSpec(name.replace("_", "-"))
    made = compile_tosa(tosa, spec, inputs=sizes[:1], outputs=sizes[1:])
    assert write_blob(made) == bytes(program.blob(program.execution_plan[0].delegates[0]))


FLAGS = [
    "--optimise=Size",
    "--arena-cache-size=2048",
    "--tensor-allocator=Greedy",
    "--cpu-tensor-alignment=64",
    "--cop-format=COP2",
    "--disable-buffering --disable-cascading",
    "--disable-chaining --disable-fwd --disable-ifm-reuse",
    "--experimental-softmax-int16-neg-exp-range=8",
    "--ignore-ops=arg_max",
    "--output-format=raw --debug-force-regor",
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("flags", FLAGS)
def test_flags_mean_here_what_they_mean_there(flags: str) -> None:
    spec = EthosUCompileSpec("ethos-u55-128", extra_flags=flags)
    there = EthosUCompileSpec("ethos-u55-128", extra_flags=f"{flags} {BY_CLI}")
    check_same(compiled("residual", spec), compiled("residual", there))


def test_flags_change_the_result() -> None:
    plain = compiled("residual", EthosUCompileSpec("ethos-u55-128"))
    changed = ("--optimise=Size", "--cop-format=COP2", "--disable-buffering", "--cpu-tensor-alignment=1024")
    for flags in changed:
        other = compiled("residual", EthosUCompileSpec("ethos-u55-128", extra_flags=flags))
        assert parts(plain) != parts(other), flags


def test_our_options_are_those_of_vela() -> None:
    said = subprocess.run([sys.executable, "-m", "ethosu.vela", "--help"], capture_output=True, text=True, timeout=600)
    names = set(re.findall(r"^  (?:-h, )?(--[a-z0-9-]+)", said.stdout, re.MULTILINE))
    assert names == set(OPTIONS)


def test_every_option_is_taken_or_refused() -> None:
    values = {int: "1", float: "1.5", str: "x"}
    for option in OPTIONS.values():
        if option.handling == REJECTED:
            assert option.reason
            continue
        value = option.value_type[0] if isinstance(option.value_type, tuple) else values.get(option.value_type)
        value = {"--cpu-tensor-alignment": "32"}.get(option.name, value)
        beside = ["--output-dir=x"] if option.name == "--enable-debug-db" else []
        flags = parse_flags([option.name if value is None else f"{option.name}={value}", *beside])
        assert flags[0].option is option


@pytest.mark.parametrize("mode", MEMORY_MODES)
def test_every_memory_mode_compiles(mode: str) -> None:
    for target in ("ethos-u65-256", "ethos-u85-256"):
        made = compiled("one_conv", EthosUCompileSpec(target, memory_mode=mode))
        assert made.performance is not None and made.performance.total_cycles > 0


@pytest.mark.parametrize("flags", [None, BY_CLI])
def test_modes_that_do_not_suit_the_system_are_refused(flags: str | None) -> None:
    """In process, Vela would put activations into flash without a word."""
    for target, system in (("ethos-u55-128", None), ("ethos-u85-256", "Ethos_U85_SYS_Flash_Low")):
        spec = EthosUCompileSpec(target, system, "Dedicated_Sram_256KB", flags)
        with pytest.raises(UsageError, match="needs Sram or Dram as its arena memory; got OffChipFlash"):
            compiled("residual", spec)


@pytest.mark.parametrize("system", SYSTEM_CONFIGS)
def test_every_system_compiles(system: str) -> None:
    target = {"5": "ethos-u55-256", "6": "ethos-u65-512", "8": "ethos-u85-512"}[system[7]]
    made = compiled("one_conv", EthosUCompileSpec(target, system, "Shared_Sram"))
    assert made.performance is not None and made.performance.clock >= 200e6


def test_a_users_own_file_is_used(tmp_path: Path) -> None:
    path = tmp_path / "board.ini"
    path.write_text(MINE)
    specs = [EthosUCompileSpec("ethos-u55-128", "Board", "Small", f, path) for f in (None, BY_CLI)]
    path.unlink()  # it was read when the spec was made
    here, there = (compiled("residual", spec) for spec in specs)
    check_same(here, there)
    assert here.performance is not None and here.performance.clock == 250e6


# ------------------------------------------------------------------------------------------------------- failures


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("flags", [None, BY_CLI])
def test_a_lost_output_is_noticed(target: str, flags: str | None) -> None:
    with pytest.raises(VendorError, match=r"must keep the graph's 2 outputs; got 1 .*\n.*transposition"):
        compile_tosa(lost_output(), EthosUCompileSpec(target, extra_flags=flags), inputs=1, outputs=2)


def test_a_lost_input_is_noticed() -> None:
    build = GraphBuilder()
    x, _ = build.input((1, 8, 8, 16)), build.input((1, 8, 8, 16))
    with pytest.raises(VendorError, match=r"must keep the graph's 2 inputs; got 1 .*\n.*nothing reads"):
        compile_tosa(build.finish(build.max_pool(x)), EthosUCompileSpec("ethos-u55-128"), inputs=2, outputs=1)


def test_other_sizes_are_noticed() -> None:
    for inputs, outputs in (([2047], [256]), ([2048], [255])):
        with pytest.raises(VendorError, match=r"must keep the \d+ bytes of (in|out)puts\[0\]; got \d+ bytes"):
            compile_tosa(residual(), EthosUCompileSpec("ethos-u55-128"), inputs=inputs, outputs=outputs)


@pytest.mark.parametrize("flags", [None, BY_CLI])
def test_velas_words_are_passed_on(flags: str | None) -> None:
    import tosa_serializer as ts

    build = GraphBuilder()
    x, y = (build.input((1, 8, 8, 16), ts.DType.INT32) for _ in range(2))
    graph = build.finish(build.op("Greater", [x.name, y.name], x.shape, ts.DType.BOOL))
    with pytest.raises(VendorError, match=r"Vela for ethos-u55-128: cannot compile .*Greater.*could not run on NPU"):
        compile_tosa(graph, EthosUCompileSpec("ethos-u55-128", extra_flags=flags), inputs=2, outputs=1)
    with pytest.raises(VendorError, match="cannot compile"):
        compile_tosa(
            b"no flatbuffer at all", EthosUCompileSpec("ethos-u55-128", extra_flags=flags), inputs=1, outputs=1
        )


# ------------------------------------------------------------------------------------------- chatter and by-products


def test_vela_is_silent_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    compiled("residual", EthosUCompileSpec("ethos-u55-128"))
    compiled("residual", EthosUCompileSpec("ethos-u55-128", extra_flags=BY_CLI))
    assert capfd.readouterr() == ("", "")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("flag", "words"),
    [("--verbose-schedule", "Operation Conv2D"), ("--verbose-register-command-stream", "NPU_OP_STOP"),
     ("--verbose-weights", "Weights"), ("--verbose-cycle-estimate", "inferences/s")],
)  # fmt: skip
def test_what_is_asked_for_is_shown(flag: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    compiled("residual", EthosUCompileSpec("ethos-u55-128", extra_flags=flag))
    assert words in capfd.readouterr().out


def test_files_go_where_they_are_asked_for(tmp_path: Path) -> None:
    flags = f"--enable-debug-db --verbose-performance --output-dir={tmp_path / 'vela'}"
    compiled("residual", EthosUCompileSpec("ethos-u55-128", extra_flags=flags))
    assert {p.suffix for p in (tmp_path / "vela").iterdir()} >= {".csv", ".npz", ".xml"}


def test_the_graph_is_kept_if_asked(tmp_path: Path) -> None:
    spec = EthosUCompileSpec("ethos-u55-128").dump_intermediate_artifacts_to(tmp_path / "graphs")
    compiled("residual", spec)
    (path,) = (tmp_path / "graphs").iterdir()
    assert path.suffix == ".tosa" and path.read_bytes() == residual()


# ------------------------------------------------------------------------------------------------------- estimates


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_estimates_are_velas(target: str, tmp_path: Path) -> None:
    """Totals and layers equal those of the tables that the command line writes."""
    flags = f"--verbose-performance --output-dir={tmp_path}"
    there = compiled("residual", EthosUCompileSpec(target, extra_flags=flags)).performance
    here = compiled("residual", EthosUCompileSpec(target)).performance
    assert here is not None and here == there and len(here.layers) >= 4
    (table,) = tmp_path.glob("*summary*.csv")
    with open(table, newline="") as file:
        (row,) = csv.DictReader(file)
    assert here.total_cycles == float(row["cycles_total"])
    assert here.inferences_per_second == pytest.approx(float(row["inferences_per_second"]))
    assert here.memory.get("sram", 0) / 1024 == float(row["sram_memory_used"])
    assert sum(layer.macs for layer in here.layers) == here.macs == int(row["nn_macs"])
    (layers,) = tmp_path.glob("*per-layer.csv")
    with open(layers, newline="") as file:
        for layer, said in zip(here.layers, csv.DictReader(file), strict=True):
            assert not layer.cycles or 100 * here.utilization(layer) == pytest.approx(float(said["Util% (MAC)"]))


def test_an_estimate_says_that_it_is_one() -> None:
    performance = compiled("residual", EthosUCompileSpec("ethos-u55-128")).performance
    assert performance is not None
    system = "Ethos_U55_High_End_Embedded, Shared_Sram"
    wanted = f"Vela's estimate for ethos-u55-128 ({system}): 6,512 cycles, 76,781 inferences/s"
    assert str(performance).startswith(wanted)
    assert performance.to_dict()["basis"] == "Vela's estimate"
    assert performance.to_dict()["layers"][0]["operator"] == "Conv2D"

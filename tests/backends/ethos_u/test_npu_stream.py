"""The command stream itself: its container, its text, and what becomes of bytes that are not right."""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.npu import accelerator_of, decode, disassemble, run, supported
from edgewright.backends.ethos_u.npu.commands import COMMANDS, FAMILIES
from edgewright.errors import EdgewrightError, FormatError, LimitError, MissingError, VersionError
from tests.backends.ethos_u import test_npu_convolution as convolutions
from tests.backends.ethos_u import test_npu_elementwise as elementwise
from tests.backends.ethos_u import test_npu_moves as moves
from tests.backends.ethos_u import test_npu_pooling as pools
from tests.backends.ethos_u.test_npu_moves import network
from tests.backends.ethos_u.tosa_graphs import SIMULATED, Graph, compile_graph, random_inputs, simulate

ALL = (*SIMULATED, "ethos-u65-512", "ethos-u85-128", "ethos-u85-256", "ethos-u85-512", "ethos-u85-1024",
       "ethos-u85-2048")  # fmt: skip


@cache
def model(accelerator: str = "ethos-u55-128", options: str = "") -> Any:
    return compile_graph(network(), accelerator, options)


def execute(data: bytes, made: Any, **options: Any) -> np.ndarray:
    scratch = np.zeros(made.scratch.size, np.uint8)
    run(
        decode(data),
        weights=bytes(made.read_only.data),
        scratch=scratch,
        fast_scratch=np.zeros(64, np.uint8),
        **options,
    )
    return scratch


@pytest.mark.parametrize("accelerator", ALL)
def test_the_stream_names_its_npu(accelerator: str) -> None:
    data = bytes(model(accelerator).command_stream)
    program = decode(data)
    assert program.accelerator == accelerator_of(data) == accelerator
    assert program.instructions[-1].command.name == "STOP"


@pytest.mark.parametrize("accelerator", [name for name in ALL if name not in SIMULATED])
def test_what_is_not_simulated_says_so(accelerator: str) -> None:
    assert supported(accelerator) == f"{accelerator} is not simulated yet"
    made = model(accelerator)
    with pytest.raises(MissingError, match=f"{accelerator} is not simulated yet"):
        execute(bytes(made.command_stream), made)


def test_each_code_has_one_meaning() -> None:
    for family in FAMILIES:
        codes = [(row.code, bool(row.payload)) for row in COMMANDS if family in row.families]
        assert len(codes) == len(set(codes))


def vela(accelerator: str, folder: Path, *flags: str) -> tuple[bytes, str]:
    """The command stream that Vela's own command line makes of the network, and what it prints."""
    folder.mkdir(exist_ok=True)
    (folder / "m.tosa").write_bytes(network().serializer.serialize())
    modes = {"55": "Ethos_U55_High_End_Embedded Shared_Sram", "65": "Ethos_U65_High_End Dedicated_Sram_384KB",
             "85": "Ethos_U85_SYS_DRAM_Mid Sram_Only"}  # fmt: skip
    system, memory = modes[accelerator[7:9]].split()
    call = "import sys; from ethosu.vela.vela import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", call, "m.tosa", "--accelerator-config", accelerator, "--config", "Arm/vela.ini",
               "--system-config", system, "--memory-mode", memory, "--output-format=raw", *flags]  # fmt: skip
    text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=600).stdout
    with np.load(next(folder.rglob("*.npz"))) as made:
        return made["cmd_data"].tobytes(), text


@pytest.mark.sample(1)
@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_names_agree_with_velas_listing(accelerator: str, tmp_path: Path) -> None:
    data, listing = vela(accelerator, tmp_path, "--verbose-register-command-stream")
    row = re.compile(r"^0x([0-9a-f]{6}): [0-9a-f ]{8} ([0-9a-f]{4}) [0-9a-f]{4} - NPU_(?:SET|OP)_([A-Z0-9_]+)", re.M)
    theirs = [(int(at, 16), name, int(parameter, 16)) for at, parameter, name in row.findall(listing)]
    ours = decode(data).instructions
    start = ours[0].offset
    assert [(i.offset - start, i.command.name, i.parameter) for i in ours] == theirs
    assert len(theirs) > 200


def test_text_has_a_line_for_each_operation() -> None:
    program = decode(bytes(model().command_stream))
    text = disassemble(program)
    operations = [i for i in program.instructions if i.command.is_operation]
    assert len(text.splitlines()) == 1 + len(operations)
    assert "must be set" not in text
    assert re.search(r"DEPTHWISE +3x3  pad 1,1,1,1  ifm s8 12x12x40 NHCWB16 @\S+ zero -3  -> ofm s8 12x12x40", text)
    assert re.search(r"ELEMENTWISE ADD  ifm s8 12x12x24 .* ifm2 s8 12x12x24 .* -> ofm s8 12x12x24", text)
    assert re.search(r"POOL +MAX  2x2  stride 2x2 .* clamp -128..127  function 16", text)


def test_full_text_has_a_line_for_each_command() -> None:
    program = decode(bytes(model().command_stream))
    lines = disassemble(program, full=True).splitlines()
    assert len(lines) == 1 + len(program.instructions)
    assert any(re.search(r"SET IFM_PRECISION +signed=s bits=8 layout=NHWC", line) for line in lines)


@pytest.mark.parametrize("accelerator", ALL)
def test_every_stream_has_a_text(accelerator: str) -> None:
    program = decode(bytes(model(accelerator).command_stream))
    assert disassemble(program, full=True).startswith(f"{accelerator}: {len(program.instructions)} commands")
    assert "CONV" in disassemble(program)


# Bytes that are not right ---------------------------------------------------------------------------------------------


def test_broken_containers_are_refused() -> None:
    good = bytes(model().command_stream)
    header = good[:16]
    with pytest.raises(FormatError, match="COP1 or COP2"):
        decode(b"COP3" + good[4:])
    with pytest.raises(FormatError, match="multiple of 4 bytes"):
        decode(good[:-1])
    with pytest.raises(FormatError, match="words left"):
        decode(good[:-4])
    with pytest.raises(VersionError, match="known NPU"):
        decode(good[:8] + b"\xff\xff\xff\xff" + good[12:])
    with pytest.raises(FormatError, match="name its NPU"):
        decode(b"COP1")
    with pytest.raises(FormatError, match="known driver action"):
        decode(header + b"\x09\0\0\0")
    with pytest.raises(FormatError, match="command of an ethos-u55"):
        decode(header + b"\x02\0\x01\0" + b"\xfe\x01\0\0")
    with pytest.raises(FormatError, match="IFM_BASE0 must have a payload"):
        decode(header + b"\x02\0\x01\0" + b"\0\x40\0\0")


@pytest.mark.sample(1)
@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_both_containers_hold_the_same_commands(accelerator: str, tmp_path: Path) -> None:
    first, second = (decode(vela(accelerator, tmp_path / kind, "--cop-format", kind)[0]) for kind in ("COP1", "COP2"))
    assert first.accelerator == second.accelerator == accelerator
    assert [(i.command, i.parameter, i.payload) for i in first.instructions] == [
        (i.command, i.parameter, i.payload) for i in second.instructions
    ]


def test_broken_second_containers_are_refused(tmp_path: Path) -> None:
    good, _ = vela("ethos-u55-128", tmp_path, "--cop-format", "COP2")
    assert good[:4] == b"COP2"
    with pytest.raises(VersionError, match="version 1"):
        decode(good[:4] + b"\x07" + good[5:])
    rng = random.Random(1)
    for _ in range(400):
        data = bytearray(good[: 4 * rng.randrange(len(good) // 4)] if rng.random() < 0.3 else good)
        at = rng.randrange(4, 64)
        if at < len(data):
            data[at] = rng.randrange(256)
        with contextlib.suppress(EdgewrightError):
            decode(bytes(data))


def words(*commands: int) -> bytes:
    """A stream of these words for a u55-128."""
    header = bytes(model().command_stream)[:16]
    return header + np.array([2 | len(commands) << 16, *commands], "<u4").tobytes()


def test_a_stream_must_stop_and_set_what_it_uses() -> None:
    with pytest.raises(FormatError, match="end with STOP"):
        execute(words(0x10F), model())
    with pytest.raises(FormatError, match=r"at byte 0x14: \w+ must be set before it is used"):
        execute(words(0x002, 0x000), model())


def test_copies_stay_within_their_regions() -> None:
    def copy(source: int, target: int, length: int, region: int = 1) -> bytes:
        regions = (0x130, region << 16 | 0x131)
        return words(*regions, 0x4030, source, 0x4031, target, 0x4032, length, 0x010, 0x000)

    made = model()
    assert execute(copy(0, 16, 32), made)[16:48].tobytes() == bytes(made.read_only.data)[:32]
    for bad in (copy(0, made.scratch.size - 8, 32), copy(1 << 30, 0, 32), copy(0, 0, 32, region=7)):
        with pytest.raises(FormatError, match="region"):
            execute(bad, made)
    with pytest.raises(FormatError, match="internal memory"):
        execute(copy(0, 24 * 1024 - 8, 32, region=0x103), made)
    with pytest.raises(FormatError, match="constants must not be written"):
        execute(copy(0, 0, 32, region=0), made)


def test_work_is_bounded() -> None:
    made = model()
    with pytest.raises(LimitError, match="at most 1000 steps"):
        execute(bytes(made.command_stream), made, steps=1000)


@pytest.mark.parametrize("options", ["", "arena_size_limit=8192\n"])
def test_flipped_bits_end_in_an_answer_or_an_error_of_ours(options: str) -> None:
    made = model("ethos-u55-128", options)
    good, rng = bytes(made.command_stream), random.Random(7)
    kinds: dict[str, int] = {}
    for _ in range(120):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            data[rng.randrange(16, len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.1:
            del data[4 * rng.randrange(len(data) // 4) :]
        try:
            execute(bytes(data), made, steps=1 << 28)
            kind = "answer"
        except EdgewrightError as error:
            kind = type(error).__name__
        kinds[kind] = kinds.get(kind, 0) + 1
    assert kinds["answer"] > 10
    assert kinds["FormatError"] > 30


CORNERS = (0, 1, 2, 7, 15, 63, 64, 255, 256, 4095, 32767, 32768, 65535)
WIDE_CORNERS = (0, 1, 16, 255, 65535, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
VICTIMS: dict[str, Callable[[], Graph]] = {
    **{name: convolutions.CASES[name] for name in ("3x3", "depthwise", "transposed", "int16", "dilated")},
    **{name: elementwise.CASES[name] for name in ("add", "mul int16", "table i16", "abs", "rescale by channel")},
    **{name: pools.CASES[name] for name in ("average, padded", "argmax", "sum over axis 3")},
    **{name: moves.CASES[name] for name in ("transpose (0, 3, 1, 2)", "reverse rows", "nearest to double")},
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", VICTIMS)
def test_registers_at_their_extremes_end_in_an_answer_or_an_error_of_ours(name: str) -> None:
    made, rng, kinds = compile_graph(VICTIMS[name](), "ethos-u55-128"), random.Random(name), set()
    instructions = decode(bytes(made.command_stream)).instructions
    for _ in range(60):
        data = np.frombuffer(bytes(made.command_stream), "<u4").copy()
        for chosen in rng.sample(instructions, rng.choice((1, 1, 2))):
            at = chosen.offset // 4
            if chosen.command.payload:
                data[at + 1] = rng.choice(WIDE_CORNERS)
            else:
                data[at] = int(data[at]) & 0xFFFF | rng.choice(CORNERS) << 16
        try:
            disassemble(decode(data.tobytes()))
            execute(data.tobytes(), made, steps=1 << 30)
            kinds.add("answer")
        except EdgewrightError as error:
            kinds.add(type(error).__name__)
    assert {"answer", "FormatError"} <= kinds


def test_the_simulator_keeps_unpacked_weights_between_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    made, graph = model(), network()
    program = decode(bytes(made.command_stream))
    scratch = np.zeros(made.scratch.size, np.uint8)
    answers, unpacked = [], []
    for array in (*random_inputs(graph), *random_inputs(graph, 1), *random_inputs(graph)):
        tensor, out = made.inputs[0], made.outputs[0]
        scratch[tensor.address : tensor.address + tensor.size] = array.reshape(-1).view(np.uint8)
        run(program, weights=bytes(made.read_only.data), scratch=scratch)
        answers.append(scratch[out.address : out.address + out.size].copy())
        unpacked.append({key: id(weights) for key, weights in program.unpacked.items()})
    assert len(unpacked[0]) > 3 and unpacked[0] == unpacked[1] == unpacked[2]
    assert np.array_equal(answers[0], answers[2])
    assert not np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0].view(np.int8), simulate(made, random_inputs(graph))[0].reshape(-1))


def test_memory_that_is_not_contiguous_is_refused() -> None:
    made = model()
    with pytest.raises(EdgewrightError, match="scratch: must be contiguous"):
        run(decode(bytes(made.command_stream)), weights=b"", scratch=np.zeros((made.scratch.size, 2), np.uint8)[:, 0])


def test_no_torch() -> None:
    code = "import sys, edgewright.backends.ethos_u.npu; sys.exit('torch' in sys.modules or 'ethosu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=600).returncode == 0


def test_graphs_of_tests_are_not_trivial() -> None:
    """What the comparisons rest on: another input gives another answer."""
    graph: Graph = network()
    made = model()
    assert not np.array_equal(*(simulate(made, random_inputs(graph, seed))[0] for seed in (0, 1)))

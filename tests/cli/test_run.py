"""``edgewright run``: inputs of every kind, outputs of every kind, and each way it goes wrong."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright import to_edge_transform_and_lower
from edgewright.backends.samsung import EnnPartitioner, gen_samsung_backend_compile_spec
from edgewright.cli.inputs import load_inputs
from edgewright.cli.outputs import npz_bytes
from edgewright.cli.run import outside_parts, show_profile
from edgewright.engine.profile import Profile, RunTime, StepTime
from edgewright.errors import InputError
from edgewright.formats.etdump import read_etdump
from edgewright.frontend.delegate import LoweredBackendModule
from edgewright.ir.graph import Graph
from edgewright.runtime import Runtime
from edgewright.runtime.method_io import dtype_remedy
from edgewright.units import parse_size
from tests.cli.cli import GOLDEN, Cli, recorded
from tests.support.golden import foreign

LINEAR = GOLDEN / "linear_fp32_portable.pte"
DYNAMIC = GOLDEN / "mlp_dynshape_portable.pte"


def linear_input() -> np.ndarray:
    return recorded("linear_fp32_portable")[0][0]


def check_linear(path: Path) -> None:
    with np.load(path) as stored:
        assert stored.files == ["out0"]
        np.testing.assert_allclose(stored["out0"], recorded("linear_fp32_portable")[1][0], rtol=1e-5, atol=1e-6)


def test_npz_by_name(cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", in0=linear_input())
    result = cli("run", LINEAR, "--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert (result.code, result.err) == (0, "")
    assert re.search(r"forward: \d+\.?\d* [mµ]?s for the first run", result.out)
    assert "float32" in result.out
    check_linear(tmp_path / "y.npz")


def test_npz_names_may_come_in_any_order(cli: Cli, tmp_path: Path) -> None:
    flag, x = recorded("cond")[0]
    np.savez(tmp_path / "x.npz", in1=x, in0=flag)
    assert cli("run", GOLDEN / "cond.pte", "--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["out0"], recorded("cond")[1][0])


def test_npz_may_hold_more_than_the_inputs(cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", label=np.arange(1000), in0=linear_input(), out0=np.zeros(3))
    assert cli("run", LINEAR, "--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz").code == 0
    check_linear(tmp_path / "y.npz")


def test_npz_other_names_in_file_order(cli: Cli, tmp_path: Path) -> None:
    flag, x = recorded("cond")[0]
    np.savez_compressed(tmp_path / "x.npz", zebra=flag, apple=x)
    assert cli("run", GOLDEN / "cond.pte", "--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["out0"], recorded("cond")[1][0])


def test_npy_in_column_order_and_npy_out(cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(linear_input()))
    assert cli("run", LINEAR, "--inputs", tmp_path / "x.npy", "--output", tmp_path / "y.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), recorded("linear_fp32_portable")[1][0], atol=1e-6)


def test_no_inputs_are_ones_and_it_says_so(cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", in0=np.ones((2, 4), np.float32))
    cli("run", LINEAR, "--inputs", tmp_path / "x.npz", "--output", tmp_path / "given.npz")
    result = cli("run", LINEAR, "--output", tmp_path / "ones.npz")
    assert "filled with ones" in result.err
    assert (tmp_path / "ones.npz").read_bytes() == (tmp_path / "given.npz").read_bytes()


def test_output_bytes_do_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    first = npz_bytes({"a": np.arange(3)})
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert npz_bytes({"a": np.arange(3)}) == first


def test_constant_method_outputs(cli: Cli, tmp_path: Path) -> None:
    for method, expected in (("get_name", "abc"), ("get_dim", 32), ("get_flag", True)):
        result = cli("run", GOLDEN / "multi_method.pte", "--method", method, "--output", tmp_path / "y.npz")
        assert (result.code, result.err) == (0, "")
        assert np.load(tmp_path / "y.npz")["out0"].item() == expected


def test_quiet_prints_nothing(cli: Cli, tmp_path: Path) -> None:
    result = cli("run", LINEAR, "--quiet", "--output", tmp_path / "y.npz")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert (tmp_path / "y.npz").exists()


def test_repeat_gives_the_outputs_of_one_run(cli: Cli, tmp_path: Path) -> None:
    stateful = GOLDEN / "mutable_buffer.pte"
    cli("run", stateful, "--output", tmp_path / "one.npz")
    result = cli("run", stateful, "--output", tmp_path / "five.npz", "--repeat", 5)
    assert "median of 5" in result.out
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "five.npz").read_bytes()


def test_profiles(cli: Cli, tmp_path: Path) -> None:
    paths = ("--etdump_path", tmp_path / "p.etdp", "--chrome-trace", tmp_path / "t.json")
    result = cli("run", LINEAR, "--profile", "--repeat", 3, *paths)
    assert "aten::addmm.out" in result.out
    dump = read_etdump(tmp_path / "p.etdp")
    assert [run.name for run in dump.run_data or ()] == ["Execute"] * 3
    names = [event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]]
    assert names.count("aten::addmm.out") == 3


def test_external_data(cli: Cli, tmp_path: Path) -> None:
    model = GOLDEN / "mlp_ptd_portable.pte"
    inputs, expected = recorded("mlp_ptd_portable")
    np.savez(tmp_path / "x.npz", in0=inputs[0])
    arguments = ("run", model, "--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert cli(*arguments, "--data", GOLDEN / "mlp_portable_weights.ptd").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["out0"], expected[0], rtol=1e-5, atol=1e-6)
    result = cli(*arguments)
    assert result.code == 6
    assert "a.weight" in result.err
    assert "--data" in result.err


# -------------------------------------------------------------------------------------------------------- lists


@pytest.mark.parametrize("spelling", ["--input_list_path", "--input-list-path"])
def test_list_of_raw_files(cli: Cli, tmp_path: Path, spelling: str) -> None:
    x = linear_input()
    x.tofile(tmp_path / "a.raw")
    (2 * x).tofile(tmp_path / "b.raw")
    (tmp_path / "list.txt").write_text(f"# two inferences\n{tmp_path}/a.raw\n\nin0:={tmp_path}/b.raw\n")
    folder = tmp_path / "out" / "deep"
    arguments = ("--output_folder_path", folder, "--output", tmp_path / "y.npz")
    result = cli("run", LINEAR, spelling, tmp_path / "list.txt", *arguments)
    assert result.code == 0
    assert "2 inferences" in result.out
    assert sorted(p.name for p in folder.iterdir()) == ["output_0_0.raw", "output_1_0.raw"]
    first = np.fromfile(folder / "output_0_0.raw", np.float32).reshape(2, 3)
    np.testing.assert_allclose(first, recorded("linear_fp32_portable")[1][0], rtol=1e-5, atol=1e-6)
    with np.load(tmp_path / "y.npz") as stored:
        assert stored.files == ["0.out0", "1.out0"]
        np.testing.assert_array_equal(stored["0.out0"], first)


def test_list_beside_its_files_and_named_inputs(cli: Cli, tmp_path: Path) -> None:
    flag, x = recorded("cond")[0]
    flag.tofile(tmp_path / "flag.raw")
    x.tofile(tmp_path / "x.raw")
    (tmp_path / "list.txt").write_text("in1:=x.raw in0:=flag.raw\n")
    arguments = ("--input_list_path", tmp_path / "list.txt", "--output", tmp_path / "y.npz")
    assert cli("run", GOLDEN / "cond.pte", *arguments).code == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["out0"], recorded("cond")[1][0])


def test_raw_rows_of_a_dynamic_input(cli: Cli, tmp_path: Path) -> None:
    x, expected = (arrays[0] for arrays in recorded("mlp_dynshape_portable"))
    x.tofile(tmp_path / "x.raw")
    (tmp_path / "list.txt").write_text("x.raw\n")
    arguments = ("--input_list_path", tmp_path / "list.txt", "--output_folder_path", tmp_path)
    assert cli("run", DYNAMIC, *arguments).code == 0
    found = np.fromfile(tmp_path / "output_0_0.raw", np.float32).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("absent.raw\n", 3, "cannot be opened"),
        ("short.raw\n", 7, "(32 bytes)"),
        ("short.raw short.raw\n", 7, "takes 1 tensors"),
        ("# nothing\n", 7, "one line per inference"),
        ("\xff", 7, "must be text"),
    ],
)
def test_bad_lists(cli: Cli, tmp_path: Path, text: str, code: int, words: str) -> None:
    (tmp_path / "short.raw").write_bytes(bytes(31))
    (tmp_path / "list.txt").write_bytes(text.encode("latin-1"))
    result = cli("run", LINEAR, "--input_list_path", tmp_path / "list.txt")
    assert result.code == code
    assert words in result.err


# ----------------------------------------------------------------------------------------------------- failures


def one_paragraph(err: str) -> bool:
    lines = err.splitlines()
    return 1 <= len(lines) <= 2 and all(line.startswith("  ") for line in lines[1:])


def test_wrong_file_name(cli: Cli) -> None:
    result = cli("run", "absent.pte")
    assert result.code == 3
    assert "absent.pte: cannot be opened: No such file" in result.err
    assert one_paragraph(result.err)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_wrong_type(cli: Cli, tmp_path: Path, dtype: type) -> None:
    np.savez(tmp_path / "x.npz", in0=linear_input().astype(dtype))
    result = cli("run", LINEAR, "--inputs", tmp_path / "x.npz")
    assert result.code == 7
    assert f"must be float32[2, 4]; got {np.dtype(dtype)}[2, 4]" in result.err
    assert "x.astype('float32')" in result.err
    assert one_paragraph(result.err)


@pytest.mark.parametrize("actual", ["float32", "uint8", "int32"])
def test_small_integers_are_not_made_by_a_cast(actual: str) -> None:
    """It would be without the scale: other numbers, and no error."""
    for expected in ("int8", "uint8", "int16"):
        remedy = dtype_remedy(actual, expected)
        assert "q = round(x / scale) + zero_point" in remedy and "astype" not in remedy
    assert "x.astype('int64')" in dtype_remedy(actual, "int64")


def test_missing_delegate(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "foreign.pte").write_bytes(foreign())
    result = cli("run", tmp_path / "foreign.pte")
    assert result.code == 6
    assert "VulkanBackend" in result.err
    assert one_paragraph(result.err)


def test_truncated_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cut.pte").write_bytes(LINEAR.read_bytes()[:-1])
    result = cli("run", tmp_path / "cut.pte")
    assert result.code == 4
    assert "cut.pte" in result.err
    assert one_paragraph(result.err)


def test_wrong_method(cli: Cli) -> None:
    result = cli("run", LINEAR, "--method", "backward")
    assert result.code == 2
    assert "must be one of forward" in result.err


def test_memory_limit(cli: Cli) -> None:
    result = cli("run", LINEAR, "--max-memory", "100")
    assert result.code == 5
    assert "--max-memory" in result.err
    assert cli("run", LINEAR, "--max-memory", "1K").code == 0


def test_output_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", LINEAR, "--output", tmp_path / "absent" / "y.npz").code == 3
    (tmp_path / "file").write_text("")
    assert cli("run", LINEAR, "--output_folder_path", tmp_path / "file").code == 3


def test_two_sources_of_inputs(cli: Cli) -> None:
    assert cli("run", LINEAR, "--inputs", "x.npz", "--input_list_path", "l.txt").code == 2


def test_repeat_must_be_positive(cli: Cli) -> None:
    assert cli("run", LINEAR, "--repeat", 0).code == 2


def archive(tmp_path: Path, content: bytes, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as file:
        file.writestr("in0.npy", content)
    return tmp_path / "x.npz"


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 40, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 4), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), ",
        "((((((((",
    ],
)
def test_hostile_arrays(cli: Cli, tmp_path: Path, header: str) -> None:
    text = header.encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(32)
    for path in (archive(tmp_path, content), tmp_path / "x.npy"):
        (tmp_path / "x.npy").write_bytes(content)
        result = cli("run", LINEAR, "--inputs", path)
        assert result.code == 7, result.err


def test_truncated_arrays(cli: Cli, tmp_path: Path) -> None:
    metadata = Runtime.get().load_program(LINEAR).load_method("forward").metadata
    np.savez_compressed(tmp_path / "x.npz", in0=linear_input())
    np.save(tmp_path / "x.npy", linear_input())
    for name in ("x.npz", "x.npy"):
        whole = (tmp_path / name).read_bytes()
        for end in range(len(whole)):
            (tmp_path / f"cut-{name}").write_bytes(whole[:end])
            with pytest.raises(InputError):
                load_inputs(str(tmp_path / f"cut-{name}"), metadata)
        assert cli("run", LINEAR, "--inputs", tmp_path / f"cut-{name}").code == InputError.exit_code == 7


def test_other_compression_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = archive(tmp_path, b"\x93NUMPY", zipfile.ZIP_BZIP2)
    assert cli("run", LINEAR, "--inputs", path).code == 7


@pytest.mark.parametrize(("text", "count"), [("512M", 512 << 20), ("2GiB", 2 << 30), ("1.5k", 1536), ("77", 77)])
def test_parse_size(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "1e9"])
def test_parse_size_refuses(cli: Cli, text: str) -> None:
    assert cli("run", LINEAR, f"--max-memory={text}").code == 2


def test_a_missing_twin_is_what_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    program = to_edge_transform_and_lower(
        torch.export.export(torch.nn.Linear(8, 4).eval(), (torch.ones(2, 8),)), partitioner=[Exynos()]
    ).to_executorch()
    with open(tmp_path / "net.pte", "wb") as file:
        program.write_to_file(file)
    assert cli("run", tmp_path / "net.pte").code == 0
    moved = (tmp_path / "net.twin").rename(tmp_path / "kept.bin")
    result = cli("run", tmp_path / "net.pte")
    assert result.code == 6 and "has no host twin" in result.err
    said = " ".join(result.err.split())
    assert "net.twin is not beside it" in said and "--twin PATH" in said and ".ptd" not in said
    assert "program.buffer, written by hand, is the program alone: save it that way, or include the twin" in said
    assert cli("run", tmp_path / "net.pte", "--twin", moved).code == 0


class Exynos(EnnPartitioner):
    """Lowers as for a device; AI LiteCore's output is made up, as it does not run here."""

    def __init__(self) -> None:
        super().__init__([gen_samsung_backend_compile_spec("E9955", simulate_only=True)])

    def lower(self, group: Graph) -> LoweredBackendModule:
        lowered = super().lower(group)
        return LoweredBackendModule(self.backend.id, b"NNC" + bytes(61), {}, {}, bytes(lowered.processed_bytes))


@pytest.fixture(scope="module")
def image_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import edgewright as ew

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.float().mean((2, 3))

    folder = tmp_path_factory.mktemp("image_net")
    for dtype in (torch.float32, torch.uint8):
        exported = torch.export.export(Mean(), (torch.zeros(1, 3, 8, 8, dtype=dtype),))
        ew.to_edge_transform_and_lower(exported).to_executorch().save(folder / f"{str(dtype)[6:]}.pte")
    return folder


def test_an_image_is_an_input(cli: Cli, tmp_path: Path, image_net: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    photo = tmp_path / "photo.png"
    Image.fromarray(pixels).save(photo)
    mean = pixels.astype(np.float64).mean((0, 1))
    normalized = ("--mean", "127", "--std", "128")
    for kind, options, expected in (("uint8", (), mean), ("float32", normalized, (mean - 127) / 128)):
        done = cli("run", image_net / f"{kind}.pte", "--inputs", photo, *options, "--output", tmp_path / "y.npy")
        assert done.code == 0, done.err
        np.testing.assert_allclose(np.load(tmp_path / "y.npy")[0], expected, rtol=1e-5)
    refused = cli("run", image_net / "float32.pte", "--inputs", photo)
    assert (refused.code, "images need the model's mean and std" in refused.err) == (2, True)
    refused = cli("run", image_net / "uint8.pte", "--inputs", photo, *normalized)
    assert (refused.code, "gets the pixels" in refused.err) == (2, True)
    refused = cli("bench", image_net / "uint8.pte", "--inputs", tmp_path / "absent.png")
    assert (refused.code, "no such file" in refused.err) == (3, True)


def test_a_folder_a_missing_batch_and_channels_last(cli: Cli, tmp_path: Path, image_net: Path) -> None:
    done = cli("run", tmp_path)
    assert done.code == 3 and "Name a file in it" in done.err
    for shape, remedy in (
        ((3, 8, 8), "x[None]"),
        ((1, 1, 3, 8, 8), "x[0]"),
        ((1, 8, 8, 3), "x.transpose(0, 3, 1, 2)"),
    ):
        np.save(tmp_path / "x.npy", np.ones(shape, np.float32))
        done = cli("run", image_net / "float32.pte", "--inputs", tmp_path / "x.npy")
        assert done.code == 7 and remedy in done.err


def test_shares_of_steps_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a small program, most of an instruction is reading clocks and not its steps: that is a row, and said."""
    profile = Profile()
    for _ in range(3):
        parts = tuple(StepTime(0, 0, f"conv{i}", 20_000 + i * 4000, 24_000 + i * 4000) for i in range(2))
        steps = [StepTime(0, 0, "XnnpackBackend", 0, 80_000, parts), StepTime(0, 1, "aten::add.out", 80_000, 100_000)]
        profile.runs.append(RunTime("forward", 0, 100_000, steps))
    assert outside_parts(profile.rows(), profile.part_rows()) == pytest.approx((0.072, 0.72))
    show_profile(profile, everything=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "outside of steps: calls, and the profile itself 72.0 µs 72.0%" in shown
    assert "`edgewright bench` measures without a profile" in shown

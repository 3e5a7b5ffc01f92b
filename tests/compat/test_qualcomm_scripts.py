"""The helpers of Qualcomm's example scripts: a script in their manner compiles, runs here, and reads its outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgewright.errors import UsageError
from tests.cli.cli import Cli
from tests.cli.test_device_phone import build, own_client, phones, sdk  # noqa: F401
from tests.support.adb_server import StandIn

SCRIPT = """
import numpy as np, torch
from executorch.backends.qualcomm.export_utils import *
from executorch.backends.qualcomm.quantizer.quantizer import QuantDtype

parser = setup_common_args_and_variables()
parser.add_argument("-a", "--artifact", default=".")
parser.add_argument("--float", action="store_true")
args = parser.parse_args()
config = QnnConfig.load_config(args.config_file or args)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
inputs = [(torch.randn(1, 8),) for _ in range(3)]
build_executorch_binary(
    model, config, f"{args.artifact}/net", inputs, None if args.float else QuantDtype.use_8a8w
)
adb = SimpleADB(config, f"{args.artifact}/net.pte", workspace="/data/local/tmp/net")
adb.push(inputs=inputs)
adb.execute()
adb.pull(host_output_path=args.artifact)
adb.pull_etdump(args.artifact)
for n, x in enumerate(inputs):
    found = np.fromfile(f"{args.artifact}/outputs/output_{n}_0.raw", np.float32)
    print(np.abs(found - model(*x).detach().numpy()).max() < 0.05)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qnn.py").write_text(SCRIPT)
    return tmp_path / "qnn.py"


def test_a_script_runs_to_its_end_on_this_machine(cli: Cli, script: Path) -> None:
    done = cli("compat", script, "--soc_model", "SM8650", "--build_folder", "build-android", "--seed", "7")
    assert (done.code, done.out) == (0, "True\nTrue\nTrue\n"), done.err
    assert Path("net.pte").exists() and Path("etdump.etdp").stat().st_size > 100


def test_compile_only_ends_after_the_file(cli: Cli, script: Path) -> None:
    Path("config.json").write_text(json.dumps({"soc_model": "SM8550", "build_folder": "b", "compile_only": True}))
    done = cli("compat", script, "--config_file", "config.json", "--float")
    assert (done.code, done.out) == (0, ""), done.err
    assert Path("net.pte").exists() and not Path("outputs").exists()


def test_a_misspelled_option_of_a_config_file_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from edgewright.backends.qualcomm.export_utils import QnnConfig

    path = tmp_path / "config.json"
    path.write_text(json.dumps({"soc_model": "SM8550", "profile_levl": 2}))
    assert QnnConfig.load_config(str(path)).profile_level == 0
    assert "'profile_levl' is not an option" in caplog.text and "profile_level" in caplog.text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--backend", "gpu", "--soc_model", "SM8650"], "must be htp"),
        (["--soc_model", "SM1"], "must be one of"),
        ([], "--soc_model SM8650"),
        (["--soc_model", "SM8650", "--online_prepare"], "is not supported"),
    ],
)
def test_what_is_refused(cli: Cli, script: Path, options: list[str], told: str) -> None:
    done = cli("compat", script, *options)
    assert done.code == UsageError.exit_code
    assert told in done.err


@pytest.mark.slow
def test_a_script_runs_on_the_phone_that_it_names(
    cli: Cli, script: Path, build: Path, sdk: Path, phones: list[StandIn],  # noqa: F811
    own_client: None, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    """``-s SERIAL``: the outputs that are compared with the model are the phone's."""
    options = ("-b", build, "-m", "SM8550", "--seed", "7")
    assert cli("compat", script, *options, "--compile_only").code == 0
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk))  # a stand-in, which has libraries for phones only
    runner = build / "examples/qualcomm/executor_runner/qnn_executor_runner"
    runner.write_text(runner.read_text().replace("exec", "unset QNN_SDK_ROOT; exec", 1))
    done = cli("compat", script, *options, "-s", "ABC123", "--pre_gen_pte", ".")
    assert (done.code, done.out.splitlines()[-3:]) == (0, ["True"] * 3), done.err
    assert "ADSP_LIBRARY_PATH is" in done.out and "Model executed successfully" in done.out
    there = {path.name for path in (phones[0].root / "data/local/tmp/net").iterdir()}
    assert {"net.pte", "qnn_executor_runner", "libQnnHtp.so", "_input_2_0.raw", "input_list.txt"} <= there
    assert Path("etdump.etdp").stat().st_size > 100


def test_a_phone_that_is_not_there(cli: Cli, script: Path, phones: list[StandIn], own_client: None) -> None:  # noqa: F811
    done = cli("compat", script, "-b", "build-android", "-m", "SM8550", "-s", "XYZ")
    assert done.code not in (0, 1)
    assert "XYZ" in done.err and "ABC123" in done.err


def test_raw_inputs_and_their_list(tmp_path: Path) -> None:
    from edgewright.backends.qualcomm.export_utils import generate_inputs

    x, y = np.arange(3, dtype=np.float32), np.arange(2, dtype=np.int64)
    listed, files = generate_inputs(str(tmp_path), "list.txt", [(x, [y]), (x, [y])])
    assert listed is not None
    assert Path(listed).read_text() == "_input_0_0.raw _input_0_1.raw\n_input_1_0.raw _input_1_1.raw\n"
    assert np.array_equal(np.fromfile(files[3], np.int64), y)
    assert generate_inputs(str(tmp_path), "list.txt") == (None, [])

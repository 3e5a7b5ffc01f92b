"""NXP's converter, by a stand-in with its interface: what it is told, what it gives, and when it is absent."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgewright import read_program
from edgewright.backends.nxp import (
    NeutronPartitioner,
    NeutronQuantizer,
    NeutronTargetSpec,
    generate_neutron_compile_spec,
    sdk,
)
from edgewright.backends.nxp.blob import Blob, read_blob, write_blob
from edgewright.backends.nxp.target import converter_options
from edgewright.errors import EdgewrightError, FormatError, MissingError, UsageError, VendorError
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends.nxp.lowered import Lowered

FOLDER = Path(__file__).parent / "standin"


class Two(nn.Module):
    """One input, two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv(x)
        return torch.relu(x), torch.sigmoid(x)


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in [n for n in sys.modules if n.startswith(sdk.PACKAGE)]:
        del sys.modules[name]


def _lowered(**options: Any) -> Any:
    torch.manual_seed(0)
    given = {"simulate_only": False, **options}
    return Lowered(Two(), (torch.randn(1, 3, 8, 8),), **given)


def _payload(lowered: Any) -> bytes:
    program = read_program(lowered.buffer)
    (delegate,) = [d for plan in program.execution_plan for d in plan.delegates]
    return bytes(program.blob(delegate))


def _pure(version: int = 0) -> bytes:
    words = [0] * 21
    words[0], words[6], words[7], words[9] = 0x64434D6E, 84, 40, 64
    words[13 if version else 11], words[14 if version else 12] = 1, 2
    parts = (struct.pack("<21I", *words), bytes(range(40)), bytes(range(100, 120)))
    return b"".join(p + bytes(-len(p) % 16) for p in parts)


@pytest.mark.usefixtures("standin")
def test_the_payload_is_the_specified_one_byte_for_byte() -> None:
    assert _payload(_lowered()) == bytes.fromhex("01020100000000000100") + bytes(6) + _pure()


@pytest.mark.usefixtures("standin")
def test_profiling_is_the_other_version() -> None:
    blob = read_blob(_payload(_lowered(use_profiling=True)))
    assert blob.version == 1 and tuple(blob.input_flags) == (0,)


@pytest.mark.usefixtures("standin")
def test_inputs_and_outputs_may_be_transposed_by_the_runtime() -> None:
    blob = read_blob(_payload(_lowered(use_neutron_for_format_conversion=False)))
    assert (tuple(blob.input_flags), tuple(blob.output_flags)) == ((1,), (1, 1))


@pytest.mark.usefixtures("standin")
def test_files_between_are_kept(tmp_path: Path) -> None:
    _lowered(intermediates_dir=str(tmp_path / "made"))
    assert {p.name for p in (tmp_path / "made").iterdir()} == {"tag0_pure.et.tflite", "tag0_neutron.et.tflite"}


@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize(("how", "said"), [("crash", "139"), ("refuse", "one NeutronGraph")])
def test_failures_of_the_converter_are_errors(how: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", how)
    with pytest.raises(VendorError, match=said):
        _lowered()


def test_a_flavor_is_the_package_of_that_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The converter of an older release, installed; the SDK's own name is not."""
    shutil.copytree(FOLDER / sdk.PACKAGE, tmp_path / "neutron_converter_SDK_25_06")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not sdk.is_installed() and sdk.is_installed("SDK_25_06")
    lowered = _lowered(neutron_converter_flavor="SDK_25_06")
    assert _payload(lowered) == bytes.fromhex("01020100000000000100") + bytes(6) + _pure()
    (delegate,) = [d for plan in read_program(lowered.buffer).execution_plan for d in plan.delegates]
    specs = {s.key: bytes(s.value) for s in delegate.compile_specs or ()}
    assert specs["neutron_converter_flavor"] == b"SDK_25_06"
    with pytest.raises(UsageError, match="letters, digits and _"):
        _lowered(neutron_converter_flavor="../elsewhere")


@pytest.mark.usefixtures("standin")
def test_extra_flags_are_options_of_the_converter() -> None:
    profiled = _payload(_lowered(extra_flags="--use-profiling-of-stand-in"))
    assert read_blob(profiled).version == 1
    with pytest.raises(UsageError, match=r"useProfilingOfStandin.*\n.*useProfilingOfStandIn"):
        _lowered(extra_flags="--useProfilingOfStandin")


def test_a_wrong_option_among_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    names = " ".join(f"optionOfTheConverter{n}" for n in range(200))
    printed = f"{sdk.UNKNOWN_OPTION}optionOfTheConverter; it has {names}".encode()
    monkeypatch.setattr(sdk, "require", lambda _: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, b"", printed))
    with pytest.raises(UsageError, match=r"extra_flags: option of NXP.s converter: must be one of option"):
        sdk.convert(b"", "imxrt700", extra={"optionOfTheConverter": True})


@pytest.mark.parametrize(("flags", "words"), [
    ("--use-profiling", "use_profiling=True"), ("fetchConstantsToSRAM", "fetch_constants_to_sram=True"),
    ("--=3", "--name=value"), (7, "a string"),
])  # fmt: skip
def test_extra_flags_that_are_no_options(flags: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        generate_neutron_compile_spec("imxrt700", extra_flags=flags)


def test_values_of_extra_flags() -> None:
    options = converter_options("--min-num-ops-per-graph=2 exclude_graph_passes=A,B --verbose --dump=false")
    assert options == {"minNumOpsPerGraph": 2, "excludeGraphPasses": "A,B", "verbose": True, "dump": False}


@pytest.mark.usefixtures("standin")
def test_chips_that_only_the_sdk_knows() -> None:
    assert NeutronTargetSpec("imx95").is_subsystem()
    with pytest.raises(UsageError, match="imxrt700"):
        NeutronTargetSpec("imx0")


@pytest.mark.usefixtures("standin")
def test_the_file_needs_its_twin_to_run_here() -> None:
    from edgewright.program.config import ExecutorchBackendConfig

    lowered = _prepared()
    x = torch.randn(1, 3, 8, 8)
    simulated = _lowered(simulate_only=True)
    embedded = lowered.to_executorch(ExecutorchBackendConfig(host_twin="embed")).buffer
    made = Runtime.get().load_program(embedded).load_method("forward").execute([x.numpy()])
    for a, b in zip(made, simulated.method.execute([x.numpy()]), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))
    with pytest.raises(EdgewrightError, match="host twin"):
        Runtime.get().load_program(lowered.to_executorch().buffer).load_method("forward").execute([x.numpy()])


def _prepared() -> Any:
    from edgewright.backends.nxp import calibrate_and_quantize, generate_neutron_compile_spec

    torch.manual_seed(0)
    model, x = Two().eval(), torch.randn(1, 3, 8, 8)
    quantized = calibrate_and_quantize(torch.export.export(model, (x,)), [(x,)], NeutronQuantizer())
    partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700"), NeutronTargetSpec("imxrt700"))
    return to_edge_transform_and_lower(torch.export.export(quantized, (x,)), partitioner=[partitioner])


def test_without_the_sdk_the_error_names_it_and_the_way_around() -> None:
    assert not sdk.is_installed()
    with pytest.raises(MissingError, match="eiq_neutron_sdk") as caught:
        _lowered()
    for word in ("https://eiq.nxp.com/repository", "eiq-neutron-sdk", "--simulate-only"):
        assert word in str(caught.value)
    with pytest.raises(MissingError, match="neutron_converter_SDK_25_06"):
        _lowered(neutron_converter_flavor="SDK_25_06")


def test_simulate_only_files_say_so() -> None:
    lowered = _lowered(simulate_only=True)
    assert b"will not run on the chip" in lowered.buffer


# -------------------------------------------------------------------------------------------------- hostile blobs


def _example() -> bytes:
    return write_blob(Blob(_pure()[:84], bytes(40), bytes(20), 1, (0,), (0, 0), (0,), (1, 0)))


def test_blobs_come_back() -> None:
    blob = read_blob(_example())
    assert (blob.arguments, tuple(blob.output_map), len(blob.weights)) == (1, (1, 0), 40)


def test_truncated_and_changed_blobs_are_typed_errors_or_blobs() -> None:
    data = _example()
    for end in range(96):
        with pytest.raises(FormatError):
            read_blob(data[:end])
    for at in range(112):
        for byte in (0, 1, 0x7F, 0xFF):
            try:
                read_blob(data[:at] + bytes([byte]) + data[at + 1 :])
            except FormatError:
                continue


def test_a_converter_that_cannot_be_imported_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgewright.backends.nxp.convert", '{"module": "nothing_here"}'], input=b"",
        capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode and b"nothing_here" in done.stderr

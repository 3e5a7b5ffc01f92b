"""``Inspector`` under ``compat``: profiles joined to the model's lines; records that are no records are refused."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch

from edgewright import to_edge_transform_and_lower
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.compat.inspector import Inspector, TimeScale
from edgewright.errors import EdgewrightError, FormatError, UsageError
from edgewright.formats.etdump import ETDump, Event, ProfileEvent, RunData, write_etdump
from edgewright.formats.etrecord import IDENTIFIER, read_record
from edgewright.runtime import Profile, Runtime


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the profile of three runs, and the record of the program."""
    folder = tmp_path_factory.mktemp("inspected")
    x = torch.randn(2, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    program = to_edge_transform_and_lower(torch.export.export(model, (x,)), partitioner=[XnnpackPartitioner()])
    finished = program.to_executorch()
    finished.get_etrecord().save(folder / "m.etrecord")
    profile, method = Profile(), Runtime.get().load_program(finished.buffer).load_method("forward")
    for _ in range(3):
        method.execute([x.numpy()], profile=profile)
    profile.save_etdump(folder / "m.etdp")
    return folder


def test_runs_are_joined_and_shown(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspector = Inspector(etdump_path=str(made / "m.etdp"), etrecord=str(made / "m.etrecord"))
    (block,) = inspector.event_blocks
    (call,) = (e for e in block.events if e.name == "DELEGATE_CALL")
    assert call.perf_data is not None and len(call.perf_data.raw) == len(call.start_time or ()) == 3
    assert call.perf_data.min <= call.perf_data.p10 <= call.perf_data.p50 <= call.perf_data.p90 <= call.perf_data.max
    assert call.delegate_backend_name == "XnnpackBackend" and {"linear.default", "relu.default"} <= set(call.op_types)
    assert inspector.find_total_for_module("0") == pytest.approx(call.perf_data.avg)
    assert inspector.find_total_for_module("none") == 0
    inspector.print_data_tabular()
    assert "DELEGATE_CALL" in capsys.readouterr().out
    table = io.StringIO()
    inspector.save_data_to_tsv(table)
    assert table.getvalue().splitlines()[0].split("\t")[1:3] == ["event_block_name", "event_name"]
    frame = inspector.to_dataframe()
    assert list(frame["event_name"])[-1] == "Method::execute"


def test_units_and_clocks_that_start_again() -> None:
    events = [
        Event(profile_event=ProfileEvent(name="a", instruction_id=0, start_time=start, end_time=end))
        for start, end in ((1000, 3000), (2**32 - 500, 500))
    ]
    data = write_etdump(ETDump(run_data=[RunData(name="Execute", events=events)]))
    inspector = Inspector(etdump_data=data, target_time_scale=TimeScale.US)
    assert inspector.event_blocks[0].events[0].perf_data.raw == [2.0, 1.0]  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="cycles"):
        Inspector(etdump_data=data, source_time_scale=TimeScale.CYCLES)
    late = ProfileEvent(name="a", instruction_id=0, start_time=2**40, end_time=1)
    data = write_etdump(ETDump(run_data=[RunData(name="Execute", events=[Event(profile_event=late)])]))
    with pytest.raises(FormatError, match="before it starts"):
        Inspector(etdump_data=data)


def test_a_record_that_is_cut_or_changed_is_refused(made: Path) -> None:
    whole = (made / "m.etrecord").read_bytes()
    for size in range(0, len(whole), 97):
        with pytest.raises(EdgewrightError):
            read_record(whole[:size])
    for position in range(0, len(whole), 61):
        changed = bytearray(whole)
        changed[position] ^= 0xFF
        try:
            read_record(bytes(changed))
        except EdgewrightError:
            continue


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("debug_handle_map", "[1]"),
        ("debug_handle_map", '{"forward": {"x": 1}}'),
        ("debug_handle_map", "[" * 100_000),
        ("delegate_map", "{"),
        ("edge_dialect_exported_program/forward", '{"graph_module": 3}'),
    ],
)
def test_texts_that_are_none(name: str, text: str) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(IDENTIFIER, "")
        file.writestr(name, text)
    with pytest.raises(FormatError):
        read_record(data.getvalue())

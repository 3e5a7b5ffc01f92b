"""``.pt2`` files: weights are mapped where they can be and read where they cannot; bad files are typed errors."""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

import pytest
import torch
from torch.export.pt2_archive import _package

from edgewright.errors import FileAccessError, FormatError
from edgewright.frontend.export import export
from edgewright.frontend.pt2 import load_pt2


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(64, 64)
        self.head = torch.nn.Linear(64, 64, bias=False)
        self.head.weight = self.fc.weight
        self.register_buffer("scale", torch.full((64,), 2.0, dtype=torch.float16))
        self.register_buffer("nothing", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.fc(x)) * self.scale + self.nothing.sum()


X = torch.linspace(-1, 1, 64).reshape(1, 64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    torch.export.save(export(Net(), (X,)), tmp_path / "net.pt2")
    return tmp_path / "net.pt2"


def mapped(tensor: torch.Tensor, path: Path) -> bool:
    regions = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    bounds = [[int(end, 16) for end in region[0].split("-")] for region in regions]
    return any(low <= tensor.data_ptr() < high for low, high in bounds)


def check(program: torch.export.ExportedProgram) -> None:
    torch.testing.assert_close(program.module()(X), Net()(X))
    assert isinstance(program.state_dict["fc.weight"], torch.nn.Parameter)
    assert program.state_dict["fc.weight"].requires_grad


def test_weights_are_mapped_and_the_file_is_never_written_to(path: Path) -> None:
    before = path.read_bytes()
    program = load_pt2(str(path))
    check(program)
    for tensor in program.state_dict.values():
        assert not tensor.numel() or mapped(tensor, path)
        tensor.data.zero_()
    assert program.module()(X).count_nonzero() == 0
    assert path.read_bytes() == before


def test_what_cannot_be_mapped_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("edgewright.frontend.pt2._map_record", lambda *_: None)
    with caplog.at_level(logging.INFO, "edgewright"):
        program = load_pt2(str(path))
    check(program)
    assert not mapped(program.state_dict["fc.weight"], path)
    assert "cannot be mapped" in caplog.text


def test_packed_archives_are_read(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.pt2"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            new.writestr(item.filename, old.read(item), zipfile.ZIP_DEFLATED)
    program = load_pt2(str(packed))
    check(program)
    assert not mapped(program.state_dict["fc.weight"], packed)


def test_releases_that_read_another_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewright.frontend.pt2._HOOK", "no_such_function")
    check(load_pt2(str(path)))


def test_torch_is_left_as_it_was(path: Path) -> None:
    before = _package._build_file_map
    load_pt2(str(path))
    assert _package._build_file_map is before
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(FormatError):
        load_pt2(str(path))
    assert _package._build_file_map is before


def test_cut_files(path: Path) -> None:
    whole = path.read_bytes()
    for end in (0, 1, 4, 30, 100, len(whole) // 2, len(whole) - 100, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(FormatError, match=r"torch\.export\.load cannot read it"):
            load_pt2(str(path))


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.pt2"):
        with pytest.raises(FileAccessError):
            load_pt2(str(path))

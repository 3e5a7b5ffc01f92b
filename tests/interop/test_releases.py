"""Files that every release wrote are read, and give what they gave then."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright._version import VERSION
from edgewright.cli import main
from edgewright.errors import MissingDataError
from edgewright.formats import read_program
from edgewright.formats.etdump import read_etdump
from edgewright.formats.ptd import read_data
from edgewright.formats.twin_reader import read_twin
from edgewright.program import manifest
from edgewright.runtime import Runtime

RELEASES = Path(__file__).parents[1] / "golden" / "releases"
FACTS: dict[str, dict[str, Any]] = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(RELEASES.glob("*/facts.json"))
}
PROGRAMS = [(version, name) for version, facts in FACTS.items() for name in facts["programs"]]
KINDS = {".bpte", ".etdp", ".ptd", ".pte", ".twin"}
BACKENDS = {"EnnBackend", "EthosUBackend", "NeutronBackend", "QnnBackend", "XnnpackBackend"}


@pytest.fixture(autouse=True)
def twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written down is what twins gave, on every machine."""
    monkeypatch.setenv("EDGEWRIGHT_QNN", "twin")


@pytest.mark.parametrize(("version", "name"), PROGRAMS)
def test_programs_give_what_they_gave(version: str, name: str) -> None:
    folder, facts = RELEASES / version, FACTS[version]["programs"][name]
    program = Runtime.get().load_program(folder / f"{name}.pte", [folder / data for data in facts["data"]])
    assert list(program.metadata().delegates) == facts["delegates"]
    method = program.load_method()
    with np.load(folder / f"{name}.npz") as arrays:
        for call in range(facts["calls"]):
            (found,) = method.execute([arrays[f"{call}.in"]])
            wanted = arrays[f"{call}.out"]
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=facts["tolerance"], atol=facts["tolerance"])


@pytest.mark.parametrize(("version", "name"), PROGRAMS)
def test_manifests_say_which_release_wrote_them(version: str, name: str) -> None:
    found = manifest.read(read_program(RELEASES / version / f"{name}.pte"))
    assert found is not None and found["edgewright"] == FACTS[version]["version"]


@pytest.mark.parametrize("version", FACTS)
def test_bundles_verify(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(RELEASES / version / "bundled.bpte")]) == 0


@pytest.mark.parametrize("version", FACTS)
def test_profiles_have_their_events(version: str) -> None:
    (run,) = read_etdump(RELEASES / version / "profile.etdp").run_data
    events = [event.profile_event for event in run.events]
    found = [[e.name, e.instruction_id, e.start_time, e.end_time] for e in events if e is not None]
    assert found == FACTS[version]["profile"]["events"]


@pytest.mark.parametrize("version", FACTS)
def test_weights_and_twins_are_needed(version: str, tmp_path: Path) -> None:
    """A file that would run without what lies beside it would show nothing about that."""
    folder = RELEASES / version
    with pytest.raises(MissingDataError, match="needs external tensors"):
        Runtime.get().load_program(folder / "portable_external.pte").load_method()
    assert all(read_data(path) for path in folder.glob("*.ptd"))
    for path in folder.glob("*.twin"):
        assert read_twin(path, 1 << 30)
        with pytest.raises(MissingDataError, match="has no host twin"):
            Runtime.get().load_program(path.with_suffix(".pte").read_bytes()).load_method()


def test_every_release_has_files_of_every_kind() -> None:
    """The version under way, and every one that the changelog lists before it."""
    changelog = (RELEASES.parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    listed = re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert set(listed) <= {VERSION, *FACTS} and VERSION in listed
    for version, facts in FACTS.items():
        found = {path.suffix for path in (RELEASES / version).iterdir()}
        assert found >= KINDS
        assert {d for program in facts["programs"].values() for d in program["delegates"]} >= BACKENDS

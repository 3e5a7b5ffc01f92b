"""The two modules of a source build of ExecuTorch: found by their files, used as stock uses them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgewright.backends.samsung import gen_samsung_backend_compile_spec
from edgewright.backends.samsung.graph_record import record_graph
from edgewright.backends.samsung.sdk import Sdk, find_sdk
from edgewright.backends.samsung.target import EnnTarget
from edgewright.backends.samsung.worker import compile_graph
from edgewright.errors import VendorError
from tests.backends.samsung.networks import device_graphs, mixed
from tests.backends.samsung.standin_sdk import plain

STANDINS = Path(__file__).parent / "adaptors"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree like that of a source build, before everything else that is installed."""
    folder = tmp_path
    for name in ("executorch", "backends", "samsung", "python"):
        folder = folder / name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    for module in STANDINS.glob("Py*.py"):
        shutil.copy(module, folder)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("EXYNOS_AI_LITECORE_ROOT", raising=False)


@pytest.mark.usefixtures("built")
def test_graphs_are_described_to_the_adaptors_and_their_bytes_are_the_blob() -> None:
    model, inputs = mixed()
    (graph,) = device_graphs(model, inputs)
    assert find_sdk() == Sdk(None)
    spec = gen_samsung_backend_compile_spec("E9955")
    head, told = compile_graph(graph, EnnTarget.of([spec])).split(b"\n", 1)
    assert json.loads(head) == {"options": spec.value.hex()}
    assert json.loads(told) == json.loads(json.dumps(plain(record_graph(graph))))


@pytest.mark.usefixtures("built")
def test_a_chip_that_the_adaptors_do_not_know_is_an_error_of_ours() -> None:
    model, inputs = mixed()
    (graph,) = device_graphs(model, inputs)
    with pytest.raises(VendorError, match="AI LiteCore: must return a compiled graph"):
        compile_graph(graph, EnnTarget.of([gen_samsung_backend_compile_spec("E9965")]))


def test_nothing_is_found_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXYNOS_AI_LITECORE_ROOT", raising=False)
    assert find_sdk() is None

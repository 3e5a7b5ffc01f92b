"""The registry: three sources, one precedence, and nothing imported before it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.backends import discover, registry
from edgewright.backends.info import BackendInfo
from edgewright.backends.registry import (
    InstalledBackend,
    available_delegates,
    describe_backend,
    find_delegate,
    find_provider,
    in_order,
    register_backend,
)
from edgewright.errors import UsageError
from edgewright.ir.graph import Array
from edgewright.runtime import DelegateBase, Runtime, register_delegate
from tests.support import golden

ROOT = Path(__file__).parents[2]
OURS = ["ethos_u", "nxp", "qualcomm", "samsung", "xnnpack"]


@pytest.fixture(autouse=True)
def application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})


def entry_points(monkeypatch: pytest.MonkeyPatch, *infos: BackendInfo) -> None:
    installed = tuple(InstalledBackend(info.name, "1.0", info) for info in infos)
    monkeypatch.setattr(registry, "installed_backends", lambda: installed)


# -------------------------------------------------------------------------------------------------------------- ours


@pytest.mark.parametrize("name", OURS)
def test_every_reference_leads_somewhere(name: str) -> None:
    info = discover()[name]
    references = {k: v for k, v in vars(info).items() if isinstance(v, str) and v.startswith(".")}
    assert {"table", "partitioner", "quantizer", "delegate", "compat"} <= set(references)
    for member, reference in references.items():
        assert info.load(reference) is not None, member
    for need in info.load(info.requirements) if info.requirements else ():
        for reference in (v for v in vars(need).values() if isinstance(v, str) and v.startswith(".")):
            assert callable(info.load(reference))


def test_names_and_ids_are_unique() -> None:
    assert list(discover()) == OURS and len({info.id for info in discover().values()}) == len(OURS)
    assert [info.name for info in in_order()] == ["xnnpack", "ethos_u", "qualcomm", "samsung", "nxp"]


# -------------------------------------------------------------------------------------------------------- precedence


def delegate_of(source: str) -> type[DelegateBase]:
    return type(source, (DelegateBase,), {"input_count": 1, "execute": lambda self, inputs: inputs})


def test_the_application_precedes_the_folder_precedes_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, installed, own = find_delegate("XnnpackBackend"), delegate_of("installed"), delegate_of("own")
    other = BackendInfo("xnnpack", id="XnnpackBackend", title="Another", table="other:BACKEND", delegate=installed)
    entry_points(monkeypatch, other, BackendInfo("third", id="ThirdBackend", delegate=installed))
    assert find_delegate("XnnpackBackend") is ours and discover()["xnnpack"] is not other
    assert find_delegate("ThirdBackend") is installed
    register_delegate("XnnpackBackend", own)  # type: ignore[arg-type]
    register_delegate("ThirdBackend", own)  # type: ignore[arg-type]
    assert find_delegate("XnnpackBackend") is find_delegate("ThirdBackend") is own
    newer = delegate_of("newer")
    register_delegate("XnnpackBackend", newer)  # type: ignore[arg-type]
    assert find_delegate("XnnpackBackend") is newer


def test_a_source_without_a_member_leaves_it_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who registers a delegate for QNN's blobs still gets our disassembler, title and table."""
    entry_points(monkeypatch, BackendInfo("gadget", id="GadgetBackend", delegate=delegate_of("gadget")))
    register_delegate("QnnBackend", delegate_of("own"))  # type: ignore[arg-type]
    provider = find_provider("QnnBackend", lambda info: info.disassemble)
    assert provider is not None and provider.name == "qualcomm"
    assert describe_backend("QnnBackend") == "QnnBackend (Qualcomm AI Engine Direct)"
    assert list(discover()) == OURS
    register_backend(BackendInfo("gadget-compiler", id="GadgetBackend", title="Gadget", table="gadget:BACKEND"))
    assert find_delegate("GadgetBackend").__name__ == "gadget"  # type: ignore[union-attr]
    assert describe_backend("GadgetBackend") == "GadgetBackend (Gadget)"
    assert "gadget-compiler" in discover() and "GadgetBackend" in available_delegates()
    register_backend(BackendInfo("abacus", table="abacus:BACKEND"))
    register_delegate("abacus", delegate_of("abacus"))  # type: ignore[arg-type]
    assert "abacus" in discover() and find_delegate("abacus") is not None


def test_ids_that_nobody_has() -> None:
    assert find_delegate("NoBackend") is None
    assert describe_backend("NoBackend") == "NoBackend"
    assert describe_backend("CoreMLBackend") == "CoreMLBackend (Apple Core ML)"


def test_only_descriptions_are_registered() -> None:
    wrong: Any = "edgewright.backends.xnnpack"
    with pytest.raises(UsageError, match="must be a BackendInfo; got str"):
        register_backend(wrong)


def test_a_delegate_of_the_application_runs_our_files() -> None:
    case = next(golden.cases("linear_fp32_xnnpack"))

    class Zeros(DelegateBase):
        input_count = 1

        def __init__(self, blob: object) -> None: ...

        def execute(self, inputs: Sequence[Array]) -> list[Array]:
            return [np.zeros_like(case.outputs[0])]

    register_delegate("XnnpackBackend", Zeros)
    (found,) = Runtime.get().load_program(golden.path("linear_fp32_xnnpack")).load_method().execute(case.inputs)
    assert not found.any()


# ------------------------------------------------------------------------------------------------------------ laziness


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_running_a_file_imports_its_delegate_and_nothing_of_the_others() -> None:
    path = golden.path("linear_fp32_xnnpack")
    loaded = modules_after(
        f"from edgewright.runtime import Runtime\nRuntime.get().load_program({str(path)!r}).load_method()"
    )
    assert "edgewright.backends.xnnpack.delegate" in loaded
    inside = {name for name in loaded if name.startswith("edgewright.backends.") and name.count(".") > 2}
    assert {name.split(".")[2] for name in inside} == {"xnnpack"}
    for unused in ("ops", "quantizer", "partitioner", "compat_names"):
        assert f"edgewright.backends.xnnpack.{unused}" not in loaded
    assert not {"torch", "importlib.metadata", "edgewright.backends.table"} & loaded


def test_descriptions_import_nothing() -> None:
    loaded = modules_after("from edgewright.backends import registry; assert len(registry._bundled()) == 5")
    ours = {name for name in loaded if name.startswith("edgewright.backends.")}
    assert ours == {f"edgewright.backends.{name}" for name in (*OURS, "info", "registry")}
    assert "numpy" not in loaded


# ----------------------------------------------------------------------------------------------------------- dialects


@pytest.mark.parametrize(
    ("name", "backend"), [("tosa", "ethos_u"), ("tflite", "nxp"), ("qnn", "qualcomm"), ("enn", "samsung")]
)
def test_a_dialect_is_found_by_the_prefix_of_its_kinds(name: str, backend: str) -> None:
    dialect = registry.find_dialect(name)
    assert dialect is not None and dialect.prefix == f"{name}."
    assert type(dialect).__module__ == f"edgewright.backends.{backend}.dialect"


def test_other_prefixes_are_none() -> None:
    assert [registry.find_dialect(name) for name in ("core", "aten", "xnnpack", "")] == [None] * 4


def test_a_dialect_is_imported_when_a_kind_of_it_appears() -> None:
    code = (
        "import sys; from edgewright.backends.registry import find_dialect, all_backends; list(all_backends());"
        "loaded = lambda: sorted(n.split('.')[2] for n in sys.modules if n.endswith('.dialect') and 'backends' in n);"
        "print(loaded()); find_dialect('enn'); print(loaded(), 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.split("\n")[:2] == ["[]", "['samsung'] False"]


def test_an_application_can_replace_a_dialect() -> None:
    ours = registry.find_dialect("tosa")
    assert ours is not None
    other = type(ours)("tosa", "Other", ours.rows, ours.numerics)
    try:
        register_backend(BackendInfo("other", dialects={"tosa": other}))
        assert registry.find_dialect("tosa") is other
    finally:
        registry.find_dialect.cache_clear()


@pytest.mark.parametrize(
    ("dialects", "rule"),
    [
        ({"abacus": "edgewright.backends.nxp.dialect:DIALECT"}, "must be a dialect named 'abacus'.*; got tflite"),
        ({"abacus": "edgewright.backends.nxp.ops:BACKEND"}, "must be a Dialect; got Backend"),
    ],
)
def test_a_reference_that_is_not_the_dialect(dialects: Any, rule: str) -> None:
    register_backend(BackendInfo("abacus", dialects=dialects))
    try:
        with pytest.raises(UsageError, match=f"backend 'abacus': .*{rule}"):
            registry.find_dialect("abacus")
    finally:
        registry.find_dialect.cache_clear()

"""Blobs run on this machine: stock's and ours, by their own commands or by their twins."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright import Runtime
from edgewright.backends.ethos_u import EthosUCompileSpec
from edgewright.backends.ethos_u.blob import read_blob, write_blob
from edgewright.backends.ethos_u.delegate import EthosUDelegate, _warn_about_twin
from edgewright.backends.ethos_u.vela import compile_tosa
from edgewright.engine.profile import Profile
from edgewright.errors import ExecutionError, FormatError, LimitError, MissingDataError
from edgewright.formats import read_program
from edgewright.formats.ptd import read_data
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.graph import Graph, Op, Origin, Value
from edgewright.runtime.delegates import DelegateBlob
from tests.backends.ethos_u.graphs import GRAPHS
from tests.support.golden import GOLDEN

SIMULATED = ["ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256"]


def stored(name: str) -> Any:
    return np.load(GOLDEN / "ethos_u" / f"{name}.npz")


def given(name: str, **options: Any) -> DelegateBlob:
    program = read_program(GOLDEN / "ethos_u" / f"{name}.pte")
    delegate = program.execution_plan[0].delegates[0]
    specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
    return DelegateBlob(delegate.id, bytes(program.blob(delegate)), specs, {}, **options)


@pytest.mark.parametrize("name", ["ethos_u55_128", "ethos_u65_256"])
def test_stocks_blob_gives_what_the_reference_model_gives(name: str) -> None:
    with stored(name) as case:
        (found,) = EthosUDelegate(given(name)).execute([case["in0"]])
        assert (found.reshape(case["out0"].shape) == case["out0"]).all()


@pytest.mark.parametrize("name", ["ethos_u55_128", "ethos_u65_256"])
def test_stocks_program_runs(name: str) -> None:
    """Conversions around the delegate, and dimensions in the order of the file."""
    method = Runtime.get().load_program(GOLDEN / "ethos_u" / f"{name}.pte").load_method()
    with stored(name) as case:
        scale, zero, expected = _scale(name)
        x = ((case["in0"].astype(np.float32) - zero) * scale).transpose(0, 3, 1, 2)
        profile = Profile()
        (found,) = method.execute([x], profile=profile)
        out_scale, out_zero = expected
        real = (case["out0"].astype(np.float32) - out_zero) * np.float32(out_scale)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, real.transpose(0, 3, 1, 2), rtol=1e-6)
    assert any("simulated" in row.name for row in profile.rows())


def _scale(name: str) -> tuple[Any, int, tuple[float, int]]:
    """The parameters of the conversions in the program: of its input, and of its output."""
    (plan,) = read_program(GOLDEN / "ethos_u" / f"{name}.pte").execution_plan
    calls = [i for i in plan.chains[0].instructions if hasattr(i, "op_index")]
    found = []
    for call in calls:
        scale, zero = (plan.values[i] for i in call.args[1:3])
        found.append((scale.double_val, zero.int_val))
    return np.float32(found[0][0]), found[0][1], found[1]


@pytest.mark.parametrize("target", SIMULATED)
@pytest.mark.parametrize("name", GRAPHS)
def test_our_blobs_give_what_the_reference_model_gives(name: str, target: str) -> None:
    import tosa_reference_model

    make, inputs, outputs = GRAPHS[name]
    spec = EthosUCompileSpec(target)
    blob = write_blob(compile_tosa(make(), spec, inputs=inputs, outputs=outputs))
    random = np.random.default_rng(5)
    arrays = [random.integers(-128, 128, t.shape[2:], np.int8) for t in read_blob(blob).inputs]
    expected, _ = tosa_reference_model.run(make(), [a[0] for a in arrays])
    found = EthosUDelegate(DelegateBlob("EthosUBackend", blob, spec.to_compile_specs(), {})).execute(arrays)
    for one, other in zip(found, expected, strict=True):
        assert len(np.unique(other)) > 9
        assert (one.reshape(other.shape) == other).all()


def test_stocks_constants_may_be_in_a_file_of_their_own() -> None:
    path, data = (GOLDEN / "ethos_u" / f"ethos_u55_128_external.{kind}" for kind in ("pte", "ptd"))
    x = np.random.default_rng(3).normal(size=(1, 4, 16, 16)).astype(np.float32)
    (found,) = Runtime.get().load_program(path, data).load_method().execute([x])
    (whole,) = Runtime.get().load_program(GOLDEN / "ethos_u" / "ethos_u55_128.pte").load_method().execute([x])
    assert (found == whole).all()
    with pytest.raises(MissingDataError, match=r"weight_data: is external.*\n.*\.ptd"):
        Runtime.get().load_program(path).load_method()
    program = read_program(path)
    blob = bytes(program.blob(program.execution_plan[0].delegates[0]))
    named = {key: entry.data for key, entry in read_data(data).items()}
    assert write_blob(read_blob(blob, named)) == blob


def test_inputs_are_checked() -> None:
    delegate = EthosUDelegate(given("ethos_u55_128"))
    assert delegate.input_count == 1
    good = np.zeros((1, 16, 16, 4), np.int8)
    assert delegate.execute([good])[0].shape == (1, 1, 1, 4, 4, 16)
    bad: list[tuple[list[Any], str]] = [
        ([], "takes 1 inputs; got 0"),
        ([good, good], "takes 1 inputs; got 2"),
        ([good.astype(np.float32)], "with 1 bytes per element; got float32"),
        ([good.astype(np.int16)], "with 1 bytes per element; got int16"),
        ([good[:, 1:]], r"must have 1024 bytes .*; got \[1, 15, 16, 4\]"),
    ]
    for inputs, message in bad:
        with pytest.raises(ExecutionError, match=message):
            delegate.execute(inputs)


def test_inputs_may_be_strided() -> None:
    delegate = EthosUDelegate(given("ethos_u55_128"))
    x = np.random.default_rng(1).integers(-128, 128, (1, 4, 16, 16), np.int8)
    (turned,) = delegate.execute([x.transpose(0, 2, 3, 1)])
    (copied,) = delegate.execute([np.ascontiguousarray(x.transpose(0, 2, 3, 1))])
    assert (turned == copied).all()


def test_memory_is_bounded() -> None:
    with pytest.raises(LimitError, match="may take 2000 bytes"):
        EthosUDelegate(given("ethos_u55_128", memory=2000))
    blob = read_blob(given("ethos_u55_128").blob)
    huge = write_blob(type(blob)(blob.cmd_data, blob.weight_data, 0xFFFFFFF0, blob.inputs, blob.outputs))
    with pytest.raises(LimitError, match="if you trust the file"):
        EthosUDelegate(DelegateBlob("EthosUBackend", huge, {}, {}, memory=1 << 30))


@pytest.mark.parametrize("flags", [b"--memory-mode=Dedicated_Sram", b"", b"--memory-mode=Mine --arena-cache-size=4096"])
def test_fast_memory_follows_the_flags(flags: bytes) -> None:
    """Blobs do not say how much fast memory they use. With less than they need, they are refused, not run wrongly."""
    held = given("ethos_u65_256")
    with stored("ethos_u65_256") as case:
        (found,) = EthosUDelegate(DelegateBlob(held.backend, held.blob, {"compile_flags": flags}, {})).execute(
            [case["in0"]]
        )
        assert (found.reshape(case["out0"].shape) == case["out0"]).all()
        small = DelegateBlob(held.backend, held.blob, {"compile_flags": b"--arena-cache-size=64"}, {})
        with pytest.raises(FormatError, match="region 2"):
            EthosUDelegate(small).execute([case["in0"]])


# ----------------------------------------------------------------------------------------------------------- twins


def copying_graph() -> Graph:
    """A twin with the sizes of the golden blob's: it keeps the first rows of its input."""
    x = Value("x", np.dtype(np.int8), (1, 16, 16, 4))
    y = Value("y", np.dtype(np.int8), (1, 4, 4, 16))
    x.dim_order = y.dim_order = (0, 1, 2, 3)
    cut = Value("cut", np.dtype(np.int8), (1, 4, 16, 4))
    cut.dim_order = (0, 1, 2, 3)
    origin = Origin("", "")
    graph = Graph("twin", [x], [y])
    graph.ops = [
        Op("tosa.slice", {"input": x, "start": [0, 0, 0, 0], "size": [1, 4, 16, 4]}, [cut], origin),
        Op("tosa.reshape", {"input": cut, "shape": [1, 4, 4, 16]}, [y], origin),
    ]
    return graph


def test_other_npus_run_their_twin_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    held = given("ethos_u85_256")
    digest = hashlib.sha256(held.blob).hexdigest()
    _warn_about_twin.cache_clear()  # it says so once in a process
    with caplog.at_level(logging.WARNING, "edgewright.ethos_u"):
        delegate = EthosUDelegate(given("ethos_u85_256", twin={digest: copying_graph()}.get))
    assert "ethos-u85-256 is not simulated" in caplog.text and "host twin" in caplog.text
    assert "host twin" in delegate.how
    x = np.random.default_rng(2).integers(-128, 128, (1, 16, 16, 4), np.int8)
    assert (delegate.execute([x])[0].reshape(-1) == x.reshape(-1)[:256]).all()


def test_without_a_twin_it_says_what_to_do() -> None:
    with pytest.raises(
        MissingDataError, match=r"has no host twin, .*ethos-u85-256 is not simulated.*\n.*m\.twin beside"
    ):
        EthosUDelegate(given("ethos_u85_256"))


def test_a_twin_is_found_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes((GOLDEN / "ethos_u" / "ethos_u85_256.pte").read_bytes())
    digest = hashlib.sha256(given("ethos_u85_256").blob).hexdigest()
    twin = write_twin({digest: copying_graph()})
    with pytest.raises(MissingDataError):
        Runtime.get().load_program(path).load_method()
    Runtime.get().load_program(path.read_bytes(), twin=twin).load_method().execute(
        [np.ones((1, 4, 16, 16), np.float32)]
    )
    (tmp_path / "m.twin").write_bytes(twin)
    profile = Profile()
    method = Runtime.get().load_program(path).load_method()
    (found,) = method.execute([np.ones((1, 4, 16, 16), np.float32)], profile=profile)
    assert found.shape == (1, 16, 4, 4)
    assert any("host twin" in row.name for row in profile.rows())


def test_a_twin_of_another_blob_is_not_taken(tmp_path: Path) -> None:
    twin = write_twin({"0" * 64: copying_graph()})
    program = Runtime.get().load_program(GOLDEN / "ethos_u" / "ethos_u85_256.pte", twin=twin)
    with pytest.raises(MissingDataError, match="is not in the host twin that was found"):
        program.load_method()


def test_a_twin_must_fit_its_blob() -> None:
    graph = copying_graph()
    graph.outputs = [graph.ops[0].outputs[0], graph.ops[1].outputs[0]]  # type: ignore[list-item]
    with pytest.raises(FormatError, match="must have the sizes of its blob's"):
        EthosUDelegate(given("ethos_u85_256", twin=lambda digest: graph))
    other = copying_graph()
    other.ops[0].kind = "conv9d"
    with pytest.raises(FormatError, match="must be an operator of TOSA; got conv9d"):
        EthosUDelegate(given("ethos_u85_256", twin=lambda digest: other))

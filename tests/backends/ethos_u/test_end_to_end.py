"""From a model to a file that runs here: estimates, twins and specs arrive where people look for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright import ExecutorchBackendConfig, Runtime, to_edge_transform_and_lower
from edgewright.backends.ethos_u import (
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_quantization_config,
)
from edgewright.cli import main
from edgewright.errors import EdgewrightError, MissingDataError
from edgewright.formats import read_program
from edgewright.formats.twin_writer import TWIN_KEY
from edgewright.lowering.estimates import describe
from edgewright.program import manifest
from tests.golden.make_stock_ethos_u import Small

INPUTS = (torch.linspace(-2, 2, 1024).reshape(1, 4, 16, 16),)


def lowered(target: str, **options: Any) -> tuple[Any, Any, EthosUPartitioner]:
    """The edge program of a small network, the quantized model, and the partitioner."""
    torch.manual_seed(0)
    spec = EthosUCompileSpec(target, **options)
    quantizer = EthosUQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(Small().eval(), INPUTS).module(check_guards=False), quantizer)
    prepared(*INPUTS)
    quantized = convert_pt2e(prepared)
    partitioner = EthosUPartitioner(spec)
    return (
        to_edge_transform_and_lower(torch.export.export(quantized, INPUTS), partitioner=[partitioner]),
        quantized,
        partitioner,
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256", "ethos-u65-512", "ethos-u85-256"])
def test_the_file_gives_what_the_model_gives(target: str, tmp_path: Path) -> None:
    edge, quantized, _ = lowered(target)
    edge.to_executorch().save(tmp_path / "m.pte")
    assert (tmp_path / "m.twin").exists() == (target in ("ethos-u65-512", "ethos-u85-256"))
    (found,) = Runtime.get().load_program(tmp_path / "m.pte").load_method().execute([INPUTS[0]])
    expected = quantized(*INPUTS)
    step = float(np.unique(np.abs(np.diff(np.unique(expected.detach().numpy()))))[0])
    assert (found - expected).abs().max() <= 1.01 * step  # the model rounds in floating point
    (edge_found,) = (edge.exported_program().module()(*INPUTS),)
    assert torch.equal(edge_found, found)


def test_estimates_are_in_the_manifest_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edge, _, partitioner = lowered("ethos-u55-128")
    program = edge.to_executorch()
    program.save(tmp_path / "m.pte")
    said = manifest.read(read_program(tmp_path / "m.pte"))
    assert said is not None
    (estimate,) = said["estimates"]
    assert (estimate["basis"], estimate["target"]) == ("Vela's estimate", "ethos-u55-128")
    assert "layers" not in estimate and estimate["cycles"] > 0
    report = partitioner.reports["forward"]
    assert describe(estimate) in str(report)
    told = json.loads(report.to_json())["estimates"][0]
    assert {k: v for k, v in told.items() if k != "layers"} == estimate
    assert sum(layer["macs"] for layer in told["layers"]) == estimate["macs"]
    assert main(["inspect", str(tmp_path / "m.pte")]) == 0
    assert describe(estimate) in capsys.readouterr().out


def test_the_same_model_gives_the_same_bytes() -> None:
    first, second = (lowered("ethos-u55-128")[0].to_executorch().buffer for _ in range(2))
    assert first == second


def test_twins_travel_beside_the_file_or_in_it(tmp_path: Path) -> None:
    edge, _, _ = lowered("ethos-u85-256")
    edge.to_executorch(ExecutorchBackendConfig(host_twin="embed")).save(tmp_path / "in.pte")
    keys = {item.key for item in read_program(tmp_path / "in.pte").named_data or ()}
    assert TWIN_KEY in keys and not (tmp_path / "in.twin").exists()
    plain = edge.to_executorch()
    with pytest.raises(MissingDataError, match=r"Keep m\.twin beside m\.pte"):
        Runtime.get().load_program(plain.buffer).load_method()
    methods = [
        Runtime.get().load_program(tmp_path / "in.pte").load_method(),
        Runtime.get().load_program(plain.buffer, twin=plain.twin).load_method(),
    ]
    one, other = (method.execute([INPUTS[0]])[0] for method in methods)
    assert torch.equal(one, other)


def test_hostile_twins_are_errors_of_ours() -> None:
    """Any byte of a twin may be wrong: it is refused, or it runs and gives something of the right shape."""
    program = lowered("ethos-u85-256")[0].to_executorch()
    twin = program.twin
    header = twin[16 : twin.index(b"\0\0", 16)]
    random = np.random.default_rng(0)
    for at in random.integers(16, 16 + len(header), 150):
        broken = bytearray(twin)
        broken[at] = random.integers(32, 127)
        try:
            method = Runtime.get().load_program(program.buffer, twin=bytes(broken)).load_method()
            (found,) = method.execute([INPUTS[0]])
            assert found.shape == (1, 16, 4, 4)
        except EdgewrightError:
            pass


def test_what_a_file_claims_is_not_believed() -> None:
    honest = {"basis": "Vela's estimate", "target": "t", "cycles": 5}
    assert describe(honest) == "Vela's estimate for t: 5 cycles"
    changes: list[dict[str, Any]] = [
        {"cycles": "many"}, {"cycles": float("inf")}, {"cycles": -1}, {"cycles": True}, {"basis": 3}, {"target": None},
    ]  # fmt: skip
    for wrong in (None, [], 5, {}, *({**honest, **change} for change in changes)):
        assert describe(wrong) == ""
    odd = {**honest, "memory": 3, "weights": [1], "inferences_per_second": "x", "mac_utilisation": 10**400}
    assert describe(odd) == describe(honest)
    assert len(describe({**honest, "target": "x" * 9000})) < 200

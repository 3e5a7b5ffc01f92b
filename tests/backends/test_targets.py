"""Names of targets: every backend's, each once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edgewright.backends import discover, find_partitioner, find_quantizer
from edgewright.backends.targets import all_targets, find_target
from edgewright.errors import UsageError


def test_every_backend_has_targets_and_classes_for_them() -> None:
    backends = {target.backend for target in all_targets().values()}
    assert backends == set(discover())
    for backend in backends:
        target = next(t for t in all_targets().values() if t.backend == backend)
        assert target.summary
        quantizer = find_quantizer(backend).for_target(target.argument)
        assert find_partitioner(backend).for_target(target.argument).backend.name == backend
        assert next(iter(quantizer.presets)) == "int8"
        assert all(callable(make) for make in quantizer.presets.values())


@pytest.mark.parametrize("name", ["xnnpack", "ethos-u55-128", "ethos-u85-2048", "sm8550", "SM8650", "imxrt700"])
def test_names(name: str) -> None:
    assert find_target(name).name == name.lower()


def test_a_backend_may_be_named_too() -> None:
    assert find_target("ethos_u:ethos-u55-128") == find_target("Ethos-U55-128")
    with pytest.raises(UsageError):
        find_target("nxp:ethos-u55-128")


def test_needs_no_torch() -> None:
    code = (
        "import sys; from edgewright.backends.targets import all_targets; all_targets(); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"

"""Object files for AArch64, called by an Arm Python under qemu."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewright.bare_metal.object_export import export_object
from tests.bare_metal.test_object_export import compile_network, expected_output, random_inputs
from tests.engine.test_aarch64 import arm_python, run_on_arm  # noqa: F401


@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64-linux", "aarch64-linux+dotprod", "aarch64-android+i8mm"])
@pytest.mark.parametrize("name", ["ds_cnn", "autoencoder", "lstm"])
def test_networks_on_aarch64(name: str, target: str, tmp_path: Path) -> None:
    path = compile_network(name, tmp_path)
    about, _ = export_object(path, tmp_path, target)
    inputs, found = random_inputs(about, 3), tmp_path / "outputs"
    (tmp_path / "inputs").write_bytes(b"".join(x.tobytes() for x in inputs))
    arguments = (tmp_path / "model.o", about.object.arena_size, tmp_path / "inputs", found, 3, about.outputs[0].bytes)
    run_on_arm(tmp_path, "tests.support.aarch64_object", *map(str, arguments))
    wanted = [expected_output(path, x) for x in inputs]
    got = np.frombuffer(found.read_bytes(), wanted[0].dtype).reshape(3, *wanted[0].shape)
    if about.outputs[0].type == "int8":
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)

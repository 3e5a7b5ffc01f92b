"""Files that each release of ExecuTorch made are read and give here what they gave there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewright.formats import read_program
from edgewright.runtime import Runtime
from tests.golden.stock_releases.export import FILES
from tests.interop.stock_releases.environments import TORCH

FOLDER = Path(__file__).parents[1] / "golden" / "stock_releases"
# Float sums in another order; integers of static scales are equal; dynamic scales come from float ranges.
TOLERANCE = {"image_int8_xnnpack": 0.0, "image_int8_portable": 0.0, "state_portable": 0.0}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("release", TORCH)
def test_files_of_every_release_give_what_they_gave_there(release: str, name: str) -> None:
    method = Runtime.get().load_program(FOLDER / release / f"{name}.pte").load_method()
    with np.load(FOLDER / release / "calls.npz") as arrays:
        for call in range(2):
            (found,) = method.execute([arrays[f"{name}.{call}.in"]])
            wanted = arrays[f"{name}.{call}.out"]
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            bound = TOLERANCE.get(name, 1e-5) * float(np.abs(wanted).max())
            np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("release", TORCH)
def test_delegates_are_in_the_files_that_say_so(release: str) -> None:
    """A file whose delegate was lost would say nothing about delegates of that release."""
    for name in FILES:
        (plan,) = read_program(FOLDER / release / f"{name}.pte").execution_plan
        assert {d.id for d in plan.delegates} == ({"XnnpackBackend"} if name.endswith("xnnpack") else set())


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 1_000_000

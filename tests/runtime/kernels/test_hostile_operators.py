"""Every operator called with arguments of the right kinds and the wrong values: a result, or our error."""

from __future__ import annotations

import tracemalloc

import pytest

from edgewright.formats.operator_signatures import OPERATORS
from edgewright.formats.pte_writer import write_program
from tests.support import hostile
from tests.support.calls import HostileCall

pytestmark = pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning", "ignore::RuntimeWarning")


def outcomes(key: str, seeds: range) -> set[str]:
    """What calls with these seeds end in; none may take more memory than the limits and its temporaries."""
    found = set()
    tracemalloc.start()
    for seed in seeds:
        try:
            found.update(hostile.run(write_program(HostileCall(key, seed).program())))
        except Exception as error:
            raise AssertionError(f"{key}, seed {seed}: {error!r}") from error
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 << 20
    return found


def test_operators_stand_any_arguments() -> None:
    found = {key: outcomes(key, range(2)) for key in sorted(OPERATORS)}
    assert set().union(*found.values()) <= {"ok", "ExecutionError", "LimitError"}
    assert sum("ok" in kinds for kinds in found.values()) > len(OPERATORS) // 2


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(OPERATORS))
def test_operators_stand_many_arguments(key: str) -> None:
    assert outcomes(key, range(2, 100)) <= {"ok", "ExecutionError", "LimitError"}

"""What still runs in numpy, found anew and compared with the tables of ``coverage``: a file for each target.

An operator that gets machine code, or loses it, makes these tests fail until its table says so.
"""

from __future__ import annotations

import pytest

from edgewright.formats.operator_signatures import operators
from tests.backends.node_cases import EXACT, FLOAT, ROWS
from tests.engine.coverage import calls, ethos_u, nxp, portable, qualcomm, samsung, vendors, xnnpack
from tests.engine.graphs import cpus

NODES = {
    **{f"real {name}": make for name, make in FLOAT.items()},
    **{f"bytes {name}": make for name, make in EXACT.items()},
    **{f"rows {name}": make for name, make in ROWS.items()},
}
TABLES = {"ethos_u": ethos_u.LEFT, "nxp": nxp.LEFT, "qualcomm": qualcomm.LEFT, "samsung": samsung.LEFT}


@pytest.mark.parametrize("cpu", cpus())
def test_nodes_of_xnnpack(cpu: str) -> None:
    found = {name for name, make in NODES.items() if not vendors.native(make()[0], cpu=cpu)}
    assert found == set(xnnpack.LEFT)


@pytest.mark.slow
def test_kernels_of_portable_programs() -> None:
    listed = [f"aten::{k}" if "::" not in k else k for keys in portable.LEFT.values() for k in keys.split()]
    assert len(listed) == len(set(listed))
    assert {key for key in operators() if calls.in_numpy(key)} == set(listed)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_rows_of_vendors(name: str) -> None:
    vendor = vendors.VENDORS[name]
    listed: dict[str, set[str]] = {}
    for reason, left in TABLES[name].items():
        assert reason and not set(listed) & set(left)
        listed |= {op: set(types.split()) for op, types in left.items()}
    found = {op: types for op in vendor.rows if (types := vendors.in_numpy(vendor, op))}
    assert found == listed

"""What eIQ Neutron takes: the table of its rows."""

from __future__ import annotations

from edgewright.backends.nxp.rows import ROWS
from edgewright.backends.nxp.rules import EVERYWHERE
from edgewright.backends.table import Backend

BACKEND = Backend(
    "nxp",
    ROWS,
    EVERYWHERE,
    id="NeutronBackend",
    title="NXP eIQ Neutron",
    summary="The Neutron NPU of i.MX RT700, through 8-bit TFLite and NXP's converter. The TFLite graph runs here.",
)

"""Operator table of the eIQ Neutron backend."""

from __future__ import annotations

from edgewright.backends.nxp.rows import ROWS
from edgewright.backends.nxp.rules import GLOBAL_RULES
from edgewright.backends.table import Backend

BACKEND = Backend(
    "nxp",
    ROWS,
    GLOBAL_RULES,
    id="NeutronBackend",
    title="NXP eIQ Neutron",
    summary="The Neutron NPU of i.MX RT700, by way of int8 TFLite and NXP's converter. The host runs the TFLite graph.",
)

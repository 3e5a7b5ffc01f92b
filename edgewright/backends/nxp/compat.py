"""Names of ExecuTorch's Neutron package that scripts import and that have no effect here."""

from __future__ import annotations

from typing import Any

core_aten_ops_exception_list: list[Any] = []  # the frontend never decomposes supported operators

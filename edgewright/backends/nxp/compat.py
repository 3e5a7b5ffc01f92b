"""Names of ExecuTorch's Neutron folder that scripts import and that need nothing here."""

from __future__ import annotations

from typing import Any

core_aten_ops_exception_list: list[Any] = []  # the frontend keeps what rows take; nothing has to be named

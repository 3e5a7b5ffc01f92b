"""Names of ExecuTorch's Neutron folder that scripts import and that need nothing here: lowering does all of it."""

from __future__ import annotations

from typing import Any

core_aten_ops_exception_list: list[Any] = []  # the frontend keeps what rows take; nothing has to be named


class RemoveAdditionalQDQClustersPass:
    """A pass that changes nothing: partitioning leaves no conversions behind that nobody reads."""

    def __call__(self, graph_module: Any) -> Any:
        return graph_module

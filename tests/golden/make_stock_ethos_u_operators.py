"""Lists the operators that stock ExecuTorch's Ethos-U backend takes.

    python -m tests.golden.make_stock_ethos_u_operators

Writes ``ethos_u/stock_operators.json``: those of its integer and floating-point profiles (what is in the second only is
decomposed before it is quantized), those with a check of their own, and those that U55 and U65 refuse. Needs the
``test`` extra.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch

from edgewright.files import write_file
from tests.golden.make_stock_ethos_u import FOLDER


def names(operators: Iterable[Any]) -> list[str]:
    found = {str(getattr(o, "_op", o)) for o in operators}
    return sorted(n for n in found if not n.startswith("<"))  # without Python's own functions


if __name__ == "__main__":
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float c) -> Tensor")
    from executorch.backends.arm.operator_support import ethos_u55_support, tosa_supported_operators
    from executorch.backends.arm.operator_support import tosa_profile_supported_op_lists as lists
    from executorch.backends.arm.tosa.specification import TosaSpecification

    spec = TosaSpecification.create_from_string("TOSA-1.0+INT")
    checked = [t for check in tosa_supported_operators.get_registered_tosa_support_checks(spec) for t in check.targets]
    stored = {
        "int": names(lists.TOSA_PRO_INT_SupportList),
        "float": names(lists.TOSA_PRO_FP_SupportList),
        "checked": names(checked),
        "refused_by_u55": names(ethos_u55_support.EthosU55NotSupported.unsupported_ops),
    }
    write_file(FOLDER / "stock_operators.json", [(json.dumps(stored, indent=1) + "\n").encode()])

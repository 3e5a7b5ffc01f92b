"""The vendors' dialects, and every numerics, by name."""

from __future__ import annotations

from edgewright.backends.ethos_u.dialect import DIALECT as TOSA
from edgewright.backends.nxp.dialect import DIALECT as TFLITE
from edgewright.backends.qualcomm.dialect import DIALECT as QNN
from edgewright.backends.samsung.dialect import DIALECT as ENN
from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.ir.dialect import Dialect
from edgewright.ir.numerics import Numerics

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (TOSA, TFLITE, QNN, ENN)}
NUMERICS: dict[str, Numerics] = {
    "core": XNNPACK,
    "xnnpack": XNNPACK,
    **{name: dialect.numerics for name, dialect in DIALECTS.items()},
}

"""Small contexts, made with the library itself."""

from __future__ import annotations

from functools import cache

from edgewright.backends.qualcomm.qnn import structs as s
from edgewright.backends.qualcomm.qnn.build import Encoding, QnnGraphBuilder, TensorDef
from edgewright.backends.qualcomm.qnn.session import Context, Session
from edgewright.backends.qualcomm.target import CHIPSETS, QcomChipset

SHAPE = (1, 4, 4, 8)


@cache
def relu_context(soc: QcomChipset = QcomChipset.SM8650) -> bytes:
    """A quantized ReLU: scales 0.05 (around 128) and 0.025."""
    with Session(int(soc)) as session:
        context = Context(session)
        graph = QnnGraphBuilder(context, "forward", vtcm=CHIPSETS[soc].vtcm)
        ends = [
            graph.tensor(TensorDef("input_0_x", SHAPE, "u8", s.APP_WRITE, Encoding((0.05,), (-128,)))),
            graph.tensor(TensorDef("output_y", SHAPE, "u8", s.APP_READ, Encoding((0.025,), (0,)))),
        ]
        graph.node("Relu", "relu", ends[:1], ends[1:], {})
        graph.finalize()
        binary = context.binary()
        context.close()
    return binary

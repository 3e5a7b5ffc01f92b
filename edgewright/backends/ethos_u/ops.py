"""What an Ethos-U takes: one row per operator, with the limits of the NPU and of Vela as rules."""

from __future__ import annotations

from edgewright.backends.ethos_u import conv, requantize, rows_image, rows_logic, rows_math, rows_move
from edgewright.backends.ethos_u.dtypes import ACTIVATIONS
from edgewright.backends.ethos_u.rules import EVERYWHERE, fixed_weights, long_stride, narrow_matrices, volumes
from edgewright.backends.ethos_u.split_conv import legal_convolution
from edgewright.backends.table import FLOAT, STATIC, Backend, OpSpec

INT = (STATIC,)

ROWS: tuple[OpSpec, ...] = (
    *(
        OpSpec(
            op,
            conv.convolution,
            (fixed_weights, long_stride),
            INT,
            ACTIVATIONS,
            legalize=legal_convolution,
        )
        for op in ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
    ),
    OpSpec("conv3d", conv.convolution, (fixed_weights, volumes), INT, ACTIVATIONS, legalize=legal_convolution),
    OpSpec("linear", conv.linear, (fixed_weights,), INT, ACTIVATIONS),
    OpSpec("mm", conv.matmul, (narrow_matrices,), INT),
    OpSpec("bmm", conv.matmul, (narrow_matrices,), INT),
    OpSpec("requantize", requantize.requantize, (), INT),
    *rows_image.ROWS,
    *rows_logic.ROWS,
    *rows_math.ROWS,
    *rows_move.ROWS,
)

BACKEND = Backend(
    "ethos_u",
    ROWS,
    EVERYWHERE,
    id="EthosUBackend",
    title="Arm Ethos-U",
    meanings={FLOAT: "integers and truth values that were never real numbers (floating point in TOSA alone)"},
    summary="Ethos-U55, U65 and U85 NPUs, through TOSA and Arm's Vela compiler. Commands for U55 and U65-256 run here.",
)

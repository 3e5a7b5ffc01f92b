"""Op table of the Ethos-U backend: one row per operator, with the limits of the NPU and of Vela as rules."""

from __future__ import annotations

from edgewright.backends.ethos_u import conv, requantize, rows_image, rows_logic, rows_math, rows_move
from edgewright.backends.ethos_u.dtypes import ACTIVATIONS
from edgewright.backends.ethos_u.rules import COMMON_RULES, constant_weights, conv3d_unit, int8_matmul, stride_limit
from edgewright.backends.ethos_u.split_conv import legalize_convolution
from edgewright.backends.table import FLOAT, STATIC, Backend, OpSpec

INT = (STATIC,)

ROWS: tuple[OpSpec, ...] = (
    *(
        OpSpec(
            op,
            conv.convolution,
            (constant_weights, stride_limit),
            INT,
            ACTIVATIONS,
            legalize=legalize_convolution,
        )
        for op in ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
    ),
    OpSpec(
        "conv3d", conv.convolution, (constant_weights, conv3d_unit), INT, ACTIVATIONS, legalize=legalize_convolution
    ),
    OpSpec("linear", conv.linear, (constant_weights,), INT, ACTIVATIONS),
    OpSpec("mm", conv.matmul, (int8_matmul,), INT),
    OpSpec("bmm", conv.matmul, (int8_matmul,), INT),
    OpSpec("requantize", requantize.requantize, (), INT),
    *rows_image.ROWS,
    *rows_logic.ROWS,
    *rows_math.ROWS,
    *rows_move.ROWS,
)

BACKEND = Backend(
    "ethos_u",
    ROWS,
    COMMON_RULES,
    id="EthosUBackend",
    title="Arm Ethos-U",
    precision_notes={FLOAT: "unquantized integers and bools (floating point only in TOSA export)"},
    summary="Ethos-U55, U65 and U85 NPUs, through TOSA and Arm's Vela compiler. Commands for U55 and U65-256 run here.",
)

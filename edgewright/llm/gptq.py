"""Calibrated rounding (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022).

Columns are rounded one after the other. The error of each is compensated by the columns that are not rounded yet, so
that the layer's outputs on the calibration text change least. Only the integers and scales differ from rounding to
nearest: the program's size, speed and operators are the same. (AWQ scales channels instead, which moves factors into
norms and other layers' weights, and does not correct what rounding did.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.llm.quantize_weights import QuantizedWeights, search_scales

Array = np.ndarray[Any, Any]

_DAMPING = 0.01  # of the mean diagonal: inputs that calibration hardly saw
_BLOCK = 128  # columns whose corrections are applied to the rest at once


def round_calibrated(weights: Array, products: Array, group: int) -> QuantizedWeights:
    """4-bit groups of ``group`` columns. ``products``: the inputs' sums of products, float64 [columns, columns]."""
    factor = _inverse_factor(products)
    confidence = (1 / np.square(np.diagonal(factor))).astype(np.float32)  # how much an error of a column costs
    upper = factor.astype(np.float32)
    columns, rows = weights.shape[1], weights.shape[0]
    rest = np.array(weights.T, np.float32, order="C")  # each row a column of the weights, corrected so far
    integers = np.empty((columns, rows), np.int8)
    scales = np.empty((columns // group, rows), np.float32)
    step = max(_BLOCK, group)
    for start in range(0, columns, step):
        end = min(start + step, columns)
        errors = np.empty((end - start, rows), np.float32)
        for column in range(start, end):
            if column % group == 0:
                part = slice(column, column + group)
                scale = search_scales(np.ascontiguousarray(rest[part].T), confidence[part])
                scales[column // group] = scale
            rounded = np.clip(np.rint(rest[column] / scale), -8, 7)
            integers[column] = rounded
            error = (rest[column] - rounded * scale) / upper[column, column]
            errors[column - start] = error
            rest[column + 1 : end] -= upper[column, column + 1 : end, None] * error
        rest[end:] -= upper[start:end, end:].T @ errors
    stored, by_row = np.ascontiguousarray(integers.T), np.ascontiguousarray(scales.T)
    return QuantizedWeights.of(weights, stored, by_row)


def _inverse_factor(products: Array) -> Array:
    """The upper triangular U with transposed(U) U = inverse(products), after damping."""
    damped = products + np.eye(len(products)) * max(_DAMPING * float(np.mean(np.diagonal(products))), 1e-12)
    # Cholesky from the last column to the first gives an upper triangular R with R transposed(R) = damped.
    reversed_factor = np.linalg.cholesky(damped[::-1, ::-1])
    return np.triu(np.linalg.inv(reversed_factor[::-1, ::-1]))

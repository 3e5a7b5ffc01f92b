"""What releases of ExecuTorch are known to do wrong. Each line was written after the case was seen to fail, and says in
which releases; the table counts these cases by what happened. "compiled programs ..." says how the compiler avoids it:
lines without it concern compiled programs too."""

from __future__ import annotations

import re

_ALL = r"1\.\d\.\d"
_UNTIL_1_0, _UNTIL_1_2, _UNTIL_1_3 = r"1\.0\.\d", r"1\.[012]\.\d", r"1\.[0123]\.\d"

# Releases, cases, reason: regular expressions that match from the start.
_KNOWN: list[tuple[str, str, str]] = [
    (r"1\.0\.0", r"\d+ aten::index\.Tensor_out", "rejects negative indices (1.0.1 takes them)"),
    (r"1\.0\.0", r"\d+ aten::narrow_copy\.out\(.*, -\d+, \d+\)$",
     "reads in front of the tensor from a negative start; compiled programs have none"),
    (_UNTIL_1_0, r"\d+ aten::constant_pad_nd\.out",
     "writes outside of the tensor with negative padding; compiled programs slice instead"),
    (_UNTIL_1_0, r"\d+ aten::(prod\.int|any)\.?\w*out\(float32\[(0|3, 0|0, 3)\]", "divides by zero on empty tensors"),
    (_UNTIL_1_2, r"\d+ aten::sum\.IntList_out\(b?float16", "adds in 16 bits; compiled programs widen"),
    (_UNTIL_1_3, r"\d+ aten::_log_softmax\.out\(b?float16", "takes no 16-bit floats; compiled programs widen"),
    (_UNTIL_1_3, r"\d+ aten::_upsample_bilinear2d_aa\.out", "is wrong where it shrinks; compiled programs have none"),
    (_ALL, r"\d+ aten::narrow_copy\.out\(.*, -1, 1, 1\)$", "aborts on a negative dimension; compiled ones have none"),
    (_ALL, r"\d+ aten::(_log_softmax|amax|amin)\.out\(float32\[(3, 0|0, 3)\]", "aborts on empty tensors"),
    (_ALL, r"\d+ aten::(unfold_copy|sum\.IntList)_?\w*\.?out\(float32\[\]", "aborts on a tensor without dimensions"),
    (_ALL, r"row rsqrt 2$", "makes NaN of zero, in XNNPACK's own kernel"),
    (_UNTIL_1_0, r"node (float|int8) (sin|cos|clone)", "lacks the node; compiled programs have none"),
    (_UNTIL_1_2, r"node int8 global_avg_pool2d_half_steps", "rounds halves of a step to the other side"),
]  # fmt: skip


def known(release: str, case: str) -> str:
    """Why a case need not run in a release, or nothing."""
    return next((why for releases, cases, why in _KNOWN if re.match(releases, release) and re.match(cases, case)), "")

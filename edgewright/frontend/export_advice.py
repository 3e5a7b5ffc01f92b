"""What stops ``torch.export``, in plain words, and the usual rewrite. A new case is a new row."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """One known failure: what torch says, how the user's line looks (if that matters), what to say of it."""

    message: str
    code: str
    rule: str
    remedy: str


_GUARD = r"data-dependent expression|Data-dependent branching|Data.dependent operator|DataDependentOutput"
_SHAPES = "Constraints violated"

ADVICE: tuple[Advice, ...] = (
    # ------------------------------------------------------------------- what Python does depends on tensor contents
    Advice(
        _GUARD, r"\b(el)?if\b.*(\.(shape|size)\b|\blen\()", "branches on a size that depends on data",
        "Make the size fixed (pad, or mask with torch.where), or choose with torch.cond.",
    ),
    Advice(
        _GUARD, r"^\s*while\b", "loops for as long as a tensor says so",
        "Write torch.while_loop(condition, body, inputs), or a fixed number of steps with torch.where.",
    ),
    Advice(
        _GUARD, r"^\s*assert\b", "asserts something about the contents of a tensor",
        "Remove the assertion, or put it in code that runs before the model.",
    ),
    Advice(
        _GUARD, r"\brange\(|^\s*for\b", "loops as often as a tensor says",
        "Loop a fixed number of times and mask with torch.where, or write torch.while_loop.",
    ),
    Advice(
        _GUARD, r"\bif\b|\belif\b", "branches on the contents of a tensor",
        "Write torch.cond(condition, if_true, if_false, inputs), or torch.where(condition, a, b) when both are cheap.",
    ),
    Advice(
        _GUARD, r"\b(float|int|bool|round)\(", "makes a Python number of a tensor",
        "Leave it a tensor: x * y.max() instead of x * float(y.max()).",
    ),
    Advice(
        "Could not extract specialized integer", "", "uses the contents of a tensor as a Python number",
        "Index with the tensor (torch.index_select, table[i] with a tensor table), or give the number as an input.",
    ),
    Advice(
        _GUARD, "", "needs to know a number that depends on data",
        "Say what holds of it with torch._check(n >= 0) and torch._check(n <= limit), or do without .item().",
    ),
    # ------------------------------------------------------------------------------------------------ dynamic shapes
    Advice(
        rf"{_SHAPES}[\s\S]*specialized it to be a constant", "", "fixes a size that dynamic_shapes leaves open",
        "Leave that dimension out of dynamic_shapes (or give it Dim.STATIC), or do not compare it with a fixed size.",
    ),
    Advice(
        rf"{_SHAPES}[\s\S]*must always be equal", "", "needs sizes to be equal that dynamic_shapes leaves apart",
        "Use the same Dim for them.",
    ),
    Advice(
        _SHAPES, "", "does not hold for every size that dynamic_shapes allows",
        "Narrow the Dim (min, max), or derive it: 8 * Dim('n').",
    ),
    Advice(
        r"\d+ not in range \[", "", "has an example input outside the range of its Dim",
        "Give an example whose sizes lie between the Dim's min and max.",
    ),
    # -------------------------------------------------------------------------------------------- inputs and outputs
    Advice(
        "Unsupported input type|pytree-flattenable", "", "has an example input of a type that cannot be exported",
        "Inputs are tensors, numbers, bools, text, None, and tuples, lists and dicts of them: torch.from_numpy(array).",
    ),
    Advice(
        r"`dynamic_shapes`|dynamic_shapes\[|mismatch between the structure", "",
        "has dynamic_shapes that do not fit its inputs",
        "Give a dict by the names of forward's arguments, or a tuple in their order: {'x': {0: Dim('n', max=64)}}.",
    ),
    Advice(
        "Expecting `args` to be a tuple|Expecting `kwargs` to be a dict", "", "has example inputs that are not a tuple",
        "Write (x,) for a single input; keyword arguments are a dict.",
    ),
    Advice(
        "missing a required argument|too many positional|unexpected keyword argument|takes .* positional arguments", "",
        "was not given the arguments that forward takes", "Give one example for each argument of forward.",
    ),
    Advice(
        "in output, which is not a known type", "", "returns something that is neither tensor, number nor container",
        "Return tensors and numbers, in tuples, lists or dicts.",
    ),
    Advice(
        "ScriptModule is not supported", "", "is a TorchScript module", "Export the nn.Module that it was made of.",
    ),
    Advice(
        "Expected `mod` to be an instance", "", "is no torch.nn.Module", "Wrap it: a Module whose forward calls it.",
    ),
    Advice('missing the required "forward"', "", "has no forward", "Define forward(self, ...)."),
    # ------------------------------------------------------------------------------------ Python and other libraries
    Advice(
        r"\.numpy\(\) is not supported|__array__|numpy\.ndarray", "", "calls numpy on a tensor",
        "Use torch's function of the same name; numpy is for code before and after the model.",
    ),
    Advice(
        "Cannot access data pointer", "", "asks where a tensor lies in memory",
        "Wrap code that needs addresses as a custom operator (torch.library.custom_op).",
    ),
    Advice(
        r"leaf Variable that requires grad|requires_grad_\(\)|does not require grad", "",
        "changes parameters, or asks for gradients, while it runs",
        "Make what changes a buffer (register_buffer); a device runs inference only.",
    ),
    Advice(
        "marked as skipped|Failed to trace builtin|Unsupported context manager|[Cc]an't pickle|to proxy", "",
        "calls Python that cannot be captured",
        "Move files, locks, logging and other libraries out of forward; strict=False captures more Python.",
    ),
    Advice(
        "not linked with support for|Torch not compiled with|no NVIDIA driver", "",
        "moves a tensor to a device that is not here", "Use x.device of an input, never a fixed device.",
    ),
)  # fmt: skip

_FIXES = re.compile(r"Suggested fixes:\n((?:[ \t]+\S.*\n?)+)")


def advise(message: str, code: str) -> tuple[str, str] | None:
    """The rule that a failure breaks and its remedy; None if it is not a known one."""
    for row in ADVICE:
        if re.search(row.message, message) and (not row.code or re.search(row.code, code)):
            return row.rule, row.remedy + _suggested(message)
    return None


def _suggested(message: str) -> str:
    """What torch worked out for dynamic_shapes, on one line."""
    found = _FIXES.search(message)
    return f" Here: {'; '.join(line.strip() for line in found[1].splitlines())}." if found else ""

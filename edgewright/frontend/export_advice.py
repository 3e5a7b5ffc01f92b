"""Table of known ``torch.export`` failures: an explanation and the usual rewrite for each."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """One known failure: regular expressions for torch's message and the user's line, and the rule and remedy to
    report."""

    message: str
    code: str
    rule: str
    remedy: str


_DATA_DEPENDENT = r"data-dependent expression|Data-dependent branching|Data.dependent operator|DataDependentOutput"
_CONSTRAINTS = "Constraints violated"

ADVICE: tuple[Advice, ...] = (
    # ------------------------------------------------------------------------------------ data-dependent control flow
    Advice(
        _DATA_DEPENDENT, r"\b(el)?if\b.*(\.(shape|size)\b|\blen\()", "branches on a size that depends on data",
        "Make the size fixed (pad, or mask with torch.where), or choose with torch.cond.",
    ),
    Advice(
        _DATA_DEPENDENT, r"^\s*while\b", "has a loop condition that depends on the contents of a tensor",
        "Write torch.while_loop(condition, body, inputs), or a fixed number of steps with torch.where.",
    ),
    Advice(
        _DATA_DEPENDENT, r"^\s*assert\b", "asserts something about the contents of a tensor",
        "Remove the assertion, or put it in code that runs before the model.",
    ),
    Advice(
        _DATA_DEPENDENT, r"\brange\(|^\s*for\b", "has a trip count that depends on the contents of a tensor",
        "Loop a fixed number of times and mask with torch.where, or write torch.while_loop.",
    ),
    Advice(
        _DATA_DEPENDENT, r"\bif\b|\belif\b", "branches on the contents of a tensor",
        "Write torch.cond(condition, if_true, if_false, inputs), or torch.where(condition, a, b) when both are cheap.",
    ),
    Advice(
        _DATA_DEPENDENT, r"\b(float|int|bool|round)\(", "converts a tensor to a Python number",
        "Keep it a tensor: x * y.max() instead of x * float(y.max()).",
    ),
    Advice(
        "Could not extract specialized integer", "", "uses the contents of a tensor as a Python number",
        "Index with the tensor (torch.index_select, table[i] with a tensor table), or pass the number as an input.",
    ),
    Advice(
        _DATA_DEPENDENT, "", "needs to know a number that depends on data",
        "State its bounds with torch._check(n >= 0) and torch._check(n <= limit), or avoid .item().",
    ),
    # ------------------------------------------------------------------------------------------------ dynamic shapes
    Advice(
        rf"{_CONSTRAINTS}[\s\S]*specialized it to be a constant \(1\)", "",
        "has a size of 1 in a dimension that dynamic_shapes marks as dynamic: torch takes it as fixed",
        "Pass example inputs with 2 or more there, such as a batch of 2; remove the dimension if the model needs 1.",
    ),
    Advice(
        rf"{_CONSTRAINTS}[\s\S]*specialized it to be a constant", "",
        "specializes a dimension that dynamic_shapes marks as dynamic",
        "Remove that dimension from dynamic_shapes (or mark it Dim.STATIC), or do not compare it with a fixed size.",
    ),
    Advice(
        rf"{_CONSTRAINTS}[\s\S]*must always be equal", "", "needs equal sizes where dynamic_shapes has different Dims",
        "Use the same Dim for them.",
    ),
    Advice(
        _CONSTRAINTS, "", "does not support every size that dynamic_shapes allows",
        "Narrow the Dim (min, max), or derive it: 8 * Dim('n').",
    ),
    Advice(
        r"\d+ not in range \[", "", "has an example input outside the range of its Dim",
        "Pass an example whose sizes are between the Dim's min and max.",
    ),
    # -------------------------------------------------------------------------------------------- inputs and outputs
    Advice(
        "Unsupported input type|pytree-flattenable", "", "has an example input of a type that cannot be exported",
        "Inputs are tensors, numbers, bools, text, None, and tuples, lists and dicts of them: torch.from_numpy(array).",
    ),
    Advice(
        r"`dynamic_shapes`|dynamic_shapes\[|mismatch between the structure", "",
        "has dynamic_shapes that do not match its inputs",
        "Pass a dict by the names of forward's arguments, or a tuple in their order: {'x': {0: Dim('n', max=64)}}.",
    ),
    Advice(
        "Expecting `args` to be a tuple|Expecting `kwargs` to be a dict", "", "has example inputs that are not a tuple",
        "Write (x,) for a single input; keyword arguments are a dict.",
    ),
    Advice(
        "missing a required argument|too many positional|unexpected keyword argument|takes .* positional arguments", "",
        "has example inputs that do not match the arguments of forward",
        "Pass one example for each argument of forward.",
    ),
    Advice(
        r"Cache'?> in output, which is not a known type", "", "returns its cache of keys and values, an object",
        "Pass use_cache=False with the inputs, or make the cache a buffer of the model with transformers' "
        "TorchExportableModuleWithStaticCache: docs/huggingface.md, \"A decoder with its cache\".",
    ),
    Advice(
        "in output, which is not a known type", "", "returns something that is neither tensor, number nor container",
        "Return tensors and numbers, in tuples, lists or dicts.",
    ),
    Advice(
        "ScriptModule is not supported", "", "is a TorchScript module", "Export the original nn.Module.",
    ),
    Advice(
        "Expected `mod` to be an instance", "", "is not a torch.nn.Module", "Wrap it in a Module that calls it.",
    ),
    Advice('missing the required "forward"', "", "has no forward", "Define forward(self, ...)."),
    # ------------------------------------------------------------------------------------ Python and other libraries
    Advice(
        r"\.numpy\(\) is not supported|__array__|numpy\.ndarray", "", "calls numpy on a tensor",
        "Use torch's function of the same name; numpy is for code before and after the model.",
    ),
    Advice(
        "Cannot access data pointer", "", "accesses the data pointer of a tensor",
        "Wrap code that needs addresses as a custom operator (torch.library.custom_op).",
    ),
    Advice(
        r"leaf Variable that requires grad|requires_grad_\(\)|does not require grad", "",
        "modifies parameters or requests gradients in forward",
        "Store state in buffers (register_buffer); devices run inference only.",
    ),
    Advice(
        "marked as skipped|Failed to trace builtin|Unsupported context manager|[Cc]an't (pickle|get lo)|to proxy", "",
        "calls Python that cannot be captured",
        "Move files, locks, logging and other libraries out of forward; strict=False captures more Python.",
    ),
    Advice(
        "not linked with support for|Torch not compiled with|no NVIDIA driver", "",
        "moves a tensor to a device that is not available", "Use x.device of an input, not a fixed device.",
    ),
)  # fmt: skip

_SUGGESTED_FIXES = re.compile(r"Suggested fixes:\n((?:[ \t]+\S.*\n?)+)")


def advise(message: str, code: str) -> tuple[str, str] | None:
    """The rule that a failure breaks and its remedy; None for an unknown failure."""
    for row in ADVICE:
        if re.search(row.message, message) and (not row.code or re.search(row.code, code)):
            return row.rule, row.remedy + _suggested_fixes(message)
    return None


def _suggested_fixes(message: str) -> str:
    """Torch's suggested fixes for dynamic_shapes, on one line."""
    match = _SUGGESTED_FIXES.search(message)
    return f" Here: {'; '.join(line.strip() for line in match[1].splitlines())}." if match else ""

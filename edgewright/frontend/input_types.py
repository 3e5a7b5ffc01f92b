"""What to do about inputs whose element type does not go with the model's weights."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

# What torch's operators say of operands of different types; those of a conversion that is missing.
_MIXED = re.compile(
    r"Autograd not support dtype|[Ii]nput type .* (weight|bias) type|expected scalar type|have the same dtype"
    r"|not implemented for '(Byte|Char|Short|Int|Long|Bool)'"
)
_INDICES = re.compile(r"'indices' to have one of the following scalar types")


def type_remedy(message: str, module: Any, inputs: Any) -> str:
    """The remedy for an error of torch about element types: which input is of which type, and what converts it. Empty
    for other errors.

    >>> type_remedy("expected scalar type Float but found Byte", torch.nn.Linear(2, 2), torch.ones(2).byte())
    "Input 0 is uint8, and the model's weights are float32: pass x.to(torch.float32), or convert it in forward."
    >>> type_remedy("expected scalar type Float", torch.nn.Linear(2, 2), torch.ones(2))
    ''
    """
    tensors = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    if _INDICES.search(message):
        return "Pass numbers of rows, such as token ids, as integers: ids.long()."
    weights = _weight_type(module)
    if weights is None or not _MIXED.search(message):
        return ""
    wrong = next((i for i, x in enumerate(tensors) if x.is_floating_point() and x.dtype != weights), None)
    if wrong is None:
        wrong = next((i for i, x in enumerate(tensors) if x.dtype == torch.uint8), None)
    if wrong is None:  # integers are what embeddings take: only if there is nothing else
        wrong = next((i for i, x in enumerate(tensors) if not x.is_floating_point()), None)
    return "" if wrong is None else _conversion(wrong, tensors[wrong].dtype, weights)


def _conversion(number: int, actual: torch.dtype, weights: torch.dtype) -> str:
    names = (str(dtype).removeprefix("torch.") for dtype in (actual, weights))
    types = "Input {} is {}, and the model's weights are {}".format(number, *names)
    other = ""  # not a model in float64, which no device has
    if actual in (torch.float32, torch.float16, torch.bfloat16):
        other = f", or compile model.to({actual})"
    elif not actual.is_floating_point:
        other = ", or convert it in forward"
    return f"{types}: pass x.to({weights}){other}."


def _weight_type(module: Any) -> torch.dtype | None:
    """The type of a model's weights; None if there are none, or of several types."""
    parameters = module.parameters() if isinstance(module, torch.nn.Module | ExportedProgram) else ()
    types = {p.dtype for p in parameters if p.is_floating_point()}
    return types.pop() if len(types) == 1 else None

"""Operator samples, and what eager torch and our kernels make of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import edgewright.runtime.stock_kernels  # noqa: F401  (fills the registry)
from edgewright.ir.dtypes import bfloat16, to_scalar_type
from edgewright.runtime.registry import KERNELS
from edgewright.runtime.tensor import TensorSlot

TORCH = {
    "bool": torch.bool, "uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32,
    "int64": torch.int64, "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32,
    "float64": torch.float64, "complex64": torch.complex64, "complex128": torch.complex128,
    "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64,
}  # fmt: skip


@dataclass
class Sample:
    """One call: the operator's inputs in order, and the dtype of each output.

    ``args``: numpy arrays for tensors (bfloat16 through ml_dtypes), Python values for the rest, None for null.
    ``out``: dtype names of the outputs; default: that of the first array, once per output argument.
    ``shapes``: output shapes, where eager torch cannot tell them (list outputs need a count).
    ``expect``: the expected outputs, for operators eager torch does not have.
    ``dim_order``: of the first output (inputs bring their own through their strides).
    ``stock``: False where the stock kernel is known to differ or refuse; ``why`` says how.
    """

    key: str
    args: Sequence[Any]
    out: Sequence[str] = ()
    shapes: Sequence[tuple[int, ...]] | None = None
    expect: Sequence[np.ndarray] | None = None
    dim_order: tuple[int, ...] | None = None
    rtol: float | None = None
    atol: float | None = None
    stock: bool = True
    why: str = ""
    note: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.key}({', '.join(map(_brief, self.args))}){self.note and ' ' + self.note}"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list) and any(isinstance(v, np.ndarray) for v in value):
        return "[" + ", ".join(map(_brief, value)) + "]"
    return repr(value)


def channels_last(array: np.ndarray) -> np.ndarray:
    """The same values, laid out channels-last."""
    order = (0, *range(2, array.ndim), 1)
    inverse = np.argsort(order)
    return np.ascontiguousarray(array.transpose(order)).transpose(inverse)


def to_torch(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype == bfloat16:
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(value)
    if isinstance(value, list):
        return [to_torch(v) for v in value]
    return value


def to_array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(bfloat16)
    return tensor.resolve_conj().numpy()


def out_dtypes(sample: Sample) -> list[str]:
    signature = KERNELS[sample.key].signature
    assert signature is not None
    if sample.out:
        return list(sample.out)
    first = next(
        (v for a in sample.args for v in (a if isinstance(a, list) else [a]) if isinstance(v, np.ndarray)), None
    )
    count = len(sample.shapes) if sample.shapes else max(len(signature.outputs), 1)
    return [str(first.dtype) if first is not None else "float32"] * count


def eager(sample: Sample) -> list[np.ndarray]:
    """What eager torch's own operator of the same name gives (inputs changed in place come first)."""
    if sample.expect is not None:
        return [np.asarray(e) for e in sample.expect]
    signature = KERNELS[sample.key].signature
    assert signature is not None
    namespace, _, rest = sample.key.partition("::")
    name, _, overload = rest.partition(".")
    op = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    args = [to_torch(a.copy(order="K") if isinstance(a, np.ndarray) else a) for a in sample.args]
    outs = [torch.empty(0, dtype=TORCH[d]) for d in out_dtypes(sample)]
    if sample.shapes:
        outs = [torch.empty(s, dtype=o.dtype) for s, o in zip(sample.shapes, outs, strict=True)]
    written = [a.name for a in signature.outputs]
    is_list = len(written) == 1 and signature.outputs[0].kind.value == "list[Tensor]"
    kwargs = {written[0]: outs} if is_list else dict(zip(written, outs, strict=False))
    schema = op._schema
    positional = {a.name: v for a, v in zip(schema.arguments, args, strict=False) if not a.kwarg_only}
    keyword = {a.name: v for a, v in zip(schema.arguments, args, strict=False) if a.kwarg_only and not a.is_out}
    op(*positional.values(), **keyword, **kwargs)
    inplace = [v for a, v in zip(signature.inputs, args, strict=True) if a.is_write]
    return [to_array(t) for t in (inplace + outs if written else inplace)]


def ours(sample: Sample, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What our kernel gives, in outputs planned exactly as large as ``like``."""
    kernel = KERNELS[sample.key]
    assert kernel.signature is not None
    args = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in sample.args]
    inplace = [v for a, v in zip(kernel.signature.inputs, args, strict=True) if a.is_write]
    slots = []
    for index, array in enumerate(like[len(inplace) :]):
        order = sample.dim_order if sample.dim_order and index == 0 else tuple(range(array.ndim))
        memory = np.full(array.nbytes, 0xCD, np.uint8)
        slots.append(TensorSlot(to_scalar_type(array.dtype), array.shape, order, memory=memory))
    with np.errstate(all="ignore"):
        kernel(args, slots)
    return inplace + [slot.array for slot in slots if slot.array is not None]


TOLERANCE = {"float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2), "float32": (1e-5, 1e-5), "complex64": (1e-5, 1e-5)}


def assert_close(
    actual: np.ndarray, expected: np.ndarray, sample: Sample, tolerance: dict[str, tuple[float, float]] | None = None
) -> None:
    assert actual.shape == expected.shape, f"{sample}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{sample}: dtype {actual.dtype}, expected {expected.dtype}"
    rtol, atol = {**TOLERANCE, **(tolerance or {})}.get(str(expected.dtype), (1e-9, 1e-12))
    rtol = rtol if sample.rtol is None else sample.rtol
    atol = atol if sample.atol is None else sample.atol
    if expected.dtype.kind in "iub" and sample.atol is None:
        np.testing.assert_array_equal(actual, expected, err_msg=str(sample))
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        actual.astype(wide), expected.astype(wide), rtol, atol, equal_nan=True, err_msg=str(sample)
    )


def all_samples() -> list[Sample]:
    import tests.ir.aten.samples as package

    found: list[Sample] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        found += importlib.import_module(f"{package.__name__}.{info.name}").SAMPLES
    return found

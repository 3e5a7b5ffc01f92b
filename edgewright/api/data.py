"""Calibration and evaluation data as a list of calls of the model.

Sources: an ``.npz`` or ``.npy``, a folder of images or arrays, ``package.module:name``, or any iterable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewright.api.image_data import SUFFIXES, ImageOptions, read_image
from edgewright.console import plural
from edgewright.errors import EdgewrightError, FileAccessError, InputError, UsageError
from edgewright.quantize.batching import in_batches

MAX_SAMPLES = 128  # default limit of calibration inputs
_HOLD_OUT_EVERY = 4  # at most every fourth calibration input is held out
_TYPE_RULE = "inputs must be tensors or numbers"


@dataclass(frozen=True)
class Call:
    """The arguments of one call of the model. ``subject``: what errors call it, such as ``calibration input 3``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    subject: str = "example input"

    def leaves(self) -> list[Any]:
        """The flattened arguments, as a program's method expects them."""
        return list(torch.utils._pytree.tree_leaves((self.args, self.kwargs)))


@dataclass(frozen=True)
class Samples:
    """Inputs to calibrate with, and inputs to measure results on. ``origin`` of the latter: ``held-out`` (from the
    calibration data), ``given`` (by the user), ``calibration`` (the calibration data itself) or ``example`` (no data
    available)."""

    calibration: list[Call] = field(default_factory=list)
    evaluation: list[Call] = field(default_factory=list)
    origin: str = "example"


def hold_out(calls: Sequence[Call], limit: int, evaluated: int, in_sequence: bool = False) -> Samples:
    """Split calls into at most ``limit`` for calibration and others for evaluation.

    Calls beyond ``limit`` are for evaluation; if there are fewer, every fourth is held out, at even distances because
    data may be sorted. A single call is used for both. ``in_sequence``: calls depend on those before them, so that the
    last ones are held out.

    >>> samples = hold_out([Call((n,)) for n in range(8)], 128, 8)
    >>> [c.args[0] for c in samples.calibration], [c.args[0] for c in samples.evaluation], samples.origin
    ([0, 1, 2, 4, 5, 6], [3, 7], 'held-out')
    >>> [c.args[0] for c in hold_out([Call((n,)) for n in range(8)], 128, 8, in_sequence=True).evaluation]
    [6, 7]
    """
    calls = list(calls)
    if evaluated < 1:
        return Samples(calls[:limit], [], "calibration")
    if len(calls) > limit:
        return Samples(calls[:limit], calls[limit : limit + evaluated], "held-out")
    count = min(evaluated, max(len(calls) // _HOLD_OUT_EVERY, 1)) if len(calls) > 1 else 0
    if not count:
        return Samples(calls, calls, "calibration")
    if in_sequence:
        return Samples(calls[:-count], calls[-count:], "held-out")
    held_out = {(n + 1) * len(calls) // count - 1 for n in range(count)}
    rest = [c for i, c in enumerate(calls) if i not in held_out]
    return Samples(rest, [calls[i] for i in sorted(held_out)], "held-out")


def load_calls(
    source: Any, example: Call, limit: int = MAX_SAMPLES, images: ImageOptions | None = None, graph: Any = None,
    name: str = "calibration",
) -> list[Call]:  # fmt: skip
    """Load up to ``limit`` calls from a data source, which errors call ``name``; each must match the example.

    With the exported model's ``graph``, batches larger than its static batch size are split into several calls.
    """
    if limit < 1:
        raise UsageError("samples", "must be 1 or more", value=limit)
    try:
        calls = _iterate_calls(source, example, images, name)
        parts = calls if graph is None else (Call(*p) for c in calls for p in in_batches(graph, c.args, c.kwargs))
        result = [replace(call, subject=f"{name} input {n}") for n, call in enumerate(islice(parts, limit))]
    except EdgewrightError:
        raise
    except Exception as error:  # raised by the user's code
        raise InputError(_source_name(source, name), f"raised {type(error).__name__}: {error}") from error
    if not result:
        raise InputError(_source_name(source, name), "must contain at least one input for the model")
    return result


def _iterate_calls(source: Any, example: Call, images: ImageOptions | None, name: str) -> Iterator[Call]:
    if isinstance(source, os.PathLike) or (isinstance(source, str) and ":" not in Path(source).name):
        yield from _from_path(Path(source), example, images)
        return
    data = _load_named(source) if isinstance(source, str) else source
    if isinstance(data, torch.Tensor | np.ndarray):
        yield from _split(name, [data], example)
        return
    if isinstance(data, torch.utils.data.Dataset) and not isinstance(data, Iterable):
        data = _elements(data)
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise UsageError(name, "must be a file, a folder, package.module:name, or an iterable of inputs",
                         value=type(data).__name__)  # fmt: skip
    for number, item in enumerate(data):
        yield _make_call(f"{name} input {number}", item, example)


def _elements(dataset: Any) -> Iterator[Any]:
    """The elements of a map-style dataset, which torch gives a length and indices but no iterator."""
    for index in range(len(dataset)):
        yield dataset[index]


def _load_named(text: str) -> Any:
    """An iterable by its name, or the result of a function of that name."""
    from edgewright.frontend.model_spec import load_object

    named_object = load_object(text)
    return named_object() if callable(named_object) and not isinstance(named_object, Iterable) else named_object


def _make_call(source: str, item: Any, example: Call) -> Call:
    if isinstance(item, Call):
        return item
    if isinstance(item, Mapping):
        if not example.kwargs:
            raise InputError(source, "must be a tuple: the model's example inputs are", value="a dict")
        named = {
            name: _match_structure(f"{source}: {name}", value, example.kwargs.get(name)) for name, value in item.items()
        }
        order = {**dict.fromkeys(n for n in example.kwargs if n in named), **named}  # programs take inputs by position
        return Call((), {name: named[name] for name in order})
    values = list(item) if isinstance(item, tuple | list) else [item]
    if example.kwargs and not example.args:
        raise InputError(source, "must be a dict by name, as the model's example inputs are", value=type(item).__name__)
    if len(values) != len(example.args):
        remedy = "Yield the inputs alone, without labels: calibration=((x,) for x, label in loader)."
        raise InputError(source, f"must have {plural(len(example.args), 'input')}", value=len(values), remedy=remedy)
    return Call(tuple(_match_structure(source, g, e) for g, e in zip(values, example.args, strict=True)))


def _match_structure(source: str, value: Any, example: Any) -> Any:
    """Check an input, which may be a dict, tuple or list of tensors if the example's is."""
    _, spec = torch.utils._pytree.tree_flatten(example)
    if spec.is_leaf():
        return _match_example(source, _tensor(source, value), example)
    try:
        values = spec.flatten_up_to(value)
    except ValueError as error:
        rule = f"must be structured as the example input, a {type(example).__name__}"
        raise InputError(source, rule, value=f"{type(value).__name__}: {error}") from error
    examples = spec.flatten_up_to(example)
    matched = [_match_structure(source, v, e) for v, e in zip(values, examples, strict=True)]
    return torch.utils._pytree.tree_unflatten(matched, spec)


def _tensor(source: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor | int | float | bool) or value is None:
        return value
    if isinstance(value, np.ndarray | np.generic):
        return torch.from_numpy(np.asarray(value, order="C"))  # ascontiguousarray would make a vector of a scalar
    remedy = "Convert it: torch.tensor(x)." if isinstance(value, list | tuple) else ""
    raise InputError(source, _TYPE_RULE, value=type(value).__name__, remedy=remedy)


def _match_example(source: str, value: Any, example: Any) -> Any:
    """Check an input against the example, and add a missing batch dimension."""
    if not isinstance(example, torch.Tensor):
        return value
    if not isinstance(value, torch.Tensor):
        rule = "must be a tensor, as in the example inputs"
        raise InputError(source, rule, value=type(value).__name__, remedy="Convert it: torch.tensor(x).")
    if value.dim() + 1 == example.dim() and tuple(value.shape) == tuple(example.shape[1:]):
        value = value.unsqueeze(0)
    if value.dim() != example.dim():
        remedy = f"Reshape it to {['N', *example.shape[1:]]}, N samples of the model's input.".replace("'", "")
        rule = f"must have the rank of the example, {list(example.shape)}"
        raise InputError(source, rule, value=list(value.shape), remedy=remedy)
    if value.dtype != example.dtype:
        name = str(example.dtype).removeprefix("torch.")
        remedy = f"Convert it: x.to({example.dtype}), or x.astype('{name}') of an array."
        raise InputError(source, f"must be {example.dtype}", value=str(value.dtype), remedy=remedy)
    return value


# ---------------------------------------------------------------------------------------------------------- files


def _from_path(path: Path, example: Call, images: ImageOptions | None) -> Iterator[Call]:
    if path.is_dir():
        yield from _from_folder(path, example, images)
    elif path.suffix in (".npz", ".npy"):
        yield from _split(path.name, _arrays(path, example), example)
    elif not path.exists():
        remedy = "Pass an .npz, a folder of images, or package.module:name."
        raise FileAccessError(str(path), "does not exist", remedy=remedy)
    else:
        raise UsageError(str(path), "must be an .npz, an .npy or a folder")


def _arrays(path: Path, example: Call) -> list[Any]:
    try:
        archive = np.load(path, allow_pickle=False)
    except OSError as error:
        raise FileAccessError(str(path), f"cannot be opened: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(str(path), f"must be written with numpy.savez or numpy.save: {error}") from error
    if isinstance(archive, np.ndarray):
        return [archive]
    with archive:
        names = [f"in{i}" for i in range(len(archive.files))]  # the file may contain labels as well
        if example.kwargs and set(example.kwargs) <= set(archive.files):
            names = list(example.kwargs)
        names = [n for n in names if n in archive.files] or list(archive.files)
        return [archive[name] for name in names]


def _split(source: str, arrays: Sequence[Any], example: Call) -> Iterator[Call]:
    """Split arrays of many inputs into calls, along the first dimension or along an extra leading one."""
    given = [*example.args, *example.kwargs.values()]
    examples = [e for e in given if isinstance(e, torch.Tensor)]
    if len(arrays) < len(examples) or len(examples) != len(given):
        names = ", ".join(example.kwargs) if example.kwargs else "in0, in1, ..."
        raise InputError(source, f"must contain {len(given)} arrays, named {names}", value=len(arrays))
    parts = [_split_array(source, _tensor(source, a), e) for a, e in zip(arrays, examples, strict=False)]
    if len({len(p) for p in parts}) != 1:
        raise InputError(
            source, "must contain the same number of each input", value=", ".join(str(len(p)) for p in parts)
        )
    for inputs in zip(*parts, strict=True):
        yield _call_like(example, inputs)


def _call_like(example: Call, inputs: Sequence[Any]) -> Call:
    """A call with these inputs, by position or by name as the example."""
    count = len(example.args)
    return Call(tuple(inputs[:count]), dict(zip(example.kwargs, inputs[count:], strict=True)))


def _split_array(source: str, array: torch.Tensor, example: torch.Tensor) -> list[torch.Tensor]:
    if array.dim() == example.dim() + 1:
        pieces = list(array)
    elif array.dim() == example.dim() and example.dim() and example.shape[0]:
        batch = example.shape[0]
        pieces = [array[at : at + batch] for at in range(0, array.shape[0] - batch + 1, batch)]
    else:
        pieces = [array]
    return [_match_example(source, p, example) for p in pieces]


def _from_folder(path: Path, example: Call, images: ImageOptions | None) -> Iterator[Call]:
    files = sorted(p for p in path.rglob("*") if p.is_file())
    arrays = [p for p in files if p.suffix in (".npy", ".npz")]
    pictures = [p for p in files if p.suffix.lower() in SUFFIXES]
    if not arrays and not pictures:
        raise InputError(str(path), f"must contain images ({', '.join(SUFFIXES)}) or arrays (.npy, .npz)")
    for file in arrays:
        yield from _split(file.name, _arrays(file, example), example)
    for file in pictures if not arrays else ():
        yield _call_like(example, [torch.from_numpy(read_image(file, *_image_input(file, example), images))])


def _image_input(file: Path, example: Call) -> tuple[Sequence[int], str]:
    """Shape and type of the model's only input."""
    inputs = example.leaves()
    if len(inputs) != 1 or not isinstance(inputs[0], torch.Tensor):
        raise InputError(str(file), "images are for models with a single input", value=len(inputs))
    return list(inputs[0].shape), str(inputs[0].dtype).removeprefix("torch.")


def _source_name(source: Any, name: str) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else name

"""Method inputs from ``.npz`` and ``.npy`` files, images, lists of raw files, or filled with ones.

A file's header is checked against the method's signature first; nothing larger than the input is ever read.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgewright.api.image_data import SUFFIXES, ImageOptions, read_image
from edgewright.cli.image_arguments import add_image_arguments
from edgewright.errors import FileAccessError, InputError, UsageError
from edgewright.ir.dtypes import parse_dtype
from edgewright.runtime.metadata import MethodMetadata, ScalarInfo, TensorInfo
from edgewright.runtime.method_io import dtype_remedy
from edgewright.runtime.tensor import Array

Inputs = list[Any]
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LIST_LIMIT = 64 << 20  # bytes of a list of files


# OSError: an archive whose offsets are before the start of the file.
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError, OSError)


def load_inputs(path: str, metadata: MethodMetadata, images: ImageOptions | None = None) -> Inputs:
    """The inputs of one call from an ``.npz``, an ``.npy`` or an image, which ``images`` says how to normalize."""
    if Path(path).suffix.lower() in SUFFIXES:
        return _from_image(path, metadata, images)
    if images is not None:
        raise UsageError("--mean", "is for images", value=path, remedy="Pass a .jpg or .png with --inputs.")
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        remedy = "Check the path and its permissions."
        raise FileAccessError(path, f"cannot be opened: {error.strerror or error}", remedy=remedy) from error
    try:
        with file:
            if file.read(4) == b"PK\x03\x04":
                return _from_archive(path, file, metadata)
            file.seek(0)
            (info,) = _assign(path, ["in0"], metadata)
            return _with_scalars(metadata, {info.name: _read_array(path, file, info)})
    except _ARCHIVE_ERRORS as error:
        remedy = "Write it with numpy.savez or numpy.save."
        raise InputError(path, f"must be a complete .npz or .npy file: {error}", remedy=remedy) from error


def _from_image(path: str, metadata: MethodMetadata, images: ImageOptions | None) -> Inputs:
    (info,) = _assign(path, ["in0"], metadata)
    if not os.path.isfile(path):
        raise FileAccessError(path, "cannot be opened: no such file", remedy="Check the path and its permissions.")
    return _with_scalars(metadata, {info.name: read_image(Path(path), info.shape, info.dtype, images)})


def add_arguments(parser: Any, help: str) -> None:
    """``--inputs`` of a command, and how to normalize an image."""
    parser.add_argument("--inputs", metavar="x.npz", help=help)
    add_image_arguments(parser)


def image_options(args: Any) -> ImageOptions | None:
    """How to normalize images, from the options of a command."""
    if (args.mean is None) != (args.std is None):
        raise UsageError("--mean", "goes with --std: x = (pixel - mean) / std")
    return None if args.mean is None else ImageOptions(tuple(args.mean), tuple(args.std))


def _from_archive(path: str, file: IO[bytes], metadata: MethodMetadata) -> Inputs:
    with zipfile.ZipFile(file) as archive:
        members = _select_members([m for m in archive.namelist() if m.endswith(".npy")], metadata)
        infos = _assign(path, [m.removesuffix(".npy") for m in members], metadata)
        if any(archive.getinfo(m).compress_type not in _METHODS for m in members):
            raise InputError(path, "must be compressed as numpy.savez_compressed does, or not at all")
        arrays = {}
        for member, info in zip(members, infos, strict=True):
            with archive.open(member) as stream:
                arrays[info.name] = _read_array(f"{path}: {member.removesuffix('.npy')}", stream, info)
    return _with_scalars(metadata, arrays)


def _select_members(members: list[str], metadata: MethodMetadata) -> list[str]:
    """The archive members to use: those named ``in0, in1, ...`` if all are present, else every member."""
    named = [f"{info.name}.npy" for info in _tensors(metadata)]
    if named and set(named) <= set(members):
        return named  # the file may also hold labels or expected outputs
    scalars = {f"{i.name}.npy" for i in metadata.inputs if isinstance(i, ScalarInfo)}
    return [m for m in members if m not in scalars]  # scalars are fixed at export


def _tensors(metadata: MethodMetadata) -> list[TensorInfo]:
    return [i for i in metadata.inputs if isinstance(i, TensorInfo)]


def _with_scalars(metadata: MethodMetadata, arrays: dict[str, Array]) -> Inputs:
    """The inputs in order, including scalars, which were fixed at export."""
    return [i.value if isinstance(i, ScalarInfo) else arrays[i.name] for i in metadata.inputs]


def _assign(source: str, names: Sequence[str], metadata: MethodMetadata) -> list[TensorInfo]:
    """Map names to inputs: by the names ``in0, in1, ...`` if they match, else by position."""
    tensors = _tensors(metadata)
    by_name = {info.name: info for info in tensors}
    if len(names) != len(tensors):
        expected = ", ".join(f"{info.name}: {info}" for info in tensors) or "none"
        actual = f"{len(names)} ({', '.join(names[:8])}{', ...' if len(names) > 8 else ''})" if names else "none"
        rule = f"method {metadata.name!r} takes {len(tensors)} tensors ({expected})"
        raise InputError(source, rule, value=actual)
    if set(names) == set(by_name):
        return [by_name[name] for name in names]
    return tensors


def _read_array(source: str, stream: IO[bytes], info: TensorInfo) -> Array:
    """Read one array, unless it is larger than the input."""
    shape, column_major, dtype = _read_header(source, stream)
    expected = parse_dtype(info.dtype)
    count = 1
    for extent in shape:
        count *= extent
    if count * dtype.itemsize > info.nbytes:
        remedy = dtype_remedy(str(dtype), info.dtype) if dtype != expected else _size_remedy(shape, info)
        raise InputError(f"{source} as {info.name}", f"must be {info}", value=f"{dtype}{list(shape)}", remedy=remedy)
    data = stream.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise InputError(source, f"must hold {count * dtype.itemsize} bytes of data", value=len(data))
    array: Array = np.frombuffer(data, dtype).reshape(shape, order="F" if column_major else "C")
    same_bits = dtype.kind == "V" and dtype.names is None and dtype.itemsize == expected.itemsize
    return array.view(expected) if same_bits else array  # numpy cannot name bfloat16 and reads it as raw bytes


def _size_remedy(shape: tuple[int, ...], info: TensorInfo) -> str:
    """The remedy if an array is too large only in its first dimension."""
    if not info.shape or shape[1:] != tuple(info.shape[1:]):
        return ""
    return f"Pass at most {info.shape[0]} at a time, or export the model with a larger bound in dynamic_shapes."


def _read_header(source: str, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, column-major flag and dtype of an ``.npy`` header."""
    npy_format: Any = np.lib.format
    try:
        read = (
            npy_format.read_array_header_1_0
            if npy_format.read_magic(stream) == (1, 0)
            else npy_format.read_array_header_2_0
        )
        shape, column_major, dtype = read(stream)
    except Exception as error:  # numpy evaluates the header as Python text, which can fail in any way
        remedy = "Write it with numpy.savez or numpy.save."
        raise InputError(source, f"must be a complete .npz or .npy file: {error}", remedy=remedy) from error
    if dtype.hasobject or any(extent < 0 for extent in shape):
        raise InputError(source, "must hold numbers, not Python objects", value=f"{dtype}{list(shape)}")
    return shape, column_major, dtype


# ------------------------------------------------------------------------------------------------ lists of files


def read_list(path: str) -> list[list[tuple[str, str]]]:
    """The (name, file) pairs of every line of a list; ``name:=`` is optional, ``#`` and ``%`` start comments."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LIST_LIMIT)
    except OSError as error:
        remedy = "Check the path and its permissions."
        raise FileAccessError(path, f"cannot be opened: {error.strerror}", remedy=remedy) from error
    except UnicodeDecodeError as error:
        raise InputError(path, "must be text: one line of file names per inference") from error
    lines = [line.split() for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#%"]
    if not lines:
        raise InputError(path, "must name input files: one line per inference")
    return [[_entry(path, word) for word in line] for line in lines]


def _entry(path: str, text: str) -> tuple[str, str]:
    name, separator, file = text.rpartition(":=")
    sibling = os.path.join(os.path.dirname(path), file)
    # Device runners take names from the working folder; a list moved with its files should work too.
    return (name if separator else ""), (file if os.path.exists(file) or not os.path.exists(sibling) else sibling)


def from_list(path: str, metadata: MethodMetadata) -> Iterator[Inputs]:
    """The inputs of every line of a list, one line at a time."""
    for number, line in enumerate(read_list(path)):
        infos = _assign(f"{path}, inference {number}", [name or file for name, file in line], metadata)
        arrays = {info.name: _read_raw(file, info) for info, (_, file) in zip(infos, line, strict=True)}
        yield _with_scalars(metadata, arrays)


def from_files(files: Sequence[str], metadata: MethodMetadata) -> Inputs:
    """The inputs of one call from raw files, one for each tensor, in order."""
    infos = _tensors(metadata)
    if len(files) != len(infos):
        rule = f"must name a file for each of the {len(infos)} inputs of {metadata.name!r}"
        raise InputError("--inputs", rule, value=len(files))
    return _with_scalars(metadata, {info.name: _read_raw(file, info) for file, info in zip(files, infos, strict=True)})


def with_shapes(metadata: MethodMetadata, text: str) -> MethodMetadata:
    """A method's signature with other shapes of its inputs: ``1x98,,1x50x256``. An empty entry leaves an input as it
    is."""
    if not text:
        return metadata
    entries = text.split(",")
    if len(entries) != len(metadata.inputs):
        rule = f"must have an entry for each of the {len(metadata.inputs)} inputs, with commas between them"
        raise InputError("--input_shapes", rule, value=text)
    pairs = zip(metadata.inputs, entries, strict=True)
    return replace(metadata, inputs=tuple(_with_shape(info, entry) for info, entry in pairs))


def _with_shape(info: TensorInfo | ScalarInfo, entry: str) -> TensorInfo | ScalarInfo:
    if not entry:
        return info
    if isinstance(info, ScalarInfo) or not re.fullmatch(r"\d+(x\d+)*", entry):
        raise InputError(f"--input_shapes of {info.name}", "must be empty or sizes such as 1x98", value=entry)
    shape = tuple(int(size) for size in entry.split("x"))
    fits = len(shape) == len(info.shape) and all(n <= limit for n, limit in zip(shape, info.shape, strict=True))
    if not fits or (shape != info.shape and not info.dynamic):
        raise InputError(f"--input_shapes of {info.name}", f"must fit {info}", value=entry)
    return replace(info, shape=shape, dynamic=False)


def _read_raw(path: str, info: TensorInfo) -> Array:
    try:
        with open(path, "rb") as file:
            data = file.read(info.nbytes + 1)
            actual = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise FileAccessError(path, f"cannot be opened: {error.strerror}", remedy="Is the list right?") from error
    if len(data) == info.nbytes:
        return np.frombuffer(data, parse_dtype(info.dtype)).reshape(info.shape)
    row = info.nbytes // info.shape[0] if info.shape and info.shape[0] else 0
    if info.dynamic and row and 0 < len(data) < info.nbytes and not len(data) % row:
        return np.frombuffer(data, parse_dtype(info.dtype)).reshape(-1, *info.shape[1:])
    rule = f"must hold {info} ({info.nbytes} bytes{' or complete rows of it' if info.dynamic else ''})"
    raise InputError(f"{path} as {info.name}", rule, value=f"{actual} bytes")

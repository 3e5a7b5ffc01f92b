"""AI LiteCore's C interface: a graph is described to ``libgraph_wrapper.so``, which writes it down, and what it wrote
is compiled by ``libgraphgen_api.so``."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.backends.samsung.graph_record import Node, Record, Tensor
from edgewright.backends.samsung.sdk_headers import Interface, read_interface
from edgewright.backends.samsung.target import EnnTarget, PerformanceMode
from edgewright.errors import MissingError, VendorError

FOLDER = Path("lib") / "x86_64-linux"
LIBRARIES = ("libgraph_wrapper.so", "libgraphgen_api.so")
_NUMPY = {"FLOAT64": np.float64, "FLOAT32": np.float32, "UINT32": np.uint32, "INT32": np.int32, "UINT64": np.uint64,
          "INT64": np.int64, "BOOL": np.bool_}  # fmt: skip
_U64, _P = c.c_uint64, c.c_void_p


def scalar_type(value: Any) -> str:
    """The type of a parameter, as stock's adaptors choose it: the first of theirs that holds all of it."""
    items = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, str):
        return "CHAR"
    if isinstance(value, bool):
        return "BOOL"
    if not items or any(isinstance(i, float) for i in items):
        return "FLOAT64"
    low, high = min(items), max(items)
    for name in ("UINT32", "INT32", "UINT64", "INT64"):
        limits = np.iinfo(_NUMPY[name])  # type: ignore[type-var]
        if limits.min <= low and high <= limits.max:
            return name
    raise VendorError("parameter", "must be a number of 64 bits", value=value)


class LiteCore:
    """The two libraries of an SDK, loaded."""

    def __init__(self, root: Path) -> None:
        self._interface: Interface = read_interface(root / "include")
        self._wrapper, self._compiler = (_load(root / FOLDER / name) for name in LIBRARIES)
        self._param = type("ParamWrapper", (c.Structure,), {"_fields_": self._interface.param})
        self._buffer = type("NNCBuffer", (c.Structure,), {"_fields_": self._interface.buffer})
        self._declare()

    def _declare(self) -> None:
        ids, text = self._interface.ids, c.c_char_p
        tensor, node, dim = (ids[n] for n in ("TENSOR_ID_T", "NODE_ID_T", "DIM_T"))
        several = (c.POINTER(tensor), _U64)
        param: Any = self._param
        wrapper: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "create_graph": (_P, (text,)),
            "define_tensor": (c.c_int, (_P, c.POINTER(tensor), text, c.POINTER(dim), _U64, text, text)),
            "set_data_for_constant_tensor": (c.c_int, (_P, tensor, _P, _U64)),
            "set_quantize_param_for_tensor": (c.c_int, (_P, tensor, text, param, param)),
            "define_op_node": (c.c_int, (_P, c.POINTER(node), text, text, *several, *several)),
            "add_op_parameter": (c.c_int, (_P, node, text, param)),
            "set_graph_input_tensors": (c.c_int, (_P, *several)),
            "set_graph_output_tensors": (c.c_int, (_P, *several)),
            "finish_build_graph": (c.c_int, (_P,)),
            "serialize": (c.c_int, (_P, c.POINTER(_P), c.POINTER(_U64))),
            "release_graph": (None, (_P,)),
        }
        buffer: Any = c.POINTER(self._buffer)
        compiler: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "graphgen_create": (_P, ()),
            "graphgen_initialize_context": (c.c_int, (_P, c.c_int)),
            "graphgen_generate": (c.c_int, (_P, _P, _U64, c.POINTER(buffer))),
            "graphgen_release_buffer": (c.c_int, (_P, buffer)),
            "graphgen_release": (None, (_P,)),
        }
        for library, functions in ((self._wrapper, wrapper), (self._compiler, compiler)):
            for name, (result, arguments) in functions.items():
                _declare(library, name, result, arguments)

    # -------------------------------------------------------------------------------------------------- the graph

    def serialize(self, graph: Record) -> bytes:
        """A graph as AI LiteCore writes it down."""
        handle = self._wrapper.create_graph(b"")
        if not handle:
            raise VendorError("AI LiteCore: create_graph", "gave no graph")
        try:
            tensors = [self._tensor(handle, t) for t in graph.tensors]
            for node in graph.nodes:
                self._node(handle, node, tensors)
            for name, places in (("input", graph.inputs), ("output", graph.outputs)):
                listed = self._ids([tensors[p] for p in places])
                self._call(f"set_graph_{name}_tensors", "graph", handle, listed, len(places))
            self._call("finish_build_graph", "graph", handle)
            address, size = _P(), _U64()
            self._call("serialize", "graph", handle, c.byref(address), c.byref(size))
            if not address.value or not size.value:
                raise VendorError("AI LiteCore: serialize", "gave nothing")
            return c.string_at(address.value, size.value)
        finally:
            self._wrapper.release_graph(handle)

    def _call(self, name: str, subject: str, *arguments: Any) -> None:
        code = getattr(self._wrapper, name)(*arguments)
        if code != self._interface.success["GraphWrapperReturn"]:
            raise VendorError(f"AI LiteCore: {subject}", f"{name} must succeed", value=f"code {code}")

    def _ids(self, ids: Sequence[int]) -> Any:
        return (self._interface.ids["TENSOR_ID_T"] * len(ids))(*ids)

    def _tensor(self, handle: Any, tensor: Tensor) -> int:
        made = self._interface.ids["TENSOR_ID_T"]()
        dims = (self._interface.ids["DIM_T"] * len(tensor.dims))(*tensor.dims)
        said = (tensor.name.encode(), dims, len(tensor.dims), tensor.dtype.encode(), tensor.layout.encode())
        subject = f"tensor {tensor.name!r}"
        self._call("define_tensor", subject, handle, c.byref(made), *said)
        if tensor.data is not None:
            data = np.ascontiguousarray(tensor.data)
            pointer = data.ctypes.data_as(_P)
            self._call("set_data_for_constant_tensor", subject, handle, made.value, pointer, data.nbytes)
        if tensor.quantization is not None:
            kind, scales, zeros = tensor.quantization
            numbers = [self._parameter(scales, "FLOAT32"), self._parameter(zeros, "INT32")]
            structures = [structure for structure, _ in numbers]
            self._call("set_quantize_param_for_tensor", subject, handle, made.value, kind.encode(), *structures)
        return int(made.value)

    def _node(self, handle: Any, node: Node, tensors: Sequence[int]) -> None:
        made = self._interface.ids["NODE_ID_T"]()
        sides = []
        for places in (node.inputs, node.outputs):
            sides += [self._ids([tensors[p] for p in places]), len(places)]
        subject = f"{node.type} {node.name!r}"
        said = (node.name.encode(), node.type.encode(), *sides)
        self._call("define_op_node", subject, handle, c.byref(made), *said)
        for key, value in node.params.items():
            structure, _kept = self._parameter(value, scalar_type(value))
            self._call("add_op_parameter", subject, handle, made.value, key.encode(), structure)

    def _parameter(self, value: Any, kind: str) -> tuple[Any, Any]:
        """A parameter, and the memory that it points to."""
        if kind == "CHAR":
            raw = value.encode()
            data, count = np.frombuffer(raw or b"\0", np.uint8), len(raw)
        else:
            data = np.atleast_1d(np.asarray(value, _NUMPY[kind]))
            count = data.size
        made = self._param()
        fields = {"size": count, "data": data.ctypes.data, "is_scalar": not isinstance(value, str | list | tuple)}
        for name, content in {**fields, "type": self._interface.scalars[kind]}.items():
            setattr(made, name, content)
        return made, data

    # ------------------------------------------------------------------------------------------------ compilation

    def compile(self, serialized: bytes, target: EnnTarget) -> bytes:
        """What a chip runs: the NNC of a serialized graph."""
        done = self._interface.success["GraphGenResult"]
        handle = self._compiler.graphgen_create()
        if not handle:
            raise VendorError("AI LiteCore: graphgen_create", "gave no compiler")
        try:
            code = self._compiler.graphgen_initialize_context(handle, int(target.chipset))
            if code != done:
                remedy = "Install a release of AI LiteCore that knows the chip."
                said = f"code {code}"
                raise VendorError(
                    f"chipset {target.chipset.name}", "must be known to AI LiteCore", value=said, remedy=remedy
                )
            self._set_mode(handle, target.perf_mode)
            made: Any = c.POINTER(self._buffer)()
            held = c.create_string_buffer(serialized, len(serialized))
            code = self._compiler.graphgen_generate(handle, held, len(serialized), c.byref(made))
            if code != done or not made or not made.contents.addr or not made.contents.size:
                raise VendorError("AI LiteCore: graphgen_generate", "must compile the graph", value=f"code {code}")
            blob = c.string_at(made.contents.addr, made.contents.size)
            self._compiler.graphgen_release_buffer(handle, made)
            return blob
        finally:
            self._compiler.graphgen_release(handle)

    def _set_mode(self, handle: Any, mode: PerformanceMode) -> None:
        """Older releases have no modes: they compile for the default one."""
        try:
            function = _declare(self._compiler, "graphgen_set_perf_mode", c.c_int, (_P, c.c_int))
        except VendorError:
            if mode is PerformanceMode.DEFAULT:
                return
            raise
        code = function(handle, int(mode))
        if code != self._interface.success["GraphGenResult"]:
            raise VendorError(f"perf_mode {mode.name}", "must be known to AI LiteCore", value=f"code {code}")


def _load(path: Path) -> c.CDLL:
    try:
        return c.CDLL(str(path))
    except OSError as error:
        remedy = f"Add {path.parent} to LD_LIBRARY_PATH, if it needs libraries beside it."
        raise MissingError(path.name, "cannot be loaded", value=str(error), remedy=remedy) from error


def _declare(library: c.CDLL, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    try:
        function = getattr(library, name)
    except AttributeError as error:
        remedy = "Install a release of AI LiteCore that has it."
        raise VendorError("AI LiteCore", f"must have {name}", remedy=remedy) from error
    function.restype, function.argtypes = result, list(arguments)
    return function


def compile_record(graph: Record, target: EnnTarget, root: Path) -> bytes:
    core = LiteCore(root)
    return core.compile(core.serialize(graph), target)

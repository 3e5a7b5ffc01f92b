"""Bindings of AI LiteCore's C interface: ``libgraph_wrapper.so`` builds and serializes a graph, and
``libgraphgen_api.so`` compiles the serialized graph."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.backends.samsung.graph_record import GraphRecord, NodeRecord, TensorRecord
from edgewright.backends.samsung.sdk_headers import Interface, read_interface
from edgewright.backends.samsung.target import EnnTarget, PerformanceMode
from edgewright.errors import MissingError, VendorError

FOLDER = Path("lib") / "x86_64-linux"
LIBRARIES = ("libgraph_wrapper.so", "libgraphgen_api.so")
_NUMPY_DTYPES = {"FLOAT64": np.float64, "FLOAT32": np.float32, "UINT32": np.uint32, "INT32": np.int32,
                 "UINT64": np.uint64, "INT64": np.int64, "BOOL": np.bool_}  # fmt: skip
_U64, _P = c.c_uint64, c.c_void_p


def scalar_type(value: Any) -> str:
    """The type of a parameter, as ExecuTorch's adaptors choose it: the first type that can represent all values."""
    items = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, str):
        return "CHAR"
    if isinstance(value, bool):
        return "BOOL"
    if not items or any(isinstance(i, float) for i in items):
        return "FLOAT64"
    low, high = min(items), max(items)
    for name in ("UINT32", "INT32", "UINT64", "INT64"):
        limits = np.iinfo(_NUMPY_DTYPES[name])  # type: ignore[type-var]
        if limits.min <= low and high <= limits.max:
            return name
    raise VendorError("parameter", "must be a number of 64 bits", value=value)


class LiteCore:
    """The two libraries of an SDK."""

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

    # ------------------------------------------------------------------------------------------------------ graph

    def serialize(self, graph: GraphRecord) -> bytes:
        """Serialize a graph with AI LiteCore."""
        handle = self._wrapper.create_graph(b"")
        if not handle:
            raise VendorError("AI LiteCore: create_graph", "returned no graph")
        try:
            tensors = [self._tensor(handle, t) for t in graph.tensors]
            for node in graph.nodes:
                self._node(handle, node, tensors)
            for name, indices in (("input", graph.inputs), ("output", graph.outputs)):
                ids = self._ids([tensors[p] for p in indices])
                self._call(f"set_graph_{name}_tensors", "graph", handle, ids, len(indices))
            self._call("finish_build_graph", "graph", handle)
            address, size = _P(), _U64()
            self._call("serialize", "graph", handle, c.byref(address), c.byref(size))
            if not address.value or not size.value:
                raise VendorError("AI LiteCore: serialize", "returned nothing")
            return c.string_at(address.value, size.value)
        finally:
            self._wrapper.release_graph(handle)

    def _call(self, name: str, subject: str, *arguments: Any) -> None:
        code = getattr(self._wrapper, name)(*arguments)
        if code != self._interface.success["GraphWrapperReturn"]:
            raise VendorError(f"AI LiteCore: {subject}", f"{name} must succeed", value=f"code {code}")

    def _ids(self, ids: Sequence[int]) -> Any:
        return (self._interface.ids["TENSOR_ID_T"] * len(ids))(*ids)

    def _tensor(self, handle: Any, tensor: TensorRecord) -> int:
        tensor_id = self._interface.ids["TENSOR_ID_T"]()
        dims = (self._interface.ids["DIM_T"] * len(tensor.dims))(*tensor.dims)
        description = (tensor.name.encode(), dims, len(tensor.dims), tensor.dtype.encode(), tensor.layout.encode())
        subject = f"tensor {tensor.name!r}"
        self._call("define_tensor", subject, handle, c.byref(tensor_id), *description)
        if tensor.data is not None:
            data = np.ascontiguousarray(tensor.data)
            pointer = data.ctypes.data_as(_P)
            self._call("set_data_for_constant_tensor", subject, handle, tensor_id.value, pointer, data.nbytes)
        if tensor.quantization is not None:
            kind, scales, zeros = tensor.quantization
            qparams = [self._parameter(scales, "FLOAT32"), self._parameter(zeros, "INT32")]
            structures = [structure for structure, _ in qparams]
            self._call("set_quantize_param_for_tensor", subject, handle, tensor_id.value, kind.encode(), *structures)
        return int(tensor_id.value)

    def _node(self, handle: Any, node: NodeRecord, tensors: Sequence[int]) -> None:
        node_id = self._interface.ids["NODE_ID_T"]()
        operands = []
        for indices in (node.inputs, node.outputs):
            operands += [self._ids([tensors[p] for p in indices]), len(indices)]
        subject = f"{node.type} {node.name!r}"
        description = (node.name.encode(), node.type.encode(), *operands)
        self._call("define_op_node", subject, handle, c.byref(node_id), *description)
        for key, value in node.params.items():
            structure, _memory = self._parameter(value, scalar_type(value))
            self._call("add_op_parameter", subject, handle, node_id.value, key.encode(), structure)

    def _parameter(self, value: Any, kind: str) -> tuple[Any, Any]:
        """A ``ParamWrapper``, and the array it points to, which must outlive the call."""
        if kind == "CHAR":
            raw = value.encode()
            data, count = np.frombuffer(raw or b"\0", np.uint8), len(raw)
        else:
            data = np.atleast_1d(np.asarray(value, _NUMPY_DTYPES[kind]))
            count = data.size
        param = self._param()
        fields = {"size": count, "data": data.ctypes.data, "is_scalar": not isinstance(value, str | list | tuple)}
        for name, content in {**fields, "type": self._interface.scalars[kind]}.items():
            setattr(param, name, content)
        return param, data

    # ------------------------------------------------------------------------------------------------ compilation

    def compile(self, serialized: bytes, target: EnnTarget) -> bytes:
        """Compile a serialized graph to an NNC, the chip's executable format."""
        success = self._interface.success["GraphGenResult"]
        handle = self._compiler.graphgen_create()
        if not handle:
            raise VendorError("AI LiteCore: graphgen_create", "returned no compiler")
        try:
            code = self._compiler.graphgen_initialize_context(handle, int(target.chipset))
            if code != success:
                remedy = "Install a release of AI LiteCore that supports the chip."
                detail = f"code {code}"
                raise VendorError(
                    f"chipset {target.chipset.name}", "must be supported by AI LiteCore", value=detail, remedy=remedy
                )
            self._set_mode(handle, target.perf_mode)
            nnc: Any = c.POINTER(self._buffer)()
            buffer = c.create_string_buffer(serialized, len(serialized))
            code = self._compiler.graphgen_generate(handle, buffer, len(serialized), c.byref(nnc))
            if code != success or not nnc or not nnc.contents.addr or not nnc.contents.size:
                raise VendorError("AI LiteCore: graphgen_generate", "must compile the graph", value=f"code {code}")
            blob = c.string_at(nnc.contents.addr, nnc.contents.size)
            self._compiler.graphgen_release_buffer(handle, nnc)
            return blob
        finally:
            self._compiler.graphgen_release(handle)

    def _set_mode(self, handle: Any, mode: PerformanceMode) -> None:
        """Older releases have no performance modes and compile for the default."""
        try:
            function = _declare(self._compiler, "graphgen_set_perf_mode", c.c_int, (_P, c.c_int))
        except VendorError:
            if mode is PerformanceMode.DEFAULT:
                return
            raise
        code = function(handle, int(mode))
        if code != self._interface.success["GraphGenResult"]:
            raise VendorError(f"perf_mode {mode.name}", "must be supported by AI LiteCore", value=f"code {code}")


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


def compile_record(graph: GraphRecord, target: EnnTarget, root: Path) -> bytes:
    core = LiteCore(root)
    return core.compile(core.serialize(graph), target)

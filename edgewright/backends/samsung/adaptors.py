"""AI LiteCore through the two native modules (adaptors) of an ExecuTorch source build, called as ExecuTorch does."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from edgewright.backends.samsung.graph_record import GraphRecord
from edgewright.backends.samsung.target import EnnTarget
from edgewright.errors import VendorError

PACKAGE = "executorch.backends.samsung.python"
MODULES = ("PyEnnWrapperAdaptor", "PyGraphWrapperAdaptor")


def compile_record(graph: GraphRecord, target: EnnTarget) -> bytes:
    """Compile a graph to an NNC, the chip's executable format."""
    compiler, builder = (import_module(f"{PACKAGE}.{name}") for name in MODULES)
    wrapper = compiler.EnnWrapper()
    wrapper.Init(target.value)
    try:
        compiled = bytes(wrapper.Compile(_build_graph(builder, graph)))
    except RuntimeError as error:
        raise VendorError("AI LiteCore", f"must compile the graph: {error}"[:300]) from error
    finally:
        wrapper.Destroy()
    if not compiled:
        remedy = "See its output for the reason; an unsupported chip is one."
        raise VendorError("AI LiteCore", "must return a compiled graph", value="nothing", remedy=remedy)
    return compiled


def _build_graph(module: Any, graph: GraphRecord) -> Any:
    """Build the graph with the adaptor; returns AI LiteCore's serialization."""
    wrapper = module.PyEnnGraphWrapper()
    wrapper.Init()
    ids = []
    for tensor in graph.tensors:
        tensor_wrapper = module.PyEnnTensorWrapper(tensor.name, tensor.dims, tensor.dtype, tensor.layout)
        if tensor.quantization is not None:
            tensor_wrapper.AddQuantizeParam(*tensor.quantization)
        if tensor.data is not None:
            tensor_wrapper.AddData(tensor.data)
        ids.append(wrapper.DefineTensor(tensor_wrapper))
    for node in graph.nodes:
        operands = [[ids[p] for p in indices] for indices in (node.inputs, node.outputs)]
        op = module.PyEnnOpWrapper(node.name, node.type, *operands)
        for key, value in node.params.items():
            op.AddOpParam(_param(module, key, value))
        wrapper.DefineOpNode(op)
    wrapper.SetGraphInputTensors([ids[p] for p in graph.inputs])
    wrapper.SetGraphOutputTensors([ids[p] for p in graph.outputs])
    wrapper.FinishBuild()
    return wrapper.Serialize()


def _param(module: Any, key: str, value: Any) -> Any:
    param = module.OpParamWrapper(key)
    if isinstance(value, str):
        param.SetStringValue(value)
    elif isinstance(value, list | tuple):
        param.SetVectorValue(list(value))
    else:
        param.SetScalarValue(value)
    return param

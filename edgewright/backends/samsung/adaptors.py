"""The two native modules of a source build of ExecuTorch, which speak to AI LiteCore for it, used as it uses them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from edgewright.backends.samsung.graph_record import Record
from edgewright.backends.samsung.target import EnnTarget
from edgewright.errors import VendorError

PACKAGE = "executorch.backends.samsung.python"
MODULES = ("PyEnnWrapperAdaptor", "PyGraphWrapperAdaptor")


def compile_record(graph: Record, target: EnnTarget) -> bytes:
    """What a chip runs: the NNC of a graph."""
    compiling, describing = (import_module(f"{PACKAGE}.{name}") for name in MODULES)
    wrapper = compiling.EnnWrapper()
    wrapper.Init(target.value)
    try:
        made = bytes(wrapper.Compile(_described(describing, graph)))
    except RuntimeError as error:
        raise VendorError("AI LiteCore", f"must compile the graph: {error}"[:300]) from error
    finally:
        wrapper.Destroy()
    if not made:
        remedy = "What it printed says why; a chip it does not know ends so, too."
        raise VendorError("AI LiteCore", "must give a compiled graph", value="nothing", remedy=remedy)
    return made


def _described(module: Any, graph: Record) -> Any:
    """The graph, told to the adaptor and written down by AI LiteCore."""
    told = module.PyEnnGraphWrapper()
    told.Init()
    ids = []
    for tensor in graph.tensors:
        made = module.PyEnnTensorWrapper(tensor.name, tensor.dims, tensor.dtype, tensor.layout)
        if tensor.quantization is not None:
            made.AddQuantizeParam(*tensor.quantization)
        if tensor.data is not None:
            made.AddData(tensor.data)
        ids.append(told.DefineTensor(made))
    for node in graph.nodes:
        sides = [[ids[p] for p in places] for places in (node.inputs, node.outputs)]
        op = module.PyEnnOpWrapper(node.name, node.type, *sides)
        for key, value in node.params.items():
            op.AddOpParam(_param(module, key, value))
        told.DefineOpNode(op)
    told.SetGraphInputTensors([ids[p] for p in graph.inputs])
    told.SetGraphOutputTensors([ids[p] for p in graph.outputs])
    told.FinishBuild()
    return told.Serialize()


def _param(module: Any, key: str, value: Any) -> Any:
    made = module.OpParamWrapper(key)
    if isinstance(value, str):
        made.SetStringValue(value)
    elif isinstance(value, list | tuple):
        made.SetVectorValue(list(value))
    else:
        made.SetScalarValue(value)
    return made

import os
import struct
from types import SimpleNamespace

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

MICROCODE, WEIGHTS, KERNELS = 84, 40, 20  # bytes


def getNeutronTarget(name):  # noqa: N802
    npu = SimpleNamespace(subsystem=name != "imxrt700", numUnits=1, numPipes=8, numMacs=8, hwVersion=2)
    return SimpleNamespace(name=name, npu=npu)


class CompilationContext:
    def __init__(self):
        self.targetOpts = None
        self.compilationOpts = SimpleNamespace(useProfiling=False, useProfilingOfStandIn=False)


def convertModel(data, context):  # noqa: N802
    assert isinstance(data, list)
    assert context.targetOpts.name
    options = context.compilationOpts
    assert options.minNumOpsPerGraph == 1
    assert options.excludeGraphPasses == "HoistSliceAboveTranspose,MergeTranspose"
    assert isinstance(options.fetchConstantsToSRAM, bool) and isinstance(options.dumpKernelSelectionCode, bool)
    how = os.environ.get("STANDIN", "")
    if how == "crash":
        os._exit(139)
    print("converting")
    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    if how != "refuse":
        _wrap(model, options.useProfiling or options.useProfilingOfStandIn)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return list(bytes(builder.Output()))


def _wrap(model, profiling):
    graph = model.subgraphs[0]
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    words = [0] * (MICROCODE // 4)
    words[0], words[6], words[7], words[9] = 0x64434D6E, MICROCODE, WEIGHTS, 64
    words[13 if profiling else 11], words[14 if profiling else 12] = len(inputs), len(outputs)
    parts = [struct.pack(f"<{len(words)}I", *words), bytes(range(WEIGHTS)), bytes(range(100, 100 + KERNELS))]
    named = dict(zip(("microcode", "weights", "kernels"), parts, strict=True))
    places = [_tensor(model, graph, name, data) for name, data in named.items()]
    extra = [_tensor(model, graph, n, None) for n in (("scratch", "profile", "debug") if profiling else ("scratch",))]
    code, op = schema.OperatorCodeT(), schema.OperatorT()
    code.deprecatedBuiltinCode = code.builtinCode = schema.BuiltinOperator.CUSTOM
    code.customCode, code.version = "NeutronGraph", 1
    model.operatorCodes = [code]
    op.opcodeIndex, op.inputs, op.outputs = 0, inputs + places, outputs + extra
    graph.operators = [op]


def _tensor(model, graph, name, data):
    made, held = schema.TensorT(), schema.BufferT()
    held.data = None if data is None else np.frombuffer(data, np.uint8)
    model.buffers.append(held)
    made.name, made.type, made.buffer = name, schema.TensorType.UINT8, len(model.buffers) - 1
    made.shape = np.asarray([64 if data is None else len(data)], np.int32)
    graph.tensors.append(made)
    return len(graph.tensors) - 1

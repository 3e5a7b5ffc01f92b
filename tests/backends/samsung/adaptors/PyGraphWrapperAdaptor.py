"""Describes graphs: every call is kept, and a serialized graph is all of them."""

# ruff: noqa: N802, N999  (names of the native modules)

import json

import numpy as np


class OpParamWrapper:
    def __init__(self, key):
        self.key, self.value = key, None

    def SetStringValue(self, value):
        assert isinstance(value, str)
        self.value = value

    def SetScalarValue(self, value):
        assert isinstance(value, (bool, int, float))
        self.value = value

    def SetVectorValue(self, value):
        assert isinstance(value, (list, tuple)) and all(isinstance(v, (bool, int, float)) for v in value)
        self.value = list(value)


class PyEnnTensorWrapper:
    def __init__(self, name, dims, dtype, layout):
        assert all(isinstance(word, str) for word in (name, dtype, layout))
        self.told = {"name": name, "dims": [int(n) for n in dims], "dtype": dtype, "layout": layout}
        self.told.update(data=None, quantization=None)

    def AddQuantizeParam(self, kind, scales, zero_points):
        scales = [float(np.float32(s)) for s in scales]
        self.told["quantization"] = [kind, scales, [int(z) for z in zero_points]]

    def AddData(self, data):
        value = 14695981039346656037  # FNV-1a
        for byte in np.ascontiguousarray(data).tobytes():
            value = (value ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
        self.told["data"] = [int(data.nbytes), f"{value:016x}"]


class PyEnnOpWrapper:
    def __init__(self, name, kind, inputs, outputs):
        self.told = {"name": name, "type": kind, "inputs": list(inputs), "outputs": list(outputs), "params": {}}

    def AddOpParam(self, param):
        self.told["params"][param.key] = param.value


class PyEnnGraphWrapper:
    def Init(self):
        self.told = {"tensors": [], "nodes": [], "inputs": [], "outputs": []}
        self.finished = False

    def DefineTensor(self, tensor):
        self.told["tensors"].append(tensor.told)
        return len(self.told["tensors"]) - 1

    def DefineOpNode(self, op):
        self.told["nodes"].append(op.told)
        return len(self.told["nodes"]) - 1

    def SetGraphInputTensors(self, ids):
        self.told["inputs"] = list(ids)

    def SetGraphOutputTensors(self, ids):
        self.told["outputs"] = list(ids)

    def FinishBuild(self):
        self.finished = True

    def Serialize(self):
        assert self.finished
        return np.frombuffer(json.dumps(self.told).encode(), np.int8)

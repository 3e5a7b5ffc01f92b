"""Compiles graphs: what it gives is a line with the options, and the graph. It knows the Exynos 2500 only."""

# ruff: noqa: N802, N999  (names of the native modules)

import json

import numpy as np


class EnnWrapper:
    def Init(self, options):
        assert isinstance(options, bytes) and options[4:8] == b"EETO"
        self.options = options

    def IsNodeSupportedByBackend(self):
        return False

    def Compile(self, graph):
        if (9955).to_bytes(4, "little") not in self.options:
            return np.zeros(0, np.int8)
        head = json.dumps({"options": self.options.hex()}) + "\n"
        return np.frombuffer(head.encode() + graph.tobytes(), np.int8)

    def Destroy(self):
        self.options = None

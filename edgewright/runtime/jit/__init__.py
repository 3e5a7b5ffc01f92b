"""Kernel calls that the engine compiles: calls become operators of the ATen dialect, ``lowering/aten_to_core`` lowers
them to core graphs, and segments of calls are replaced by the compiled graph."""

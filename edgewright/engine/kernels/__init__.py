"""Kernels: functions that emit LLVM IR for one kind of loop nest, specialized to shapes, strides and epilogue.

A frozen dataclass (``GemmTile``, ``Int8DepthwiseRow``, ...) holds everything the code depends on; its ``repr`` names
the kernel in the code cache. Lowerings (``engine/lower``) fill it in. Register tiles that only the instruction set
decides are chosen here (``tile_pixels``); those that are worth tuning are chosen by the lowering.
"""

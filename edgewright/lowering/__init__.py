"""Lowering to delegates: graph passes, and partitioning of a graph among backends."""

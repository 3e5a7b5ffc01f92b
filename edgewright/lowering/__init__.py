"""From operators to delegates: graph passes, and the partition of a graph among backends."""

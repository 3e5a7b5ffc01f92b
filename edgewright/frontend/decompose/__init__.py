"""Decompositions: operators of torch in terms of those that kernels and backends have."""

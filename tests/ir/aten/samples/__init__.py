"""Operator samples, one module per kernel family; each has a list ``SAMPLES``."""

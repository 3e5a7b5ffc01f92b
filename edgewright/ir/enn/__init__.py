"""Graphs of ENN, Samsung's neural network SDK, as device graphs: their operators, checks and meaning."""

"""TOSA 1.0 dialect: one table of operators with operands, shapes, types and reference. Imports no torch, no vendor
code.
"""

"""What firmware needs to run a program under ExecuTorch's runtime: C sources, pool sizes, operators, a memory budget.

Reads files only; imports no torch.
"""

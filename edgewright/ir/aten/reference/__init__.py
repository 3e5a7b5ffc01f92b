"""Reference implementations of the ATen operators in numpy: pure functions of arrays, one module per family.

Each function (or family) has a shape function with the same arguments. References do not modify their arguments,
allocate no more than the result and a bounded workspace, and depend on neither files, devices nor torch.
"""

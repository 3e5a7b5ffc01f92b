"""What each operator means, in numpy: pure functions of arrays, one module per family.

Beside each function (or family) stands the function that gives its result's shape from the same arguments.
Nothing here writes to its arguments, allocates more than its result and a bounded working copy, or knows of
files, devices or torch.
"""

"""Lowerings: how each kind of fused node becomes plan steps.

The scheduler tries the lowerings of a list in order and takes the first whose ``accept`` returns one. The last entry,
``ReferenceStep``, accepts everything and calls the numpy reference.
"""

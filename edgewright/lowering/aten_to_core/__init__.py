"""Lowering of ATen operators to the core dialect: a function per operator of the op table, by family.

The same functions lower the groups of the XNNPACK backend, whose rows name them, and the kernel calls that the runtime
compiles. What differs between the two is in the ``LoweringContext``: how layouts propagate, how indices are checked. A
function appends core operators that compute the results of an operator, or raises ``NotLoweredError``.
"""

from edgewright.lowering.aten_to_core import elementwise, gather, image, move, norm, products, quantized, reduce
from edgewright.lowering.aten_to_core.elementwise import Lowering

_FAMILIES = (elementwise, reduce, move, gather, products, image, norm, quantized)
LOWERINGS: dict[str, Lowering] = {name: fn for family in _FAMILIES for name, fn in family.LOWERINGS.items()}

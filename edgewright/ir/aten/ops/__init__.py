"""The rows of the op table, by family. Importing this package fills ``OPS``.

What holds for every row:

- ``reference`` and ``shape`` take the arguments of an overload by name, all of them. Types are numbers of
  ``ScalarType``; a result is stored in the type of the value it becomes, so arguments that only say that type
  (``dtype`` of a cast) do not matter to the reference.
- The reference gives every result any of the row's overloads has; an overload with fewer (``max_pool2d``, which
  drops the indices) takes the first ones. ``ports["out"]`` is that of the first result, and of every piece of a split.
- ``FOLLOW`` holds for operands that broadcast too, once their ranks are equal.
"""

from edgewright.ir.aten.ops import activations as activations
from edgewright.ir.aten.ops import arithmetic as arithmetic
from edgewright.ir.aten.ops import compare as compare
from edgewright.ir.aten.ops import create as create
from edgewright.ir.aten.ops import image as image
from edgewright.ir.aten.ops import indexing as indexing
from edgewright.ir.aten.ops import linalg as linalg
from edgewright.ir.aten.ops import movement as movement
from edgewright.ir.aten.ops import norm as norm
from edgewright.ir.aten.ops import quant as quant
from edgewright.ir.aten.ops import reduce as reduce
from edgewright.ir.aten.table import OPS

__all__ = ["OPS"]

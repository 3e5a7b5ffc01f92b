"""The entries of the op table, by family. Importing this package fills ``OPS``.

Conventions:

- ``reference`` and ``shape`` take all arguments of an overload by name. Dtypes are ``ScalarType`` numbers; a result is
  stored in the dtype of its value, so arguments that only select that dtype (of a cast) do not affect the reference.
- The reference returns every result of any of the entry's overloads; an overload with fewer (``max_pool2d``, which
  drops the indices) uses the first ones. ``ports["out"]`` is that of the first result, and of every piece of a split.
- ``ELEMENTWISE`` operands may broadcast.
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

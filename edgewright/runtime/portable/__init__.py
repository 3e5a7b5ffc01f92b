"""Kernel calls as operators of a device graph, so that the engine can run them: one row for each operator.

PyTorch's images have their channels before rows and columns, a device graph's have them last. Every tensor is kept in
the form it was made in, and turned only when the other is asked for.

Importing this package fills the table.
"""

from edgewright.runtime.portable import convolutions as convolutions
from edgewright.runtime.portable import elements as elements
from edgewright.runtime.portable import embeddings as embeddings
from edgewright.runtime.portable import functions as functions
from edgewright.runtime.portable import grid as grid
from edgewright.runtime.portable import images as images
from edgewright.runtime.portable import layers as layers
from edgewright.runtime.portable import moves as moves
from edgewright.runtime.portable import picks as picks
from edgewright.runtime.portable import places as places
from edgewright.runtime.portable import products as products
from edgewright.runtime.portable import quantized as quantized
from edgewright.runtime.portable import reductions as reductions
from edgewright.runtime.portable import state as state
from edgewright.runtime.portable import tables as tables
from edgewright.runtime.portable import typed as typed

"""Kernel calls as operators of a device graph, so that the engine can run them: one row for each operator.

PyTorch's images have their channels before rows and columns, a device graph's have them last. Every tensor is kept in
the form it was made in, and turned only when the other is asked for.

Importing this package fills the table.
"""

from edgewright.runtime.jit import argmax_index as argmax_index
from edgewright.runtime.jit import composites as composites
from edgewright.runtime.jit import conv as conv
from edgewright.runtime.jit import conv1d as conv1d
from edgewright.runtime.jit import elementwise as elementwise
from edgewright.runtime.jit import embeddings as embeddings
from edgewright.runtime.jit import gather as gather
from edgewright.runtime.jit import grid_sample as grid_sample
from edgewright.runtime.jit import image as image
from edgewright.runtime.jit import layers as layers
from edgewright.runtime.jit import move as move
from edgewright.runtime.jit import quantized as quantized
from edgewright.runtime.jit import rearrange as rearrange
from edgewright.runtime.jit import reduce as reduce
from edgewright.runtime.jit import state as state
from edgewright.runtime.jit import typed_elementwise as typed_elementwise

"""Lowering of portable kernel calls to core graphs, so that the engine can compile them: one lowering per operator.

PyTorch's images are NCHW, those of a core graph NHWC. A tensor keeps the layout it was produced in; a permute is
inserted only when a consumer needs the other one.

Importing this package fills the registry.
"""

from edgewright.runtime.jit import argmax_index as argmax_index
from edgewright.runtime.jit import composites as composites
from edgewright.runtime.jit import conv as conv
from edgewright.runtime.jit import gather as gather
from edgewright.runtime.jit import image as image
from edgewright.runtime.jit import layers as layers
from edgewright.runtime.jit import move as move
from edgewright.runtime.jit import quantized as quantized
from edgewright.runtime.jit import rearrange as rearrange
from edgewright.runtime.jit import reduce as reduce
from edgewright.runtime.jit import state as state
from edgewright.runtime.jit import typed_elementwise as typed_elementwise

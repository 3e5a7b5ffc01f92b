"""Kernels of the stock operator list, by family. Importing this package fills the registry."""

from edgewright.runtime.kernels import activations as activations
from edgewright.runtime.kernels import create as create
from edgewright.runtime.kernels import elementwise as elementwise
from edgewright.runtime.kernels import image as image
from edgewright.runtime.kernels import indexing as indexing
from edgewright.runtime.kernels import linalg as linalg
from edgewright.runtime.kernels import movement as movement
from edgewright.runtime.kernels import norm as norm
from edgewright.runtime.kernels import prim as prim
from edgewright.runtime.kernels import quant as quant
from edgewright.runtime.kernels import reduce as reduce
from edgewright.runtime.kernels import views as views

"""Kernels of the stock operator list, by family. Importing this package fills the registry."""

from edgewright.runtime.kernels import elementwise as elementwise

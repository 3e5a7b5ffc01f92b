"""Qualcomm's QNN C API, as Python sees it: structures, the library, and what is built and run with it."""

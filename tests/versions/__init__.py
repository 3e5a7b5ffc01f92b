"""The wheel in every release of Python and torch that it admits: ``python -m tests.versions``."""

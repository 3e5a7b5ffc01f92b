"""The high-level API: compile a model for one or several targets, check it, measure it, and explain the result."""

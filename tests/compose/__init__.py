"""Compositions drawn at random: device graphs and models that no test names, replayed from a number.

``python -m tests.compose`` searches with new seeds; ``docs/soundness.md`` says what is compared with what.
"""

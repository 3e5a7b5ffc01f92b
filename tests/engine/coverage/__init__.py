"""What still runs in numpy, by target, with the reason of each: one file for each, read by ``test_coverage.py``.

An operator that gets machine code, or loses it, makes the test fail until its file says so.
"""

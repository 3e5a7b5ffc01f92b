"""``python -m edgewright.compat``: the same as ``edgewright compat``."""

import sys

from edgewright.cli import main

sys.exit(main(["compat", *sys.argv[1:]]))

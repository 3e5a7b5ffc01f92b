"""``python -m edgewright`` is the ``edgewright`` command."""

import sys

from edgewright.cli import main

sys.exit(main())

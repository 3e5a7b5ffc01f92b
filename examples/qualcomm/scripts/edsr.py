"""EDSR: an image of twice the size.

python -m examples.qualcomm.scripts.edsr -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

from examples.qualcomm.flow import Script, image, script_main
from examples.qualcomm.models.small import EDSR

SCRIPT = Script("edsr", "edsr_qnn", lambda args: EDSR(), image, 224)

if __name__ == "__main__":
    script_main(SCRIPT)

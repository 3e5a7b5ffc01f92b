"""MobileNetV2: what an image shows.

python -m examples.qualcomm.scripts.mobilenet_v2 -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

from examples.nxp.models import MobileNetV2
from examples.qualcomm.flow import Script, image, script_main, top_one

SCRIPT = Script("mobilenet_v2", "mv2_qnn", lambda args: MobileNetV2(), image, 224, report=top_one)

if __name__ == "__main__":
    script_main(SCRIPT)

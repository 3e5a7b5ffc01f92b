"""MobileNetV3 (small): what an image shows.

python -m examples.qualcomm.scripts.mobilenet_v3 -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

from edgewright.backends.qualcomm import QuantDtype
from examples.qualcomm.flow import Script, image, script_main, top_one
from examples.qualcomm.models.mobilenet_v3 import MobileNetV3

SCRIPT = Script("mobilenet_v3", "mv3_qnn", lambda args: MobileNetV3(), image, 224, QuantDtype.use_16a8w, top_one)

if __name__ == "__main__":
    script_main(SCRIPT)

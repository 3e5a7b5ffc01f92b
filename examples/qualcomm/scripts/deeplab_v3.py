"""DeepLabV3-ResNet101: what every pixel of an image is.

python -m examples.qualcomm.scripts.deeplab_v3 -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

from examples.qualcomm.flow import Script, image, script_main, top_one
from examples.qualcomm.models.deeplab import DeepLabV3

SCRIPT = Script("deeplab_v3", "dlv3_qnn", lambda args: DeepLabV3(), image, 224, report=top_one)

if __name__ == "__main__":
    script_main(SCRIPT)

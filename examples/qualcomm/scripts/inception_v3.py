"""Inception v3: what an image shows.

python -m examples.qualcomm.scripts.inception_v3 -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

from examples.qualcomm.flow import Script, image, script_main, top_one
from examples.qualcomm.models.inception_v3 import InceptionV3

SCRIPT = Script("inception_v3", "ic3_qnn", lambda args: InceptionV3(), image, 299, report=top_one)

if __name__ == "__main__":
    script_main(SCRIPT)

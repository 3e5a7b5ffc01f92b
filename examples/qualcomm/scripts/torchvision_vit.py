"""A vision transformer (ViT-B/16): what an image shows.

python -m examples.qualcomm.scripts.torchvision_vit -b build-android -m SM8550 --compile_only
"""

from __future__ import annotations

from examples.qualcomm.flow import Script, image, script_main, top_one
from examples.qualcomm.models.vit import VisionTransformer

SCRIPT = Script(
    "torchvision_vit", "vit_qnn", lambda args: VisionTransformer(args.size), image, 224, report=top_one, spread=0.02
)  # fmt: skip

if __name__ == "__main__":
    script_main(SCRIPT)

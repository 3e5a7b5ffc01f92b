#!/usr/bin/env bash
# setup.sh DIR: make the zoo's virtual environment in DIR.
# torchvision and timm are installed without dependencies: theirs would replace the CPU build of torch.
set -euo pipefail
venv=${1:?usage: setup.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
python3 -m venv "$venv"
"$venv/bin/pip" install --retries 0 --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" "torch==2.13.0" \
    || "$venv/bin/pip" install "torch==2.13.0"
grep -E '^(torchvision|timm)==' "$here/requirements.txt" | xargs "$venv/bin/pip" install --no-deps
grep -vE '^(#|torchvision|timm)' "$here/requirements.txt" | xargs -d '\n' "$venv/bin/pip" install pillow
# What a run imports, in its order: torchvision without compiled operators must be prepared for.
cd "$here/../.."
"$venv/bin/python" -W ignore - <<'EOF'
import torch

assert torch.version.cuda is None, torch.__version__
from tests.zoo.torchvision_models import library

print("torch", torch.__version__, "torchvision", library().__version__)
import timm
import transformers

print("timm", timm.__version__, "transformers", transformers.__version__)
import edgewright

print("edgewright", edgewright.__version__)
EOF

#!/usr/bin/env bash
# Compiles a model for the i.MX RT700: ./aot_neutron_compile.sh [cifar10 or mobilenetv2] [more options]
set -euo pipefail
model="${1:-cifar10}"
shift || true
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec python "$here/aot_neutron_compile.py" --quantize --delegate -m "$model" "$@"

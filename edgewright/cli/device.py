"""``edgewright device``: run a program on a phone or on a vendor's simulator."""

from __future__ import annotations

import argparse
from importlib import import_module

from edgewright.errors import UsageError

_KINDS = {"fvp": "device_fvp", "list": "device_phone", "push": "device_phone", "run": "device_phone"}
_HELP = (
    "run: on a phone through adb; push: copy the files without running; list: connected phones; fvp: on "
    "Arm's Corstone-300 or Corstone-320 Fixed Virtual Platform"
)

EXAMPLES = """examples:
  edgewright device list
  edgewright device list --json | jq -r '.phones[].serial'
  edgewright device run m.sm8550.pte --inputs x.npz --output y.npz
  edgewright device run m.xnnpack.pte -b cmake-out-android --inputs x.npz --output y.npz
  edgewright device fvp npu.pte --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("kind", choices=tuple(_KINDS), help=_HELP)
    parser.add_argument(
        "model", nargs="?", metavar="m.pte", help="a program for XNNPACK, Qualcomm or Exynos; for Ethos-U with fvp"
    )
    parser.add_argument("--inputs", metavar="x.npz", help="inputs; with fvp, needs a semihosting runner")
    parser.add_argument("--output", metavar="y.npz", help="write out0, out1, ... here")
    parser.add_argument("--dry-run", action="store_true", help="print the commands without running them")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    for title, module in (("phones", "device_phone"), ("fvp", "device_fvp")):
        import_module(f"edgewright.cli.{module}").add_arguments(parser.add_argument_group(title))


def run(args: argparse.Namespace) -> int:
    if args.model is None and args.kind != "list":
        raise UsageError(f"device {args.kind}", "needs a program", remedy=f"edgewright device {args.kind} m.pte")
    code: int = import_module(f"edgewright.cli.{_KINDS[args.kind]}").run(args)
    return code

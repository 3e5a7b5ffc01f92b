"""Runs a script, or a module by its name, with ``executorch`` resolved to Edgewright."""

from __future__ import annotations

import re
import runpy
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import edgewright.quantize  # noqa: F401  (silences what torchao logs when the script imports it)
from edgewright.compat.finder import installed
from edgewright.compat.table import table
from edgewright.errors import EdgewrightError, FileAccessError
from edgewright.lowering.partition.simulation import simulate_only

_FAILED = 1


def run(script: str, arguments: Sequence[str] = (), *, module: bool = False, for_simulation: bool = False) -> int:
    """Run ``script`` like ``python script`` and return its exit code. ``module``: a module name (``python -m``).
    ``for_simulation``: compile programs for this machine only, without vendors' software."""
    if not module and not Path(script).is_file():
        raise FileAccessError(script, "is not a file", remedy="Give the path of a script, or -m and a module's name.")
    first = "" if module else str(Path(script).resolve().parent)
    with installed(), simulate_only(for_simulation), _script_environment([script, *arguments], first):
        try:
            if module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
        except SystemExit as stop:
            return _exit_code(stop.code)
        except EdgewrightError as error:
            _print_location(error, script, module)
            raise
        except Exception as error:
            _print_traceback(error)
            return _FAILED
    return 0


@contextmanager
def _script_environment(argv: list[str], first: str) -> Iterator[None]:
    """Set up sys.argv and sys.path like Python does for a script."""
    old_argv, old_path = sys.argv, list(sys.path)
    sys.argv = argv
    sys.path.insert(0, first)
    try:
        with warnings.catch_warnings():
            # torchao copies graphs, in which torch finds its own older names: nothing that a script can change
            warnings.filterwarnings("ignore", r".*LeafSpec.*", FutureWarning)
            yield
    finally:
        sys.argv = old_argv
        sys.path[:] = old_path


def _exit_code(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return _FAILED


def _print_location(error: BaseException, script: str, module: bool) -> None:
    """Print the script's line that led to an Edgewright error."""
    name = script.rpartition(".")[2] if module else Path(script).stem
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).stem == name:
            print(f"{frame.filename}:{frame.lineno}: {frame.line}", file=sys.stderr)
            return


def _print_traceback(error: BaseException) -> None:
    """Print a script's own exception, without the frames that started the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    option = re.match(r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if option is not None and any(option[1] in names for names in table().names.values()):
        print(f"Edgewright's {option[1]} has no {option[2]}: leave it out if you can do without.", file=sys.stderr)

"""Runs a script, or a module by its name, with ``executorch`` resolved to Edgewright."""

from __future__ import annotations

import re
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgewright.compat.finder import installed
from edgewright.compat.table import TABLE
from edgewright.errors import EdgewrightError, FileAccessError

_FAILED = 1


def run(script: str, arguments: Sequence[str] = (), *, module: bool = False) -> int:
    """Run ``script`` as ``python script`` would; its exit code. ``module``: it is a module's name (``python -m``)."""
    if not module and not Path(script).is_file():
        raise FileAccessError(script, "is not a file", remedy="Give the path of a script, or -m and a module's name.")
    first = "" if module else str(Path(script).resolve().parent)
    with installed(), _as_main([script, *arguments], first):
        try:
            if module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
        except SystemExit as stop:
            return _exit_code(stop.code)
        except EdgewrightError as error:
            _say_where(error, script, module)
            raise
        except Exception as error:
            _print_traceback(error)
            return _FAILED
    return 0


@contextmanager
def _as_main(argv: list[str], first: str) -> Iterator[None]:
    """What Python itself sets before it runs a script."""
    old_argv, old_path = sys.argv, list(sys.path)
    sys.argv = argv
    sys.path.insert(0, first)
    try:
        yield
    finally:
        sys.argv = old_argv
        sys.path[:] = old_path


def _exit_code(given: object) -> int:
    if given is None or isinstance(given, int):
        return given or 0
    print(given, file=sys.stderr)
    return _FAILED


def _say_where(error: BaseException, script: str, module: bool) -> None:
    """The script's own line that led to an error of ours: the error says the rest."""
    name = script.rpartition(".")[2] if module else Path(script).stem
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).stem == name:
            print(f"{frame.filename}:{frame.lineno}: {frame.line}", file=sys.stderr)
            return


def _print_traceback(error: BaseException) -> None:
    """A script's own error, as Python shows it, without the frames that started the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    option = re.match(r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if option is not None and any(option[1] in names for names in TABLE.values()):
        print(f"Edgewright's {option[1]} has no {option[2]}: leave it out if you can do without.", file=sys.stderr)

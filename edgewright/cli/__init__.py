"""The command line: ``edgewright compile | run | inspect | verify | ...``, each a line of ``COMMANDS``.

A command is a module of its name here, with ``add_arguments(parser)`` and ``run(args) -> int``. It is imported
only when it is the one asked for, so that ``--version`` and ``--help`` answer at once.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from edgewright._version import VERSION
from edgewright.cli import exit_codes
from edgewright.cli.parser import Parser
from edgewright.errors import EdgewrightError, UsageError
from edgewright.hints import not_among

COMMANDS = {
    "demo": "compile a trained model for every backend, classify images with each, one table",
    "doctor": "say what is installed, what is missing for what, and how to get it",
    "targets": "list the devices to compile for",
    "compile": "compile a PyTorch model for one or several devices",
    "explain": "show what a device takes of a model and why not more, by module",
    "compare": "find the layers that quantization hurts, and what to raise",
    "run": "run a method of a .pte on inputs from files",
    "bench": "measure a .pte on this machine, beside other runtimes",
    "tune": "measure how a .pte's products are best cut on this machine, and keep it",
    "profile": "show where a .pte's time goes",
    "inspect": "show what is in a .pte, .ptd, .bpte or .etdp",
    "size": "show where a .pte's bytes go",
    "diff": "tell what changed between two .pte files",
    "strip": "remove what only people and tools read from a .pte",
    "bundle": "put test inputs and expected outputs into a .bpte",
    "verify": "check a file, and a .bpte against its own test cases",
    "disasm": "print what is inside delegates: an NPU's commands, or the graph it was given",
    "device": "run a .pte on a device or its vendor's simulator, where one is installed",
    "compat": "run an unmodified ExecuTorch script on Edgewright",
    "migrate": "rewrite a script's imports of ExecuTorch to Edgewright's",
    "cache": "show or clear the compiled code kept on disk",
    "completion": "print a script that completes commands in a shell",
}
_LEVELS = ("debug", "info", "warning", "error", "critical")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guard(lambda: _dispatch(arguments))


def _dispatch(arguments: list[str]) -> int:
    chosen = next((a for a in arguments if a in COMMANDS), None)
    if chosen == "demo" and "numpy" not in sys.modules:
        # numpy reads this when it is loaded. Products as small as the demo's lose more to waking threads than they
        # gain, and on a busy machine they lose a hundredfold.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = build_parser(chosen)
    args = parser.parse_args(arguments)
    configure_logging("info" if args.verbose else "warning")
    if args.command is None:
        parser.print_help()
        return exit_codes.OK
    _import_own(args.imports)
    code: int = import_module(f"edgewright.cli.{args.command}").run(args)
    return code


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser, with the arguments of the ``chosen`` command only: the other commands stay unloaded."""
    parser = Parser(
        prog="edgewright",
        description="Compiles PyTorch models to ExecuTorch files, and runs and verifies them here.",
        epilog=exit_codes.epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"edgewright {VERSION}")
    _add_common(parser, default=False)
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _add_common(command, default=argparse.SUPPRESS)
        if name == chosen:
            import_module(f"edgewright.cli.{name}").add_arguments(command)
    return parser


def _add_common(parser: argparse.ArgumentParser, default: object) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", default=default, help="no summaries, no progress bars")
    parser.add_argument("-v", "--verbose", action="store_true", default=default, help="say what is being done")
    parser.add_argument(
        "--import", dest="imports", action="append", metavar="my_ops", default=default or [],
        help="import this first: a module that registers operators, kernels or delegates of your own",
    )  # fmt: skip


def _import_own(names: Sequence[str]) -> None:
    """Modules of the user's, looked up from here first, as a script beside them would."""
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise UsageError("--import", f"cannot import it: {error}", value=name) from error


def configure_logging(default: str) -> None:
    """Send ``edgewright.*`` logs to stderr, at the level of ``EDGEWRIGHT_LOG`` or else ``default``."""
    level = os.environ.get("EDGEWRIGHT_LOG", "").lower() or default
    if level not in _LEVELS:
        raise not_among("EDGEWRIGHT_LOG", level, _LEVELS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname).1s %(name)s: %(message)s"))
    logger = logging.getLogger("edgewright")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def guard(action: Callable[[], int]) -> int:
    """Run ``action`` and turn whatever it raises into a message on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name the terminal cannot show must not end the command
            stream.reconfigure(errors="backslashreplace")
    try:
        code = action()
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: 0 after --help and --version, 2 after a wrong option
        if isinstance(stop.__context__, BrokenPipeError):  # rich ends the process where print() raises
            return exit_codes.BROKEN_PIPE
        return stop.code if isinstance(stop.code, int) else exit_codes.OK
    except EdgewrightError as error:
        _say(error, traceback=os.environ.get("EDGEWRIGHT_LOG", "").lower() == "debug")
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE
    except Exception as error:
        _say_bug(error)
        return exit_codes.BUG


def _say(error: EdgewrightError, traceback: bool) -> None:
    from edgewright.console import print_error

    if traceback:
        logging.getLogger("edgewright.cli").debug("raised here:", exc_info=error)
    usual = "" if error.remedy or not error.usual_remedy else f"\n  {error.usual_remedy}"
    print_error(f"{error}{usual}")


def _say_bug(error: Exception) -> None:
    import traceback

    from edgewright.console import print_error

    traceback.print_exception(error)
    print_error(
        f"bug: {type(error).__name__}: {error}\n"
        "  This is a bug in Edgewright, not in your file. Please report it with the traceback above and, if you can,"
        " the file."
    )

"""The command line: ``edgewright compile | run | inspect | verify | ...``, one entry of ``COMMANDS`` per command.

Each command is the module of the same name in this package, with ``add_arguments(parser)`` and ``run(args) -> int``.
Only the selected command is imported, so that ``--version`` and ``--help`` start fast.
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

GROUPS = {
    "start here": {
        "demo": "compile a trained model for every backend, classify images with it, and print one table",
        "doctor": "show what is installed, what is missing, and the command that installs it",
        "targets": "list the devices that can be compiled for",
    },
    "compile": {
        "compile": "compile a PyTorch model for one or several devices",
        "llm": "compile a language model, a GGUF file or a Hugging Face folder, to a .pte",
        "export": "write a .pte as C sources, with the pool sizes that firmware must provide",
        "explain": "show which operators a device runs and why the rest stay on the CPU, by module",
        "sweep": "compile models for devices and precisions, many at once, and compare them in one table",
        "search": "find the precision of each layer: the fastest or smallest program within limits of accuracy",
        "compare": "rank layers by quantization error and recommend which to raise to 16 bits",
    },
    "run": {
        "run": "run a method of a .pte on inputs from files",
        "verify": "check a file; run a .bpte on its own test cases",
        "device": "run a .pte on a phone or on a vendor's simulator",
        "generate": "print the reply of a language model to a prompt",
        "chat": "talk to a language model in the terminal",
        "serve": "serve a language model over HTTP, with OpenAI's interface",
    },
    "measure": {
        "bench": "measure a .pte on this machine, next to other runtimes",
        "profile": "show where a .pte spends its time",
        "tune": "autotune the kernels of a .pte for this CPU and cache the result",
        "cache": "show or clear the on-disk cache of compiled code",
    },
    "look into files": {
        "report": "write one HTML page about a .pte: graph, layers, memory, time; several side by side",
        "inspect": "show what is in a .pte, .ptd, .bpte or .etdp",
        "size": "show what takes up space in a .pte",
        "budget": "show what a .pte takes of a board's flash and SRAM, and fail if it does not fit",
        "diff": "show what changed between two .pte files",
        "disasm": "print the contents of delegates: NPU commands or the delegated graph",
        "strip": "remove the manifest, layer names, the host twin and source lines from a .pte",
        "bundle": "combine a .pte with test inputs and expected outputs into a .bpte",
    },
    "come from elsewhere": {
        "compat": "run an unmodified ExecuTorch script on Edgewright",
        "migrate": "rewrite the ExecuTorch imports of a script to Edgewright's",
        "completion": "print a shell completion script",
    },
}
COMMANDS = {name: summary for commands in GROUPS.values() for name, summary in commands.items()}
_LEVELS = ("debug", "info", "warning", "error", "critical")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guard(lambda: _dispatch(arguments))


def _dispatch(arguments: list[str]) -> int:
    command = next((a for a in arguments if a in COMMANDS), None)
    if command in ("demo", "llm") and "numpy" not in sys.modules:
        # numpy reads this at import. Matrix products as small as the demo's, or as one window of a text, lose more to
        # thread wake-ups than they gain, and a hundredfold on a busy machine. Windows have threads of their own.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = build_parser(command)
    args = parser.parse_args(arguments)
    configure_logging("info" if args.verbose else "warning")
    if args.command is None:
        parser.print_help()
        return exit_codes.OK
    _import_user_modules(args.imports)
    code: int = import_module(f"edgewright.cli.{args.command}").run(args)
    return code


def build_parser(selected: str | None = None) -> argparse.ArgumentParser:
    """The parser, with the arguments of the ``selected`` command only; the other commands are not imported."""
    parser = Parser(
        prog="edgewright",
        description="Compile PyTorch models to ExecuTorch files, and run and verify them on this machine.",
        epilog=f"{_group_help()}\n\n{exit_codes.epilog()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.usage = "edgewright [-h] [--version] [-q] [-v] [--import my_ops] command ..."
    parser.add_argument("--version", action="version", version=f"edgewright {VERSION}")
    _add_common(parser, default=False)
    commands = parser.add_subparsers(dest="command", metavar="command", prog="edgewright", help=argparse.SUPPRESS)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _add_common(command, default=argparse.SUPPRESS)
        if name == selected:
            import_module(f"edgewright.cli.{name}").add_arguments(command)
    return parser


def _group_help() -> str:
    """The commands with their summaries, by group."""
    width = max(map(len, COMMANDS)) + 4
    lines = []
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:<{width}}{summary}" for name, summary in commands.items())]
    return "\n".join(lines[1:])


def _add_common(parser: argparse.ArgumentParser, default: object) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", default=default, help="no summaries, no progress bars")
    parser.add_argument("-v", "--verbose", action="store_true", default=default, help="log progress")
    parser.add_argument(
        "--import", dest="imports", action="append", metavar="my_ops", default=default or [],
        help="import this module first: one that registers your own operators, kernels or delegates",
    )  # fmt: skip


def _import_user_modules(names: Sequence[str]) -> None:
    """Import the user's modules, with the working directory first on the path, as for a script."""
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise UsageError("--import", f"cannot import it: {error}", value=name) from error


class _StderrHandler(logging.Handler):
    """Writes to what ``sys.stderr`` is at the time: a progress bar replaces it to print lines above the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # a log that nobody can read must not end the command
            self.handleError(record)


def configure_logging(default: str) -> None:
    """Send ``edgewright.*`` logs to stderr, at the level of ``EDGEWRIGHT_LOG`` or else ``default``."""
    level = os.environ.get("EDGEWRIGHT_LOG", "").lower() or default
    if level not in _LEVELS:
        raise not_among("EDGEWRIGHT_LOG", level, _LEVELS)
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(levelname).1s %(name)s: %(message)s"))
    logger = logging.getLogger("edgewright")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def guard(action: Callable[[], int]) -> int:
    """Run ``action`` and translate any exception into a message on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot encode must not fail the command
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
        _report(error, traceback=os.environ.get("EDGEWRIGHT_LOG", "").lower() == "debug")
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE
    except Exception as error:
        _report_bug(error)
        return exit_codes.BUG


def _report(error: EdgewrightError, traceback: bool) -> None:
    from edgewright.console import print_error

    if traceback:
        logging.getLogger("edgewright.cli").debug("raised here:", exc_info=error)
    usual = "" if error.remedy or not error.usual_remedy else f"\n  {error.usual_remedy}"
    print_error(f"{error}{usual}")


def _report_bug(error: Exception) -> None:
    import traceback

    from edgewright.console import print_error

    traceback.print_exception(error)
    print_error(
        f"bug: {type(error).__name__}: {error}\n"
        "  This is a bug in Edgewright, not in your file. Please report it with the traceback above and, if you can,"
        " the file."
    )

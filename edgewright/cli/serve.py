"""``edgewright serve``: an HTTP server with OpenAI's interface, for one language model."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from edgewright.cli.language_model import add_model_arguments, load_model
from edgewright.console import note
from edgewright.errors import MissingError, UsageError
from edgewright.llm.generate import LanguageModel
from edgewright.llm.tokenizer import INSTALL

EXAMPLES = """examples:
  edgewright serve lm.pte --port 8080
  edgewright serve lm.pte --host 0.0.0.0 --queue 4 --name assistant
"""
_MAX_QUEUE = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=int, default=8080, metavar="N", help="the port (default: 8080; 0 takes a free one)")
    add("--queue", type=int, default=8, metavar="N", help="requests that may wait; more get status 429 (default: 8)")
    add("--name", default="", help="the model's name for clients (default: the file's)")


def run(args: argparse.Namespace) -> int:
    for name, value, most in (("--port", args.port, 65535), ("--queue", args.queue, _MAX_QUEUE)):
        if not 0 <= value <= most:
            raise UsageError(name, f"must be from 0 to {most}", value=value)
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as error:
        raise MissingError("edgewright serve", "needs starlette and uvicorn", remedy=INSTALL) from error
    listener = _listen(args.host, args.port)
    try:
        model = load_model(args)
        server = uvicorn.Server(_config(uvicorn, model, args))
        host, port = listener.getsockname()[:2]
        if not args.quiet:
            shown = f"[{host}]" if ":" in host else host
            note(f"{args.name or model.name}: http://{shown}:{port}/v1 (Ctrl-C stops)")
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn has shut down, and raises it again
        pass
    finally:
        listener.close()
    return 0


def _config(uvicorn: Any, model: LanguageModel, args: argparse.Namespace) -> Any:
    from edgewright.llm.server import LOOPBACK, create_app

    app = create_app(model, name=args.name, queue=args.queue, hosts=LOOPBACK if args.host in LOOPBACK else ())
    level = "info" if args.verbose else "warning"
    return uvicorn.Config(
        app, log_level=level, access_log=bool(args.verbose), limit_concurrency=args.queue + 64, server_header=False,
        timeout_graceful_shutdown=3,
    )  # fmt: skip


def _listen(host: str, port: int) -> socket.socket:
    """Bound before the model is loaded, so that a port in use is reported at once."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        remedy = "Choose another --port (0 takes a free one), or another --host."
        raise UsageError(f"{host}:{port}", f"cannot be listened on: {error.strerror}", remedy=remedy) from error
    return listener

"""An HTTP server with OpenAI's interface, for one model.

The model answers one request at a time; others wait in a queue of limited length. A client that leaves cancels its
request. Requests name no files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from edgewright.errors import EdgewrightError
from edgewright.llm.generate import LanguageModel
from edgewright.llm.generation import CANCELLED, Generation
from edgewright.llm.server_answers import Answer
from edgewright.llm.server_requests import (
    INVALID,
    MAX_BODY_BYTES,
    NOT_FOUND,
    SERVER,
    Request,
    RequestError,
    parse_request,
    translate,
)

log = logging.getLogger("edgewright.llm.server")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def create_app(model: LanguageModel, *, name: str = "", queue: int = 8, hosts: Sequence[str] = ()) -> Starlette:
    """The application. ``queue``: requests that may wait. ``hosts``: the names by which clients may call the server
    (empty: any); for a server on this machine it keeps web pages of others from reaching it by a name of their own."""
    api = _Api(model, name or model.name, queue)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await api.worker.close()

    routes = [
        Route("/health", api.health),
        Route("/v1/models", api.models),
        Route("/v1/models/{name:path}", api.model),
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/v1/completions", api.completion, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {RequestError: _answer_error, HTTPException: _answer_http, Exception: _answer_bug}
    middleware = [Middleware(_HostCheck, hosts=tuple(hosts))] if hosts else []
    return Starlette(routes=routes, exception_handlers=handlers, middleware=middleware, lifespan=lifespan)


class Worker:
    """Runs generations one after another, in a thread of their own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting = 0
        self._lock = asyncio.Lock()  # first come, first served
        self._executor = ThreadPoolExecutor(1, "edgewright-llm")
        self._running: Generation | None = None
        self.closed = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the model."""
        if self._lock.locked() and self._waiting >= self._limit:
            raise RequestError(429, f"{self._waiting} requests are waiting; try again later", SERVER)
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            self._check_open()
            yield
        finally:
            self._lock.release()

    async def start(self, make: Callable[[], Generation]) -> Generation:
        """Make a generation: rendering and tokenizing long prompts takes time, too."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, make)
        except EdgewrightError as error:
            raise translate(error) from error

    async def pieces(self, generation: Generation) -> AsyncGenerator[str, None]:
        """The text of a generation. Leaving early cancels it, and waits until it has ended."""
        loop = asyncio.get_running_loop()
        results: asyncio.Queue[str | BaseException | None] = asyncio.Queue()

        def produce() -> None:
            try:
                for piece in generation:
                    loop.call_soon_threadsafe(results.put_nowait, piece)
                result: BaseException | None = None
            except BaseException as error:
                result = error
            loop.call_soon_threadsafe(results.put_nowait, result)

        self._running = generation
        thread = loop.run_in_executor(self._executor, produce)
        try:
            while (item := await results.get()) is not None:
                if isinstance(item, EdgewrightError):
                    log.error("generation failed: %s", item)
                    raise translate(item) from item
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            generation.cancel()
            await thread
            self._running = None
        if generation.finish_reason == CANCELLED:
            self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise RequestError(503, "the server is shutting down", SERVER)

    async def close(self) -> None:
        self.closed = True
        if self._running is not None:
            self._running.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)


class _Api:
    """The endpoints."""

    def __init__(self, model: LanguageModel, name: str, queue: int) -> None:
        self._model = model
        self._name = name
        self._created = int(time.time())
        self.worker = Worker(queue)

    async def health(self, _: HttpRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, _: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._facts()]})

    async def model(self, request: HttpRequest) -> Response:
        name = request.path_params["name"]
        if name != self._name:
            raise RequestError(404, f"model {name!r} does not exist; this server has {self._name!r}", NOT_FOUND)
        return JSONResponse(self._facts())

    def _facts(self) -> dict[str, Any]:
        context = self._model.context_length
        return {
            "id": self._name, "object": "model", "created": self._created, "owned_by": "edgewright",
            "context_length": context,
        }  # fmt: skip

    async def chat(self, request: HttpRequest) -> Response:
        return await self._respond(request, chat=True)

    async def completion(self, request: HttpRequest) -> Response:
        return await self._respond(request, chat=False)

    async def _respond(self, request: HttpRequest, *, chat: bool) -> Response:
        data = await _read_body(request)
        try:
            parsed = parse_request(data, chat=chat, model=self._name)
        except EdgewrightError as error:
            raise translate(error) from error
        return _ModelResponse(self._model, self.worker, parsed, Answer(self._name, chat))


class _ModelResponse(Response):
    """Waits for the model, generates and sends, until it is done or the client has left."""

    def __init__(self, model: LanguageModel, worker: Worker, request: Request, answer: Answer) -> None:
        super().__init__()
        self._model = model
        self._worker = worker
        self._request = request
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(scope, receive, send))
        watch = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            if not work.done():
                work.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._worker.turn():
            if self._request.stream:
                await self._stream(send)
            else:
                body = self._answer.complete([await self._whole(prompt) for prompt in self._request.prompts])
                await JSONResponse(body)(scope, receive, send)

    def _generate(self, prompt: Any) -> Generation:
        if self._request.chat:
            variables = self._request.template_variables
            return self._model.chat(prompt, template_variables=variables, **self._request.options)
        return self._model.generate(prompt, **self._request.options)

    def _echo(self, prompt: Any) -> str:
        if not self._request.echo:
            return ""
        return prompt if isinstance(prompt, str) else self._model.tokenizer.decode(prompt)

    async def _whole(self, prompt: Any) -> tuple[str, Generation]:
        reply = await self._worker.start(lambda: self._generate(prompt))
        async with aclosing(self._worker.pieces(reply)) as pieces:
            return self._echo(prompt) + "".join([piece async for piece in pieces]), reply

    async def _stream(self, send: Send) -> None:
        """Events of a stream. Headers are sent with the first text, so that a request that fails gets its status."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        async with aclosing(self._events()) as events:
            first = await anext(events)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await _send_event(send, first)
            try:
                async for event in events:
                    await _send_event(send, event)
            except RequestError as error:  # too late for a status
                await _send_event(send, error.body())
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _events(self) -> AsyncGenerator[dict[str, Any], None]:
        replies: list[Generation] = []
        for index, prompt in enumerate(self._request.prompts):
            reply = await self._worker.start(lambda prompt=prompt: self._generate(prompt))  # type: ignore[misc]
            replies.append(reply)
            if (start := self._answer.start()) is not None:
                yield start
            if echo := self._echo(prompt):
                yield self._answer.piece(index, echo)
            async with aclosing(self._worker.pieces(reply)) as pieces:
                async for piece in pieces:
                    yield self._answer.piece(index, piece)
            yield self._answer.end(index, reply)
        if self._request.include_usage:
            yield self._answer.usage(replies)


async def _send_event(send: Send, event: dict[str, Any]) -> None:
    data = f"data: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n".encode("utf-8", "replace")
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(request: HttpRequest) -> bytes:
    # A page in a browser can send other types to this machine without asking first.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "the content type must be application/json")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise RequestError(413, f"the body may have {MAX_BODY_BYTES} bytes")
    except ClientDisconnect as error:  # an answer that nobody reads, instead of a traceback in the log
        raise RequestError(400, "the body must be complete") from error
    return bytes(body)


class _HostCheck:
    """Refuses requests whose ``Host`` is not a name of this server."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._hosts = {host.lower().strip("[]") for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            host = headers.get(b"host", b"").decode("latin-1").lower()
            bare = host.partition("]")[0].strip("[") if host.startswith("[") else host.partition(":")[0]
            if bare not in self._hosts:
                error = RequestError(403, "this server does not answer to that host name")
                await JSONResponse(error.body(), error.status)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _answer_error(_: HttpRequest, error: RequestError) -> Response:
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return JSONResponse(error.body(), error.status, headers)


async def _answer_http(request: HttpRequest, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path[:200]}: {error.detail}"
    kind = NOT_FOUND if error.status_code == 404 else INVALID
    return JSONResponse(RequestError(error.status_code, message, kind).body(), error.status_code, error.headers)


async def _answer_bug(_: HttpRequest, error: Exception) -> Response:
    log.error("a bug in Edgewright: %r", error)
    failure = RequestError(500, "the server failed; its log has the reason", SERVER)
    return JSONResponse(failure.body(), failure.status)

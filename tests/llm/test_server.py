"""The server, by OpenAI's own client and by plain HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from edgewright.errors import ExecutionError
from edgewright.llm.server import LOOPBACK, create_app
from edgewright.llm.server_requests import MAX_BODY_BYTES
from tests.llm.fakes import Rows, Script, model
from tests.llm.live_server import Live, serve, wait_until
from tests.llm.tiny import tiny_tokenizer

HI: Any = [{"role": "user", "content": "Hi"}]
INVALID = "invalid_request_error"
DECODER = Script()


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serve(model(DECODER), hosts=LOOPBACK) as found:
        yield found


@pytest.fixture
def client(live: Live) -> openai.OpenAI:
    DECODER.say("hello 🙂 there")
    return live.client()


def test_models(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "edgewright"
    with pytest.raises(openai.NotFoundError, match="this server has 'tiny'"):
        client.models.retrieve("gpt")


def test_health(live: Live) -> None:
    assert httpx.get(f"{live.url}/health").json() == {"status": "ok"}


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HI)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "hello 🙂 there")
    assert (choice.finish_reason, answer.object, answer.model) == ("stop", "chat.completion", "tiny")
    assert answer.id.startswith("chatcmpl-") and answer.system_fingerprint
    assert answer.usage is not None and answer.usage.completion_tokens == len(DECODER.reply)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    timings = answer.model_extra["timings"]  # type: ignore[index]
    assert timings["predicted_n"] == len(DECODER.reply) and timings["predicted_per_second"] > 0
    again = client.chat.completions.create(model="tiny", messages=HI)
    assert again.usage is not None and again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1


def test_chat_stream(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="tiny", messages=HI, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "hello 🙂 there"
    assert [c.choices[0].finish_reason for c in chunks][-1] == "stop" and len(chunks) > 5
    assert {c.object for c in chunks} == {"chat.completion.chunk"} and len({c.id for c in chunks}) == 1


def test_usage_at_the_end_of_a_stream(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    *_, last = client.chat.completions.create(model="tiny", messages=HI, stream=True, stream_options=options)
    assert last.choices == [] and last.usage is not None and last.usage.completion_tokens == len(DECODER.reply)


def test_a_stream_is_events(live: Live) -> None:
    DECODER.say("ab")
    with httpx.stream("POST", f"{live.url}/v1/chat/completions", json={"messages": HI, "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.read().decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: ")) for event in events[:-2])


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="x=")
    assert (answer.choices[0].text, answer.object) == ("hello 🙂 there", "text_completion")
    assert answer.id.startswith("cmpl-")
    DECODER.say("abc" * 20)
    short = client.completions.create(model="tiny", prompt="x=")
    assert len(short.choices[0].text) == 16 and short.choices[0].finish_reason == "length"  # OpenAI's default
    echoed = client.completions.create(model="tiny", prompt="x=", echo=True, max_tokens=3)
    assert echoed.choices[0].text == "x=abc"
    tokens = tiny_tokenizer().encode("x=")
    assert client.completions.create(model="tiny", prompt=tokens, max_tokens=2).choices[0].text == "ab"
    several = client.completions.create(model="tiny", prompt=["x=", "yz="], max_tokens=2)
    assert [(c.index, c.text) for c in several.choices] == [(0, "ab"), (1, "ab")]
    assert several.usage is not None and (several.usage.prompt_tokens, several.usage.completion_tokens) == (5, 4)
    stream = list(client.completions.create(model="tiny", prompt=["x=", tokens], max_tokens=2, stream=True))
    assert "".join(c.choices[0].text for c in stream if c.choices[0].index == 1) == "ab"


def test_parameters(client: openai.OpenAI) -> None:
    create = client.chat.completions.create
    assert create(model="tiny", messages=HI, max_tokens=2).choices[0].finish_reason == "length"
    assert create(model="tiny", messages=HI, max_completion_tokens=2).usage.completion_tokens == 2  # type: ignore
    assert create(model="tiny", messages=HI, stop=[" th", "zz"]).choices[0].message.content == "hello 🙂"
    banned = create(model="tiny", messages=HI, logit_bias={str(DECODER.reply[0]): -100}, max_tokens=3, seed=1)
    assert not (banned.choices[0].message.content or "").startswith("hello")
    extra = {"top_k": 1, "min_p": 0.1, "repeat_penalty": 1.0, "chat_template_kwargs": {"enable_thinking": False}}
    assert create(model="tiny", messages=HI, temperature=2, extra_body=extra).choices[0].message.content
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert create(model="tiny", messages=parts, user="me", n=1, logprobs=False, tools=[]).choices


def test_a_seed_decides() -> None:
    with serve(model(Rows())) as live:
        create = live.client().completions.create

        def text(seed: int) -> str:
            return create(model="tiny", prompt="x=", temperature=1, seed=seed, max_tokens=20).choices[0].text

        assert text(1) == text(1) != text(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 2}, "n: is not supported"),
        ({"logprobs": True}, "logprobs: is not supported"),
        ({"top_logprobs": 3}, "top_logprobs: is not supported"),
        ({"tools": [{"type": "function"}]}, "tools: is not supported"),
        ({"tool_choice": "required"}, "tool_choice: is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format: is not supported"),
        ({"temprature": 1}, "temprature: is not a parameter. Did you mean temperature"),
        ({"prompt": "x"}, "prompt: is not a parameter"),
        ({"stream_options": {"include_usage": True}}, "stream_options: needs stream"),
        ({"stream": True, "stream_options": {"else": 1}}, "only include_usage"),
        ({"stream": "yes"}, "stream: must be true or false"),
        ({"temperature": 2.1}, "temperature: must be from 0 to 2; got 2.1"),
        ({"temperature": "hot"}, "temperature: must be a number; got hot"),
        ({"frequency_penalty": -3}, "frequency_penalty: must be from -2 to 2"),
        ({"top_p": 0}, "top_p: must be more than 0"),
        ({"max_tokens": 0}, "max_tokens: must be a whole number"),
        ({"max_tokens": 1e999}, "max_tokens: must be a whole number"),
        ({"seed": 1.5}, "seed: must be a whole number"),
        ({"stop": ["a"] * 5}, "stop: must be a text, or a list of at most 4"),
        ({"stop": [1]}, "stop: must be texts"),
        ({"logit_bias": {"x": 1}}, "logit_bias: must map token ids"),
        ({"logit_bias": {"99999": 1}}, "logit_bias: must name tokens of the vocabulary"),
        ({"logit_bias": {"5": 200}}, r"logit_bias\[5\]: must be from -100 to 100"),
        ({"messages": None}, "messages: is required"),
        ({"messages": []}, "messages: must be a list of messages"),
        ({"messages": [{"role": "user", "content": 1}]}, r"messages\[0\].content: must be text"),
        ({"messages": [{"role": "king", "content": "x"}]}, r"messages\[0\].role: must be one of"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]},
         r"messages\[0\].content\[0\]: must be"),
        ({"chat_template_kwargs": 3}, "chat_template_kwargs: must be an object"),
    ],
)  # fmt: skip
def test_what_is_refused(live: Live, change: dict[str, Any], message: str) -> None:
    body = json.dumps({"model": "tiny", "messages": HI, **change}).replace("Infinity", "1e999")
    answer = httpx.post(f"{live.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert re.search(message, error["message"])


@pytest.mark.parametrize("prompt", [None, 1, [], [[]], [True], ["x", 1], ["x"] * 17, [[1], "a", {}], {"a": 1}])
def test_prompts_that_are_none(live: Live, prompt: Any) -> None:
    answer = httpx.post(f"{live.url}/v1/completions", json={"prompt": prompt})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"


def test_tokens_outside_the_vocabulary(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="0 to 27"):
        client.completions.create(model="tiny", prompt=[5, 99999])


def test_another_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="'gpt-9' does not exist"):
        client.chat.completions.create(model="gpt-9", messages=HI)


@pytest.mark.parametrize("stream", [False, True])
def test_a_context_that_is_exceeded(client: openai.OpenAI, stream: bool) -> None:
    long: Any = [{"role": "user", "content": "x" * 2000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=long, stream=stream)
    assert caught.value.body["type"] == "exceed_context_size_error"  # type: ignore[index]


def post(live: Live, **options: Any) -> httpx.Response:
    return httpx.post(f"{live.url}/v1/chat/completions", **options)


def test_bodies_and_paths(live: Live) -> None:
    kind = {"content-type": "application/json"}
    assert post(live, content="{", headers=kind).status_code == 400
    assert post(live, content="[1]", headers=kind).json()["error"]["message"] == "the body must be a JSON object"
    assert post(live, content="[" * 200_000, headers=kind).status_code == 400
    assert post(live, content=json.dumps({"messages": HI}), headers={"content-type": "text/plain"}).status_code == 415
    assert post(live, content=b" " * (MAX_BODY_BYTES + 1), headers=kind).status_code == 413
    for path, status, error in (("/v1/nothing", 404, "not_found_error"), ("/v1/completions", 405, INVALID)):
        answer = httpx.get(live.url + path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, error)
    foreign = post(live, json={"messages": HI}, headers={"host": "evil.example"})
    assert foreign.status_code == 403
    assert httpx.get(f"{live.url}/health", headers={"host": "localhost:1"}).status_code == 200
    assert httpx.get(f"{live.url}/health", headers={"host": "[::1]:1"}).status_code == 200


def test_a_client_that_leaves_before_its_body_is_complete() -> None:
    parts = iter([{"type": "http.request", "body": b'{"mod', "more_body": True}, {"type": "http.disconnect"}])
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"100")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(create_app(model(Script("abc")))(scope, receive, send))  # raises nothing
    assert sent[0]["status"] == 400


def test_a_client_that_leaves_cancels() -> None:
    decoder = Script("abcdefghijklmnopqrstuvwxyz" * 4)
    with serve(model(decoder)) as live, ThreadPoolExecutor(1) as pool:
        decoder.gate = threading.Semaphore(2)
        with live.client().chat.completions.create(model="tiny", messages=HI, stream=True) as stream:
            for _ in range(2):
                next(stream)
        create = live.client().completions.create
        following = pool.submit(lambda: create(model="tiny", prompt="x=", max_tokens=1))
        while not following.done():
            decoder.gate.release()
            time.sleep(0.02)
        assert following.result().choices[0].text == "a"
        assert max(position for position, _ in decoder.calls) < 60  # the first reply has 104 tokens


def test_the_queue_is_limited_and_served_in_order() -> None:
    decoder = Script("abc")
    decoder.gate = threading.Semaphore(0)
    with serve(model(decoder), queue=2) as live, ThreadPoolExecutor(4) as pool:

        def ask(prompt: str) -> str:
            return live.client().completions.create(model="tiny", prompt=f"{prompt}=", max_tokens=2).choices[0].text

        running = pool.submit(ask, "x")
        wait_until(lambda: decoder.calls)
        waiting = [pool.submit(ask, "y")]
        time.sleep(0.2)
        waiting.append(pool.submit(ask, "z"))
        time.sleep(0.2)
        with pytest.raises(openai.RateLimitError, match="2 requests are waiting"):
            ask("w")
        assert httpx.get(f"{live.url}/health").status_code == 200  # answers meanwhile
        decoder.gate.release(99)
        assert [running.result(20), *(future.result(20) for future in waiting)] == ["ab"] * 3
        assert tiny_tokenizer().decode(decoder.rows) == "z=a"


def test_a_waiting_client_that_leaves_is_never_served() -> None:
    decoder = Script("abc")
    decoder.gate = threading.Semaphore(0)
    with serve(model(decoder)) as live, ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: live.client().completions.create(model="tiny", prompt="x=", max_tokens=2))
        wait_until(lambda: decoder.calls)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{live.url}/v1/completions", json={"prompt": "left="}, timeout=0.3)
        decoder.gate.release(99)
        assert running.result(20).choices[0].text == "ab"
        live.client().completions.create(model="tiny", prompt="y=", max_tokens=1)
        left = tiny_tokenizer().encode("left=")
        assert (0, len(left)) not in decoder.calls and decoder.calls[-1][0] <= 1


class Broken(Script):
    broken = 0

    def forward(self, tokens: Any, position: int) -> Any:
        self.broken -= 1
        if self.broken == 0:
            raise ExecutionError("method 'forward', instruction 3", "secret detail")
        return super().forward(tokens, position)


def test_a_model_that_fails() -> None:
    decoder = Broken("abcdef")
    with serve(model(decoder)) as live:
        client = live.client()
        decoder.broken = 1
        with pytest.raises(openai.InternalServerError, match="the model failed") as caught:
            client.completions.create(model="tiny", prompt="x=")
        assert "secret" not in str(caught.value)
        decoder.broken = 5
        with pytest.raises(openai.APIError, match="the model failed"):  # the stream has begun: an event says so
            list(client.completions.create(model="tiny", prompt="x=", stream=True))
        assert client.completions.create(model="tiny", prompt="x=").choices[0].text == "abcdef"


def test_shutting_down_ends_a_long_reply() -> None:
    decoder = Script("abc" * 200)
    decoder.gate = threading.Semaphore(0)
    ended = threading.Event()

    def release() -> None:
        while not ended.wait(0.02):
            decoder.gate.release()  # type: ignore[union-attr]

    with ThreadPoolExecutor(2) as pool:
        with serve(model(decoder)) as live:
            create = live.client().completions.create
            running = pool.submit(lambda: create(model="tiny", prompt="x=", max_tokens=600))
            wait_until(lambda: decoder.calls)
            pool.submit(release)
        with pytest.raises(openai.APIError):
            running.result(20)
        ended.set()
    assert len(decoder.calls) < 300

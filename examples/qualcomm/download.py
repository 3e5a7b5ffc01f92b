"""A file from the network: with a bar, gone on with where it broke off, checked, and there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgewright.console import progress
from edgewright.errors import FileAccessError, FormatError, MissingError

_PIECE, _TRIES, _SECONDS = 1 << 20, 3, 60
_FAULTS = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


def fetch(address: str, target: Path, md5: str, instead: str) -> Path:
    """``target``, fetched unless it is there and right. ``instead``: what can be done without it, for errors."""
    if target.is_file() and _sum(target) == md5:
        return target
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        _fetch_all(address, part, instead)
        found = _sum(part)
        if found != md5:
            remedy = f"Something on the way changes it, or {address} is another file now. {instead}"
            raise FormatError(f"must have the MD5 {md5}", value=found, where=target.name, remedy=remedy)
        part.replace(target)
    except OSError as error:
        raise FileAccessError(str(target), f"cannot be written: {error.strerror}", remedy=instead) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return target


def _fetch_all(address: str, part: Path, instead: str) -> None:
    """Up to three times, each from where the one before ended."""
    for left in reversed(range(_TRIES)):
        try:
            _fetch_rest(address, part)
            return
        except _FAULTS as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or not left:
                reason = getattr(error, "reason", None) or error
                rule = f"cannot be fetched: {reason}"
                raise MissingError(address, rule, remedy=f"Is there a network? {instead}") from error


def _fetch_rest(address: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "edgewright-examples"} | ({"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=_SECONDS) as answer:
        goes_on = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        length = int(answer.headers.get("Content-Length") or 0)
        total = length + (have if goes_on else 0)
        bar = progress(f"fetching {part.stem}, MiB", -(-total >> 20), quiet=False)
        with bar as step, part.open("ab" if goes_on else "wb") as file:
            _copy(answer, file.write, step)
    if total and part.stat().st_size < total:  # the line went dead without a fault
        raise ConnectionError(f"ended after {part.stat().st_size} of {total} bytes")


def _copy(answer: Any, write: Callable[[bytes], Any], step: Callable[[], Any]) -> None:
    while piece := answer.read(_PIECE):
        write(piece)
        step()


def _sum(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()

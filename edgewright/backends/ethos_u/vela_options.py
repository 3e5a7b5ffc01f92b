"""Table of Vela's options (5.2) and how each is handled.

An option is a key of the in-process compiler's configuration, a field of the compile spec, supported by Vela's command
line only, or rejected because it contradicts a delegate. None is dropped silently.
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

# How a flag is handled.
TEXT = "text"  # a key of the in-process compiler's configuration
SPEC = "spec"  # a field of the compile spec
CLI = "cli"  # supported by Vela's command line only
ALWAYS_ON = "always on"
REJECTED = "rejected"  # contradicts a delegate


@dataclass(frozen=True)
class Option:
    """One option. ``value_type``: None, a type, or the valid values. ``location``: section and key of TEXT."""

    name: str
    handling: str
    value_type: Any = None
    location: tuple[str, str] = ("", "")
    reason: str = ""  # of REFUSED
    prints: bool = False  # print Vela's output


def _verbose_option(name: str, section: str, key: str) -> Option:
    return Option(name, TEXT, None, (section, key), prints=True)


def _feature_option(name: str, feature: str) -> Option:
    return Option(name, TEXT, None, ("scheduler", f"disable_feature={feature}"))


def _rejected_options(names: str, reason: str, value_type: Any = None) -> list[Option]:
    return [Option(f"--{name}", REJECTED, value_type, reason=reason) for name in names.split()]


_NOT_COMPILING = "it compiles nothing: run vela itself"
_ROWS = [
    Option("--optimise", TEXT, ("Size", "Performance"), ("scheduler", "optimize")),
    Option("--arena-cache-size", TEXT, int, ("scheduler", "arena_size_limit")),
    Option("--tensor-allocator", TEXT, ("LinearAlloc", "Greedy", "HillClimb"), ("scheduler", "tensor_allocator")),
    Option("--cpu-tensor-alignment", TEXT, int, ("scheduler", "cpu_tensor_alignment")),
    Option("--cop-format", TEXT, ("COP1", "COP2"), ("compiler", "cop_format")),
    Option("--experimental-softmax-int16-neg-exp-range", TEXT, float, ("graph", "softmax_int16_neg_exp_range")),
    Option("--ignore-ops", TEXT, str, ("graph", "ignore_ops")),
    _feature_option("--disable-chaining", "Grouping"),
    _feature_option("--disable-fwd", "FWD"),
    _feature_option("--disable-cascading", "Cascading"),
    _feature_option("--disable-buffering", "WeightBuffering"),
    _feature_option("--disable-ifm-reuse", "ReuseIFM"),
    _verbose_option("--verbose-graph", "graph", "verbose"),
    _verbose_option("--verbose-quantization", "graph", "verbose_quantization"),
    _verbose_option("--verbose-schedule", "scheduler", "verbose"),
    _verbose_option("--verbose-allocation", "scheduler", "verbose_allocation"),
    _verbose_option("--verbose-high-level-command-stream", "compiler", "verbose_high_level_command_stream"),
    _verbose_option("--verbose-register-command-stream", "compiler", "verbose_register_command_stream"),
    Option("--accelerator-config", SPEC, str, ("target", "")),
    Option("--system-config", SPEC, str, ("system_config", "")),
    Option("--memory-mode", SPEC, str, ("memory_mode", "")),
    Option("--config", SPEC, str, ("config_ini", "")),
    Option("--debug-force-regor", ALWAYS_ON),
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
    Option("--output-format", ALWAYS_ON, ("raw", "tflite")),
    *_rejected_options("version api-version supported-ops-report list-config-files help", _NOT_COMPILING),
    *_rejected_options("list-configs", _NOT_COMPILING, str),
    *_rejected_options("debug-force-legacy-core", "the legacy core does not read TOSA"),
    *_rejected_options("separate-io-regions", "delegates use one region for inputs, outputs and scratch"),
]  # fmt: skip
OPTIONS = {row.name: row for row in _ROWS}


@dataclass(frozen=True)
class Flag:
    """A parsed option."""

    option: Option
    value: Any = None  # of the option's type
    argument: str = ""  # as a command line argument


def parse_flags(flags: str | Iterable[str] | None) -> list[Flag]:
    """Parse and check Vela's flags. A string is split like a shell does.

    >>> [flag.argument for flag in parse_flags("--optimise Size --debug-force-regor")]
    ['--optimise=Size', '--debug-force-regor']
    """
    arguments = _split_flags(flags)
    parsed: list[Flag] = []
    at = 0
    while at < len(arguments):
        match = _FLAG.fullmatch(arguments[at])
        if match is None:
            raise UsageError(SUBJECT, "must be options of Vela (the network is the delegate's)", value=arguments[at])
        option, text = _option(match.group(1)), match.group(2)
        at += 1
        if option.value_type is not None and text is None and at < len(arguments):
            text, at = arguments[at], at + 1
        parsed.append(_flag(option, text))
    _check_conflicts(parsed)
    return parsed


def _split_flags(flags: Any) -> list[str]:
    if flags is None:
        return []
    try:
        arguments = shlex.split(flags) if isinstance(flags, str) else list(flags)
    except (ValueError, TypeError) as error:
        raise UsageError(SUBJECT, f"must be a string or a list of strings ({error})", value=flags) from error
    if not all(isinstance(argument, str) for argument in arguments):
        raise UsageError(SUBJECT, "must be a string or a list of strings", value=flags)
    return arguments


def _option(name: str) -> Option:
    if name not in OPTIONS:
        remedy = did_you_mean(name, OPTIONS, limit=3) or f"Vela has {', '.join(OPTIONS)}."
        raise UsageError(f"{SUBJECT}: {name}", "must be an option of Vela", remedy=remedy)
    option = OPTIONS[name]
    if option.handling == REJECTED:
        raise UsageError(f"{SUBJECT}: {name}", f"is not supported: {option.reason}")
    return option


def _flag(option: Option, text: str | None) -> Flag:
    subject = f"{SUBJECT}: {option.name}"
    if option.value_type is None:
        if text is not None:
            raise UsageError(subject, "takes no value", value=text)
        return Flag(option, True, option.name)
    if not text:
        raise UsageError(subject, "needs a value")
    if isinstance(option.value_type, tuple) and text not in option.value_type:
        raise not_among(subject, text, option.value_type)
    value: Any = text
    if option.value_type in (int, float):
        try:
            value = option.value_type(text)
        except ValueError as error:
            raise UsageError(subject, f"must be {_NUMBERS[option.value_type]}", value=text) from error
    _check_value(subject, option.name, value)
    return Flag(option, value, f"{option.name}={text}")


_NUMBERS = {int: "an integer", float: "a number"}


def _check_value(subject: str, name: str, value: Any) -> None:
    """Vela's own limits, checked before it starts."""
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


def _check_conflicts(flags: Sequence[Flag]) -> None:
    seen: dict[str, Flag] = {}
    for flag in flags:
        first = seen.setdefault(flag.option.name, flag)
        if first.value != flag.value:
            raise UsageError(
                f"{SUBJECT}: {flag.option.name}", "must be passed once", value=f"{first.argument} {flag.argument}"
            )
    if "--enable-debug-db" in seen and "--output-dir" not in seen:
        raise UsageError(f"{SUBJECT}: --enable-debug-db", "needs --output-dir, which says where the database goes")


def options_text(flags: Iterable[Flag], arena: int) -> str:
    """Configuration text of the in-process compiler: Vela's defaults and the flags with a location in it.

    ``arena``: the limit of the memory mode. Every line that Vela's command line writes is present, since leaving one
    out can change the schedule.
    """
    values: dict[tuple[str, str], Any] = {
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
        section, key = flag.option.location
        if flag.option.handling != TEXT:
            continue
        if key.startswith("disable_feature="):
            features.append(key.partition("=")[2])
        elif key == "ignore_ops":
            values[section, key] = flag.value.upper().replace("ARG_MAX", "ARGMAX")
        else:
            values[section, key] = "true" if flag.value is True else flag.value
    values["scheduler", "disable_feature"] = "|".join(dict.fromkeys(features))
    return "".join(
        f"[{section}]\n" + "".join(f"{key}={value}\n" for (of, key), value in values.items() if of == section)
        for section in ("compiler", "scheduler", "graph")
    )

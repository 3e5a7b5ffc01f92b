"""``edgewright budget``: what a program takes of a board's flash and SRAM, against their sizes."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from edgewright.bare_metal.budget import DRAM, FLASH, SRAM, Budget, make_budget
from edgewright.bare_metal.describe import describe
from edgewright.cli.run import parse_memory
from edgewright.console import clean, console, print_error, table
from edgewright.units import share, size

EXAMPLES = """examples:
  edgewright budget kws.pte
  edgewright budget kws.pte --flash 512K --sram 256K
  edgewright budget kws.pte --flash 512K --sram 256K --code 118K --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("model", metavar="m.pte", help="a program for Ethos-U, or without delegates")
    add("--flash", type=parse_memory, metavar="512K", help="fail if the program and its code need more flash than this")
    add("--sram", type=parse_memory, metavar="256K", help="fail if the pools need more SRAM than this")
    add("--code", type=parse_memory, metavar="118K", help="the code of your firmware, as its linker map says")
    add("--pointers", type=int, choices=(32, 64), default=32, help="bits of a pointer on the board (default: 32)")
    add("--method", metavar="forward", help="the method, if the file has several")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    about = describe(args.model, args.method)
    budget = make_budget(about, args.model, args.code, args.pointers)
    limits = {FLASH: args.flash, SRAM: args.sram}
    errors = budget.errors(limits)
    if args.json:
        facts = {
            "parts": [asdict(row) for row in budget.rows],
            "totals": {memory: budget.total(memory) for memory in (FLASH, SRAM, DRAM)},
            "limits": limits,
            "fits": not errors,
            "advice": list(budget.advice),
        }
        print(json.dumps(facts, indent=2))
    elif not args.quiet:
        _show(budget, limits)
    for error in errors:
        print_error(str(error))
    return errors[0].exit_code if errors else 0


def _show(budget: Budget, limits: dict[str, int | None]) -> None:
    out = console()
    rows = [(row.part, row.memory, size(row.bytes), row.basis) for row in budget.rows]
    out.print(table("", ("part", "memory", ">bytes", "size is"), rows, flexible="part"))
    lines = []
    for memory in (FLASH, SRAM, DRAM):
        total, limit = budget.total(memory), limits.get(memory)
        if total or limit:
            of = ("", "") if limit is None else (size(limit), share(total / limit) if limit else "")
            lines.append((memory, size(total), *of))
    out.print(table("in total", ("memory", ">needed", ">limit", ">used"), lines))
    for text in budget.advice:
        out.print(f"\n{clean(text)}", soft_wrap=True)

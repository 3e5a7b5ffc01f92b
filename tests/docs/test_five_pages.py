"""``docs/five-pages.md``: its claims are on ExecuTorch's pages, nothing of them is left out, and sums are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compat.seeds import PAGES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "five-pages.md").read_text(encoding="utf-8")
TITLES = {
    "XNNPACK": "xnnpack", "Arm Ethos-U": "ethos_u", "Qualcomm": "qualcomm", "Samsung Exynos": "samsung",
    "NXP eIQ Neutron": "nxp",
}  # fmt: skip
SUBPAGES = [f"Sub-pages of {title}" for title in TITLES if title != "Qualcomm"]  # its page has none
STATES = ("as written", "other name", "needs", "not here")
# Items of lists that say nothing about what one can do: what a tutorial teaches, which to read before, and news.
NO_CLAIMS = ("In this tutorial you will learn", "[Introduction to", "[Getting Started]", "[Building ExecuTorch",
             "[Arm Ethos-U Backend Tutorial]", "However, at the moment", "The below is public links")  # fmt: skip


class Claim(NamedTuple):
    text: str
    count: int
    state: str
    proof: str


def claims(title: str) -> list[Claim]:
    """The rows of a page's table."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert section is not None
    rows = [line[2:-2].split(" | ") for line in section[1].splitlines() if line.startswith("| ")][1:]
    return [Claim(text, int(count), state, proof) for text, count, state, proof in rows]


def plain(text: str) -> str:
    """Without what only formats it."""
    return " ".join(re.sub(r"[`*]", "", text).split())


def outside_blocks(page: str) -> str:
    return re.sub(r"```.*?(```|\Z)", "", PAGES[page], flags=re.DOTALL)


@pytest.mark.parametrize("title", TITLES)
def test_claims_are_on_the_page(title: str) -> None:
    page = plain(PAGES[TITLES[title]])
    for claim in claims(title):
        assert claim.text.startswith("block ") or plain(claim.text) in page, claim.text


@pytest.mark.parametrize("title", TITLES)
def test_every_block_and_every_item_of_a_list_is_a_claim(title: str) -> None:
    page, rows = TITLES[title], claims(title)
    blocks = len(re.findall(r"^``` ?[^\n`]*\n.*?(?:^```|```$|\Z)", PAGES[page], re.DOTALL | re.MULTILINE))
    named = [int(number) for row in rows for number in re.findall(r"^block (\d+):", row.text)]
    assert named == list(range(1, blocks + 1))
    quoted = " ".join(plain(row.text) for row in rows)
    for item in re.findall(r"^ *(?:[-*]|\d\.) +(.+)$", outside_blocks(page), re.MULTILINE):
        if item.startswith(NO_CLAIMS):
            continue
        found = plain(item)
        assert any(plain(row.text).lstrip("-*0123456789. ")[:60] in found for row in rows) or found[:60] in quoted, item


def test_tests_exist_and_states_are_of_four_kinds() -> None:
    for title in (*TITLES, *SUBPAGES):
        assert {claim.state for claim in claims(title)} <= set(STATES)
        assert all("tests/" in c.proof or "](" in c.proof or c.state == "needs" or "neither" in c.proof
                   for c in claims(title))  # fmt: skip
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
    for file in re.findall(r"`(tests/[\w/]+\.py)`", TEXT):
        assert (ROOT / file).exists(), file


def sums() -> list[str]:
    """The table at the top of the page."""
    titles = (*TITLES, *SUBPAGES)
    rows = [[title, *(sum(c.count for c in claims(title) if c.state == s) for s in STATES)] for title in titles]
    rows.append(["all", *(sum(int(row[i]) for row in rows) for i in range(1, len(STATES) + 1))])
    return [f"| {row[0]} | {sum(map(int, row[1:]))} | {' | '.join(map(str, row[1:]))} |" for row in rows]


def test_the_sums_are_right() -> None:
    shown = TEXT.split("<!-- sums: begin -->")[1].split("<!-- sums: end -->")[0]
    assert [line for line in shown.splitlines() if line.startswith("| ")][1:] == sums()

"""What became of each case in each release: kept line by line in a file, so that a run continues where it stopped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.compose.campaign import commit
from tests.interop.stock_releases.cases import Built, Case
from tests.interop.stock_releases.environments import NEWEST
from tests.interop.stock_releases.known import known
from tests.support.stock import StockError, StockRuntime

EQUAL, NEWER = "equal", "newer operator"
REFUSED, DIFFERS, CRASHES = "refused", "differs", "crashes"
KNOWN = "known: "  # before what happened: a listed limit hides neither a difference nor a crash
_MISSING_OPERATOR = "error: 0x:14"


@dataclass(frozen=True)
class Outcome:
    release: str
    group: str
    case: str
    outcome: str
    detail: str = ""
    commit: str = ""


class Record:
    """The outcomes of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.outcomes = {(o.release, o.group, o.case): o for o in (Outcome(**json.loads(line)) for line in lines)}

    def missing(self, case: Case, releases: Sequence[str]) -> list[str]:
        """The releases that the case did not run in yet."""
        return [r for r in releases if (r, case.group, case.name) not in self.outcomes]

    def add(self, outcomes: Iterable[Outcome]) -> None:
        with self.path.open("a") as file:
            for outcome in outcomes:
                self.outcomes[outcome.release, outcome.group, outcome.case] = outcome
                file.write(json.dumps(asdict(outcome)) + "\n")

    def counts(self, release: str, group: str) -> Counter[str]:
        return Counter(o.outcome for o in self.outcomes.values() if (o.release, o.group) == (release, group))

    def commits(self) -> list[str]:
        """The commits whose programs ran, oldest first: more than one if a run was continued after a change."""
        return list(dict.fromkeys(o.commit for o in self.outcomes.values()))

    def failures(self) -> list[Outcome]:
        """Differences and crashes; of compiled programs also refusals and operators that a release lacks. Kernels may
        refuse what the newest release refuses too."""
        found = []
        for (_, group, case), outcome in self.outcomes.items():
            ran = self.outcomes.get((NEWEST, group, case))
            excused = (NEWER, REFUSED) if group == "kernels" else ()
            if outcome.outcome == REFUSED and ran is not None and ran.outcome == EQUAL:
                excused = ()
            if outcome.outcome not in (EQUAL, *excused) and not outcome.outcome.startswith(KNOWN):
                found.append(outcome)
        return found


def run_case(case: Case, built: Built, release: str, runtime: StockRuntime, operators: frozenset[str]) -> Outcome:
    """Load and execute a case's program in a release. An operator that the release lacks must be refused by it."""
    absent = sorted(built.operators() - operators)
    kind, detail = _run(built, runtime, absent)
    if kind == CRASHES:  # again, in a process whose memory no earlier case has damaged
        kind, detail = _run(built, runtime, absent)
    why = known(release, case.name) if kind not in (EQUAL, NEWER) else ""
    kind, detail = (KNOWN + kind, f"{why}: {detail}") if why else (kind, detail)
    return Outcome(release, case.group, case.name, kind, detail, commit())


def _run(built: Built, runtime: StockRuntime, absent: list[str]) -> tuple[str, str]:
    try:
        results = runtime.run_many(built.program, "forward", built.calls)
    except StockError as error:
        text = str(error)[:300]
        if "crashed" in text:
            return CRASHES, text
        return (NEWER, absent[0]) if absent and _MISSING_OPERATOR in text else (REFUSED, text)
    try:
        for theirs, ours in zip(results, built.outputs, strict=True):
            built.check(theirs, ours)
    except AssertionError as error:
        return DIFFERS, " ".join(str(error).split())[:400]
    return (DIFFERS, f"ran without {absent[0]}") if absent else (EQUAL, "")

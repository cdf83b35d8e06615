"""`python -m tests.mutation [group or part of a path ...]`: which small changes would the unit tests not notice.

Prints one line a file (mutants, killed, equivalent, survived) and one a survivor with its place and its change. The exit
status is 1 where a group has less than 90 % killed, or `equivalent.txt` has an entry that is wrong or matches nothing.
With `--survivors FILE`, what an earlier run printed, only the mutants that survived there are judged; the others of the chosen
files count as killed, or as equivalent where they are entered. So the earlier run must have gone to its end.
`--sample N` judges N mutants of each group, drawn by `--seed`, and `--minutes M` as many as can be begun in M minutes after the
start, in the order of that draw; what `equivalent.txt` names is not judged then, but believed. Groups with the same tests are
judged together.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.mutation.groups import GROUPS, ROOT, Group
from tests.mutation.judging import UNJUDGED, UNREACHED, judge
from tests.mutation.mutants import Mutant, mutants_of

FLOOR_PERCENT = 90.0
_BEFORE = "killed before"
_KILLED = ("killed", "timed out", _BEFORE)
_REPORTED = re.compile(rf"(.+):\d+: (?:survived|{UNREACHED}): (.+)")
_EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def equivalents() -> dict[str, str]:
    """Return the reason of each mutant that no test can notice, by its key."""
    reasons: dict[str, str] = {}
    key = ""
    for line in _EQUIVALENT.read_text().splitlines():
        if line.startswith("    ") and key:
            reasons[key] = f"{reasons[key]} {line.strip()}".strip()
        elif line and not line.startswith("#"):
            key = line
            reasons[key] = ""
    return reasons


def main() -> int:
    """Run the chosen groups and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("chosen", nargs="*", help="groups, or parts of paths; all where none is named")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--list", action="store_true", help="name the mutants without judging them")
    parser.add_argument("--survivors", type=Path, help="the report of an earlier run: judge only what survived there")
    parser.add_argument("--tests", nargs="+", help="judge by these alone, below tests: so many are killed at least")
    parser.add_argument("--sample", type=int, help="judge so many mutants of each group")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no mutant after that; groups with other tests have their own"
    )
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    options = parser.parse_args()
    again = reported(options.survivors) if options.survivors else None
    named = {group.name for group in GROUPS}
    parts = [word for word in options.chosen if word not in named]
    of_tests: dict[tuple[str, ...], list[tuple[Group, list[Path]]]] = {}
    for group in [replace(group, tests=tuple(options.tests), without=()) if options.tests else group for group in GROUPS]:
        whole = not options.chosen or group.name in options.chosen
        files = [path for path in group.files() if whole or any(part in str(path) for part in parts)]
        if files and options.list:
            print(*(mutant.key(ROOT) for path in files for mutant in mutants_of(path)), sep="\n")
        elif files:
            of_tests.setdefault(tuple(group.test_arguments()), []).append((group, files))
    results = [run(groups, again, options) for groups in of_tests.values()]
    return 0 if all(results) else 1


def run(groups: list[tuple[Group, list[Path]]], again: set[str] | None, options: argparse.Namespace) -> bool:
    """Judge and report groups that have the same tests, which so are measured once; return whether all are good enough."""
    mutants = [[mutant for path in files for mutant in mutants_of(path)] for _, files in groups]
    if options.sample or options.minutes < math.inf:
        mutants = [drawn(of_group, options.seed, options.sample) for of_group in mutants]
        mutants = [drawn([mutant for of_group in mutants for mutant in of_group], options.seed, None)]
    chosen = [mutant for of_group in mutants for mutant in of_group if again is None or mutant.key(ROOT) in again]
    with tempfile.TemporaryDirectory() as scratch:
        paths = [path for _, files in groups for path in files]
        judged = judge(groups[0][0], paths, chosen, options.jobs, Path(scratch), options.minutes)
        results = [(mutant, result) for mutant, result in judged if result != UNJUDGED]
    if again is not None:
        results += [(mutant, _BEFORE) for of_group in mutants for mutant in of_group if mutant.key(ROOT) not in again]
    good = True
    for group, files in groups:
        good = report(group.name, files, [pair for pair in results if pair[0].path in files], equivalents()) and good
    return good


def drawn(mutants: list[Mutant], seed: int, number: int | None) -> list[Mutant]:
    """Return so many of the mutants that are not known as equivalent, all where None, in an order that the seed decides."""
    known = equivalents()
    judged = [mutant for mutant in mutants if mutant.key(ROOT) not in known]
    return random.Random(seed).sample(judged, min(number or len(judged), len(judged)))


def reported(report: Path) -> set[str]:
    """Return the keys of the survivors that a run has printed: they do not depend on line numbers."""
    lines = (_REPORTED.fullmatch(line) for line in report.read_text().splitlines())
    return {f"{found[1]} {found[2]}" for found in lines if found}


def report(name: str, files: list[Path], results: list[tuple[Mutant, str]], reasons: dict[str, str]) -> bool:
    """Print a group's table and survivors; return whether it is good enough."""
    counts: Counter[tuple[Path, str]] = Counter()
    survivors: list[tuple[Mutant, str]] = []
    good = True
    for mutant, result in results:
        key = mutant.key(ROOT)
        if key in reasons:
            if result == "killed" or not reasons[key]:  # one that costs time only may time out
                print(f"wrong entry in {_EQUIVALENT.name} ({result}): {key}")
                good = False
            result = "equivalent"
        elif result not in _KILLED:
            survivors.append((mutant, result))
        counts[mutant.path, result] += 1
    names = {mutant.key(ROOT) for path in files for mutant in mutants_of(path)}
    for key in reasons:
        if any(key.startswith(f"{path.relative_to(ROOT)} ") for path in files) and key not in names:
            print(f"entry in {_EQUIVALENT.name} that names no mutant: {key}")
            good = False
    for mutant, result in sorted(survivors, key=lambda pair: (pair[0].path, pair[0].line)):
        print(mutant.line_of(result, ROOT))
    print(f"\n{'mutants':>8} {'killed':>7} {'equiv.':>7} {'survived':>9} {'percent':>8}  {name}")
    for place in [*files, None]:
        of_it = {
            result: sum(n for (path, r), n in counts.items() if r == result and place in (None, path)) for _, result in counts
        }
        everything, equivalent = sum(of_it.values()), of_it.get("equivalent", 0)
        killed = sum(of_it.get(result, 0) for result in _KILLED)
        percent = 100.0 * killed / (everything - equivalent) if everything > equivalent else 100.0
        label = place.relative_to(ROOT) if place else "all"
        print(f"{everything:8} {killed:7} {equivalent:7} {everything - equivalent - killed:9} {percent:8.1f}  {label}")
    print(flush=True)
    return good and percent >= FLOOR_PERCENT


if __name__ == "__main__":
    sys.exit(main())

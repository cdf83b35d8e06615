"""Unit tests judge the mutants of a group, in processes forked from one that has collected the tests.

First every test runs once unchanged, which tells how long it takes and which lines of the group's files it reaches. A
mutant is then judged by the tests that reach its line, the quickest first, until one fails. Nothing is written to the
checkout: the code of the changed function is replaced in a child. Code that runs while modules are imported (class
bodies, constants) cannot be replaced afterwards; for such a mutant a child imports everything anew, the changed file
through an import hook, and runs the test files that reach the changed file first. Times are CPU times: other work on the
machine makes no test look endless.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from tests.mutation.children import Outcome, alarm_in, fork_each
from tests.mutation.groups import ROOT, Group
from tests.mutation.mutants import Mutant, bodies_of, mutated

AT_IMPORT = "at import"
UNREACHED = "no test reaches it"
UNJUDGED = "not judged"
_T = TypeVar("_T")
_OPTIONS = ("-q", "--no-header", "-p", "no:warnings", "-p", "no:timeout", "-p", "no:cacheprovider")
_INSTALLED = "/site-packages/"
_IMPORT_SECONDS = 60.0
_EXAMPLES = 40
"""Of one property at most: a survivor is judged by every test that reaches its line."""
_OWN_SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps what a test's own decorator says."""


def judge(
    group: Group, files: Sequence[Path], mutants: Sequence[Mutant], at_once: int, scratch: Path, minutes: float = math.inf
) -> Iterator[tuple[Mutant, str]]:
    """Yield each of these mutants of the files with "survived", "killed", "timed out" or UNREACHED.

    After so many minutes no mutant is begun: the rest of them, in their order, is UNJUDGED.
    """
    deadline = time.monotonic() + 60.0 * minutes
    answer = scratch / f"{group.name}.json"
    answer.unlink(missing_ok=True)
    arguments = [*group.test_arguments(), *_OPTIONS]
    judging = _Judging(files, mutants, at_once, answer, os.dup(2), deadline)
    for _ in fork_each([(None, lambda: pytest.main(arguments, [judging]) == 0)], show=True):
        pass
    if not answer.exists():
        raise RuntimeError(f"group {group.name}: its tests do not pass unchanged")
    seconds, results, reaching, modules = json.loads(answer.read_text())
    yield from ((mutant, result) for mutant, result in zip(mutants, results, strict=True) if result != AT_IMPORT)
    importing = [mutant for mutant, result in zip(mutants, results, strict=True) if result == AT_IMPORT]
    if importing:
        for module in modules:
            with contextlib.suppress(Exception):  # it saves time only
                importlib.import_module(module)
    parts = 2 if minutes == math.inf else 1  # without a bound of time, a survivor is judged by all tests
    jobs = [(mutant, _importing(mutant, reaching[str(mutant.path)], arguments, seconds, parts)) for mutant in importing]
    begun = set()
    for mutant, outcome in fork_each(until(deadline, jobs), at_once):
        begun.add(mutant.number)
        _tell(2, mutant, outcome)
        yield mutant, _WORDS[outcome]
    yield from ((mutant, UNJUDGED) for mutant, _ in jobs if mutant.number not in begun)


def until(deadline: float, jobs: Iterable[_T]) -> Iterator[_T]:
    """Yield the jobs that are asked for before this moment of the monotonic clock."""
    return itertools.takewhile(lambda _: time.monotonic() < deadline, jobs)


def _tell(terminal: int, mutant: Mutant, outcome: Outcome) -> None:
    """Name a survivor at once: a long run that is broken off was not in vain."""
    if outcome is Outcome.PASSED:
        os.write(terminal, f"{mutant.line_of('survived', ROOT)}\n".encode())


_WORDS = {Outcome.PASSED: "survived", Outcome.FAILED: "killed", Outcome.TIMED_OUT: "timed out"}


class _Examples:
    """Makes hypothesis try the same few examples each time; a failure is not shrunk."""

    def pytest_collection(self) -> None:
        settings.register_profile(
            "mutation",
            settings(),
            max_examples=_EXAMPLES,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            print_blob=False,
        )
        settings.load_profile("mutation")

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        test = getattr(item, "obj", None)
        own = getattr(test, _OWN_SETTINGS, None)
        if own is not None and own.max_examples > _EXAMPLES:
            setattr(test, _OWN_SETTINGS, settings(own, max_examples=_EXAMPLES))


class _Judging(_Examples):
    """The pytest plugin of the process that collects the tests."""

    def __init__(
        self, files: Sequence[Path], mutants: Sequence[Mutant], at_once: int, answer: Path, terminal: int, deadline: float
    ) -> None:
        """`terminal` is a file descriptor that pytest does not capture."""
        self._terminal = terminal
        self._deadline = deadline
        self._files = [str(path) for path in files]
        self._mutants = mutants
        self._at_once = at_once
        self._answer = answer
        self._imported: set[tuple[str, int]] = set()

    def pytest_collection(self) -> None:
        super().pytest_collection()
        sys.settrace(_tracer(set(self._files), self._imported))

    def pytest_collection_finish(self) -> None:
        sys.settrace(None)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        measured = self._answer.with_suffix(".measured")
        baseline = [(None, lambda: self._measure(session.items, measured))]
        if [outcome for _, outcome in fork_each(baseline, show=True)] != [Outcome.PASSED]:
            return True
        seconds, reached = json.loads(measured.read_text())
        gc.collect()
        functions = [found for found in gc.get_objects() if isinstance(found, FunctionType)]
        results: list[str] = []
        jobs = []
        loaded = {function.__code__.co_filename for function in functions}
        bodies = {path: bodies_of(Path(path)) for path in self._files}
        for mutant in self._mutants:
            path = str(mutant.path)
            results.append(AT_IMPORT)
            body = bodies[path].get(mutant.function, range(0))
            if path not in loaded or not body or any((path, line) in self._imported for line in body):
                continue
            places = {place for line in mutant.lines for place in reached.get(f"{path}:{line}", [])}
            items = sorted((session.items[place] for place in places), key=lambda item: seconds[item.nodeid])
            results[-1] = UNREACHED
            if items:
                jobs.append((len(results) - 1, _replacing(mutant, functions, items, seconds)))
        for number, _ in jobs:
            results[number] = UNJUDGED
        for number, outcome in fork_each(until(self._deadline, jobs), self._at_once):
            results[number] = _WORDS[outcome]
            _tell(self._terminal, self._mutants[number], outcome)
        modules = [name for name, module in sys.modules.items() if _INSTALLED in str(getattr(module, "__file__", ""))]
        self._answer.write_text(json.dumps([seconds, results, self._reaching(session.items, reached), modules]))
        return True

    def _reaching(self, items: Sequence[pytest.Item], reached: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
        """Return the test files that reach each of the mutated files, by running a line of it."""
        found: dict[str, set[str]] = {path: set() for path in self._files}
        for place, tests in reached.items():
            found[place.rpartition(":")[0]].update(str(items[test].path) for test in tests)
        return {path: sorted(tests) for path, tests in found.items()}

    def _measure(self, items: Sequence[pytest.Item], measured: Path) -> bool:
        """Run every test unchanged and write how long each takes and which tests reach each line."""
        files = set(self._files)
        seconds: dict[str, float] = {}
        reached: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            lines: set[tuple[str, int]] = set()
            began = time.process_time()
            sys.settrace(_tracer(files, lines))
            passed = _passes(item, items[place + 1] if place + 1 < len(items) else None)
            sys.settrace(None)
            if not passed:
                os.write(self._terminal, f"fails unchanged: {item.nodeid}\n".encode())
                return False
            seconds[item.nodeid] = time.process_time() - began
            for path, line in lines:
                reached.setdefault(f"{path}:{line}", []).append(place)
        measured.write_text(json.dumps([seconds, reached]))
        return True


def _limit(seconds: float) -> float:
    """Return how many CPU seconds a test may take that takes so many unchanged and traced."""
    return 3 + 3 * seconds


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, nextitem=following, log=False))


def _tracer(files: set[str], lines: set[tuple[str, int]]) -> Callable[[FrameType, str, Any], Any]:
    """Return a trace function that notes which lines of the files run."""

    def local(frame: FrameType, event: str, _: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def called(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        return local(frame, event, None)

    return called


def _replacing(
    mutant: Mutant, functions: Sequence[FunctionType], items: Sequence[pytest.Item], seconds: Mapping[str, float]
) -> Callable[[], bool]:
    """Return a job that replaces the code of the changed function and runs the tests."""

    def job() -> bool:
        code = next(code for code in _codes(_compiled(mutant)) if code.co_qualname == mutant.function)
        for function in functions:
            old = function.__code__
            if (old.co_filename, old.co_qualname, old.co_firstlineno) == (
                code.co_filename,
                code.co_qualname,
                code.co_firstlineno,
            ):
                function.__code__ = code
        for item, following in zip(items, [*items[1:], None], strict=True):
            alarm_in(_limit(seconds[item.nodeid]))
            if not _passes(item, following):
                return False
        return True

    return job


def _importing(
    mutant: Mutant, reaching: Sequence[str], arguments: Sequence[str], seconds: Mapping[str, float], parts: int
) -> Callable[[], bool]:
    """Return a job that runs the tests with the changed file in place of the original: first the test files that reach it,
    then, with two `parts`, the others, whose tests may still see a constant of it.
    """
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if Path(loader.get_filename(name)) == mutant.path:
            return _compiled(mutant)
        return original(loader, name)

    def job() -> bool:
        SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]  # this process runs the tests once and ends
        others = [*arguments, *(f"--ignore={test}" for test in reaching)]
        for tests in ([*reaching, *_OPTIONS], others)[:parts] if reaching else (arguments,):
            alarm_in(_IMPORT_SECONDS)
            if pytest.main([*tests, "-x"], [_QuickestFirst(seconds)]) not in (
                pytest.ExitCode.OK,
                pytest.ExitCode.NO_TESTS_COLLECTED,
            ):
                return False
        return True

    return job


class _QuickestFirst(_Examples):
    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._seconds.get(item.nodeid, 0.0))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        alarm_in(_limit(self._seconds.get(nodeid, 0.0)))


def _compiled(mutant: Mutant) -> CodeType:
    return compile(mutated(mutant), str(mutant.path), "exec")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all that stand inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)

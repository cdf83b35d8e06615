"""The mutation run changes what decides, one thing at a time, and leaves alone what does not."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutation.__main__ import equivalents, reported
from tests.mutation.children import Outcome, alarm_in, fork_each
from tests.mutation.groups import GROUPS, ROOT, Group
from tests.mutation.judging import UNREACHED
from tests.mutation.mutants import bodies_of, mutants_of, mutated


def written(folder: Path, source: str) -> Path:
    path = folder / "source.py"
    path.write_text(dedent(source))
    return path


def changes(folder: Path, source: str) -> list[str]:
    return [mutant.change for mutant in mutants_of(written(folder, source))]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("a == b", ["a == b -> a != b"]),
        ("a not in b", ["a not in b -> a in b"]),
        ("a + b", ["a + b -> a - b"]),
        ("a and not b", ["a and (not b) -> a or not b", "not b -> b"]),
        ("min(a, b)", ["min(a, b) -> max(a, b)"]),
        ("a if b else c", ["a if b else c -> a if not b else c"]),
        ("[a, 1]", ["[a, 1] -> [a, 2]"]),
        ("True", ["return True -> return False"]),
        ("f'{a + 1}'", []),
    ],
)
def test_a_return_is_changed(tmp_path: Path, expression: str, expected: list[str]) -> None:
    assert changes(tmp_path, f"def f(a, b, c):\n    return {expression}\n") == expected


def test_types_options_and_errors_are_left_alone(tmp_path: Path) -> None:
    source = """
        Text = str | None

        @cache(maxsize=3)
        def f(a: int | None) -> int | None:
            assert a > 0
            raise ValueError(a + 1)

        class Point(Struct, frozen=True):
            pass
    """
    assert changes(tmp_path, source) == []


def test_a_mutant_is_the_file_with_that_change_and_the_file_stays(tmp_path: Path) -> None:
    path = written(tmp_path, "LIMIT = 3\n\n\ndef f(a):\n    return a < LIMIT or a == 7\n")
    before = path.read_text()
    results = []
    for mutant in mutants_of(path):
        names: dict[str, object] = {}
        exec(compile(mutated(mutant), str(path), "exec"), names)
        function = names["f"]
        assert callable(function)
        results.append((mutant.scope, mutant.line, [a for a in range(9) if function(a)]))
    assert results == [
        ("", 1, [0, 1, 2, 3, 7]),
        ("f", 5, []),
        ("f", 5, [0, 1, 2, 3, 7]),
        ("f", 5, [3, 4, 5, 6, 7, 8]),
        ("f", 5, [0, 1, 2, 3, 4, 5, 6, 8]),
        ("f", 5, [0, 1, 2, 8]),
    ]
    assert path.read_text() == before


def test_a_change_twice_in_a_function_is_numbered(tmp_path: Path) -> None:
    assert changes(tmp_path, "def f(a):\n    return not a, not a\n") == ["not a -> a", "not a -> a #2"]


def test_the_survivors_of_a_report_are_found_again_where_their_lines_have_moved(tmp_path: Path) -> None:
    mutants = mutants_of(written(tmp_path, "def f(a):\n    return a < 3, not a\n"))
    lines = [mutant.line_of(result, tmp_path) for mutant, result in zip(mutants, ["survived", UNREACHED], strict=False)]
    report = tmp_path / "report"
    report.write_text("\n".join([*lines, "", " mutants  killed", "       4       2  all"]))
    written(tmp_path, "X = ''\n\n\ndef f(a):\n    return a < 3, not a\n")
    assert reported(report) == {mutant.key(tmp_path) for mutant in mutants_of(mutants[0].path)[:2]}


def test_bodies_are_those_of_outermost_functions(tmp_path: Path) -> None:
    path = written(tmp_path, "class A:\n    def f(self):\n        def g():\n            return 1\n        return g\n")
    assert bodies_of(path) == {"A.f": range(3, 6)}
    assert [(mutant.scope, mutant.function) for mutant in mutants_of(path)] == [("A.f.g", "A.f")]


def test_children_answer_by_their_status_and_end_when_their_alarm_rings() -> None:
    def endless() -> bool:
        alarm_in(0.05)
        while True:
            pass

    def broken() -> bool:
        raise ValueError

    jobs = [("good", lambda: True), ("bad", lambda: False), ("broken", broken), ("endless", endless)]
    assert dict(fork_each(jobs, at_once=2)) == {
        "good": Outcome.PASSED,
        "bad": Outcome.FAILED,
        "broken": Outcome.FAILED,
        "endless": Outcome.TIMED_OUT,
    }


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_group_names_files_and_tests_that_exist(group: Group) -> None:
    assert group.files()
    missing = [path for path in (*group.tests, *group.without) if not (ROOT / "tests" / path).exists()]
    assert missing == []


def test_every_explained_mutant_is_still_one() -> None:
    names = {mutant.key(ROOT) for group in GROUPS for path in group.files() for mutant in mutants_of(path)}
    assert set(equivalents()) - names == set()

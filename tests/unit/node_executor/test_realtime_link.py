"""The executor's end of the guard: what it tells, what it makes of answers, and of a guard that is not well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant_node_executor.runtime.realtime.link import GuardLink
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import CgroupVersion
from tests.other_processes import wait_for

ECHO = "import sys\nfor line in sys.stdin:\n    print(line, end='', file=open({file!r}, 'a'), flush=True)\n"
"""A guard that only writes down what it is told."""
ANSWER = "import sys\nsys.stdin.readline()\nprint({text!r}, flush=True)\nsys.stdin.read()\n"
DEAF = "import time\ntime.sleep(600)\n"


@pytest.fixture
def driver(tmp_path: Path) -> SandboxDriver:
    made = SandboxDriver(tmp_path / "tree", "node-1", version=CgroupVersion.V1)
    for group in ("a", "b"):
        made.create(group)
    return made


def program(folder: Path, text: str) -> Path:
    path = folder / "guard.py"
    path.write_text(text)
    return path


def told(file: Path) -> dict[str, object]:
    """The last line that the guard was told."""
    lines = file.read_text().splitlines() if file.exists() else []
    found: dict[str, object] = json.loads(lines[-1]) if lines else {}
    return found


def test_the_guard_is_told_what_to_guard_and_forgets_pods_that_are_gone(driver: SandboxDriver, tmp_path: Path) -> None:
    file = tmp_path / "told"
    link = GuardLink(driver, 2, program=program(tmp_path, ECHO.format(file=str(file))))
    link.give("a")
    wait_for("a line about a", lambda: list(told(file).get("groups", ())) == ["a"], 60)  # type: ignore[call-overload]
    driver.remove("a")
    link.before_budgets({"b"})
    link.give("b")
    wait_for("a line about b", lambda: list(told(file).get("groups", ())) == ["b"], 60)  # type: ignore[call-overload]
    assert set(told(file)["budgets"]) <= {"b"}  # type: ignore[call-overload]
    assert (link.class_of("a"), link.class_of("b")) == (None, "realtime")
    link.close()
    assert link.class_of("b") == "fair"
    assert link.guard_pid == 0


def test_what_the_guard_took_away_stays_asked_for_until_somebody_asks_for_another_class(
    driver: SandboxDriver, tmp_path: Path
) -> None:
    text = json.dumps({"demoted": {"a": "used too much", "x": "not ours"}})
    link = GuardLink(driver, 2, program=program(tmp_path, ANSWER.format(text=text)))
    link.give("a")

    def known() -> bool:
        link.beat()
        return bool(link.state.taken)

    wait_for("the answer", known, 60)
    assert link.state.taken == {"a": "used too much"}
    assert link.class_of("a") == "realtime"
    link.take("a")
    assert (link.class_of("a"), link.state.taken) == ("fair", {})
    link.close()


def test_a_guard_that_does_not_answer_is_killed_and_everything_put_back(driver: SandboxDriver, tmp_path: Path) -> None:
    link = GuardLink(driver, 2, program=program(tmp_path, DEAF), hung_seconds=0.2)
    link.give("a")

    def put_back() -> bool:
        link.beat()
        return bool(link.state.taken)

    wait_for("the guard to be given up", put_back, 60)
    assert link.state.taken["a"] == "the guard does not answer for 1.2 s"
    assert link.guard_pid == 0


def test_a_guard_that_answers_is_kept_however_long_it_runs(driver: SandboxDriver, tmp_path: Path) -> None:
    file = tmp_path / "told"
    answering = (
        "import sys\nfor line in sys.stdin:\n"
        f"    open({str(file)!r}, 'a').write('x')\n    print('{{\"took\": true}}', flush=True)\n"
    )
    link = GuardLink(driver, 2, program=program(tmp_path, answering), hung_seconds=30.0)
    link.give("a")

    def heard(lines: int) -> bool:
        link.beat()
        return file.exists() and len(file.read_text()) >= lines

    wait_for("many answers", lambda: heard(50), 60)
    assert link.state.taken == {}
    assert link.guard_pid > 0
    link.close()


def test_a_guard_that_ended_is_started_again_when_the_class_is_asked_for_anew(driver: SandboxDriver, tmp_path: Path) -> None:
    link = GuardLink(driver, 2, program=program(tmp_path, "raise SystemExit(1)"))
    link.give("a")

    def ended() -> bool:
        link.beat()
        return link.state.taken == {"a": "the guard ended"}

    wait_for("its end to be seen", ended, 60)
    link.take("a")
    link.give("a")
    assert link.guard_pid > 0
    link.close()

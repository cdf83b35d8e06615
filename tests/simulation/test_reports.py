"""What a person reads of a failure: promise, object, the events about it, and the command that reproduces it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import click
import pytest

from cotenant.events import Commit
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from cotenant_verification.chaos.command import ChaosOptions, simulate_chaos
from cotenant_verification.chaos.report import LAST_EVENTS, failure_lines, verdict_lines
from cotenant_verification.chaos.run import run, schedule_of
from cotenant_verification.checks.related_events import related_events
from tests.simulation.mutants.defects import MUTANTS

WISH = ChaosOptions(seed=1, span="2m", span_seconds=120, nodes=2)


def test_a_failure_names_promise_object_events_causes_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "the_batch_formula_forgets_services")
    with mutant.at_work():
        assert simulate_chaos(WISH) == 1
    lines = capsys.readouterr().out.splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("promise 4 is broken"))
    about, subject = lines[begin + 1].split()
    assert about == "about"
    assert subject in ("node.n0.resources", "node.n1.resources")
    assert "offers" in lines[begin + 3]
    events = [line for line in lines[begin:] if line.startswith("  LOG:")]
    assert 1 < len(events) <= LAST_EVENTS
    assert sum("causes LOG:" in line for line in lines[begin:]) > 1
    assert lines[-1] == "again:  cotenant simulate --chaos --seed 1 --for 2m --nodes 2"


def test_a_core_that_raises_breaks_a_promise_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = BatchResourceCalculator.decide

    def raises(self: BatchResourceCalculator, now: datetime) -> object:
        if now.second > 10:
            try:
                json.loads("no figure")
            except ValueError as error:
                raise ZeroDivisionError("one day it happens") from error
        return right(self, now)

    monkeypatch.setattr(BatchResourceCalculator, "decide", raises)
    violation = run(schedule_of(1, 60, 1)).violation
    assert violation is not None
    assert (violation.invariant, violation.name) == (0, "nothing_raises")
    assert violation.subject.startswith("batch-resource-calculator/")
    assert "ZeroDivisionError: one day it happens (test_reports.py" in violation.text
    told = "\n".join(failure_lines(violation, None, "again"))
    assert f'File "{__file__}", line' in told, "all frames with their paths"
    assert "JSONDecodeError: Expecting value" in told, "what it came from"


def test_what_touched_a_pod_a_node_a_commit_and_a_service_is_found() -> None:
    view = run(schedule_of(1, 60, 1)).view
    assert view is not None
    of_node = {event.subject for event in related_events(view, "node.n0.executor")}
    assert {"node.n0.executor", "node.n0.resources", "metrics.n0", "objects.core.nodes._.n0"} <= of_node
    placed = min(subject for subject in of_node if ".placement.default." in subject)
    pod = placed.rpartition(".")[2]
    of_pod = {event.subject for event in related_events(view, f"objects.core.pods.default.{pod}")}
    assert {placed, f"objects.core.pods.default.{pod}", f"node.n0.run.default.{pod}"} <= of_pod
    commit = next(event for event in view.log if isinstance(event.data, Commit) and event.data.count)
    stored = {event.sequence for event in related_events(view, commit.ref)}
    assert {commit.sequence, commit.sequence + 1} <= stored
    single = next(event for event in view.log if event.commit is not None)
    assert single in related_events(view, single.ref)
    assert {event.subject for event in related_events(view, "scheduler/b")} == {"commits.scheduler.0"}


def test_a_verdict_tells_what_was_run_and_what_was_checked() -> None:
    result = run(schedule_of(1, 60, 1))
    lines = verdict_lines(result)
    assert lines[0].startswith("seed 1: 0:15:00 of virtual time in ")
    assert f"digest {result.digest}" in lines
    again = result.checks["decisions recomputed"]
    assert again > 10
    assert f"commits recomputed from the log with the same events: {again}" in lines
    assert lines[-1] == "every promise was kept"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"at_ms":1,"kind":"crush","target":"scheduler/a"}', "kind 'crush' is none of"),
        ('{"at_ms":1,"kind":"node","target":"n0","args":{"cpu":4000}}', "memory_gib must be an integer"),
        ('{"at_ms":-1,"kind":"crash","target":"n0"}', "line 2: Expected `int` >= 0"),
        ('{"at_ms":1000000000000000000,"kind":"crash","target":"n0"}', "line 2: Expected `int` <= 2592000000"),
    ],
)
def test_an_edited_schedule_that_says_nonsense_is_refused_with_the_entry(tmp_path: Path, line: str, wrong: str) -> None:
    path = tmp_path / "edited.schedule"
    path.write_text('{"seed":1,"span_ms":1000,"nodes":1,"hop_ms":5}\n' + line + "\n")
    with pytest.raises(click.ClickException, match=wrong):
        simulate_chaos(ChaosOptions(seed=0, span="1s", span_seconds=1, schedule=str(path)))


def test_many_seeds_stop_at_the_first_broken_promise_with_a_table_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "the_batch_formula_forgets_services")
    with mutant.at_work():
        assert simulate_chaos(ChaosOptions(seed=0, seeds="1..3", span="2m", span_seconds=120, nodes=2)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["seed", "1"]
    assert lines[0].endswith("BROKEN 4 batch_follows_from_its_samples")
    assert "broken: 1" in lines
    assert lines[-1] == "again:  cotenant simulate --chaos --seed 1 --for 2m --nodes 2"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (ChaosOptions(seed=0, span="99999999h", span_seconds=99999999 * 3600.0), "99999999h: a run with faults takes 30 days"),
        (ChaosOptions(seed=0, span="10m", span_seconds=600, seeds="1..1000000000000000000"), "more than 1000000 seeds"),
        (ChaosOptions(seed=0, span="10m", span_seconds=600, seeds="9..1"), "there are no seeds in it"),
        (ChaosOptions(seed=0, span="10m", span_seconds=600, seeds="x" * 1_000_000), "expected FIRST..LAST"),
    ],
)
def test_more_than_a_run_can_be_is_refused_at_once(options: ChaosOptions, wrong: str) -> None:
    with pytest.raises(click.BadParameter, match=wrong) as refused:
        simulate_chaos(options)
    assert len(refused.value.message) < 200

"""What the checks cost and keep is bounded, and they change nothing of what they look at."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from cotenant.events.commits import Commit
from cotenant.events.envelope import Event
from cotenant.simulation import START, ServiceParticipant, World
from cotenant_verification.chaos import run as running
from cotenant_verification.chaos.run import Result, run, schedule_of
from cotenant_verification.checks import checker as checker_module
from cotenant_verification.checks import log_view as view
from cotenant_verification.checks.copying import copied
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.reference_cores import ReferenceCores
from cotenant_verification.promises.log.replay import state_is_the_fold

SEED, SPAN, NODES = 7, 30.0, 3


@pytest.fixture(scope="module")
def plain() -> Result:
    """A run whose checks are as they always are."""
    return run(schedule_of(SEED, SPAN, NODES))


def test_the_checks_change_no_run(plain: Result) -> None:
    unchecked = run(schedule_of(SEED, SPAN, NODES), checked=False)
    assert (unchecked.digest, unchecked.events, unchecked.steps) == (plain.digest, plain.events, plain.steps)
    assert not any(unchecked.checks.get(str(promise)) for promise in range(1, 18))


def test_asking_copies_changes_no_run_and_copies_decide_like_deep_ones(
    plain: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def compare(participant: ServiceParticipant, world: World, cores: ReferenceCores, number: int) -> Iterator[tuple[str, str]]:
        core = participant.cycle.core
        deep, quick = copy.deepcopy(core), copied(core)
        assert list(quick.decide(world.now)) == list(deep.decide(world.now))
        asked.append(participant.definition.name)
        yield from state_is_the_fold(participant, world, cores, number)

    monkeypatch.setattr(checker_module, "FOLD_EVERY", 20)
    monkeypatch.setattr(checker_module, "FOLD_FREE", 1_000_000)
    monkeypatch.setattr(running, "state_is_the_fold", compare)
    often = run(schedule_of(SEED, SPAN, NODES))
    assert often.violation is None
    assert len(asked) > 100
    assert len(set(asked)) == 4
    assert often.digest == plain.digest


def test_comparisons_stay_within_their_budget(plain: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "FOLD_EVERY", 1)
    monkeypatch.setattr(checker_module, "FOLD_FREE", 0)
    monkeypatch.setattr(checker_module, "FOLD_SHARE", 1)
    result = run(schedule_of(SEED, SPAN, NODES))
    assert result.view is not None
    assert 0 < result.checks["10"] < result.view.seen
    assert result.digest == plain.digest


def test_of_many_commits_some_are_made_again_as_the_seed_has_it(plain: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "VERIFIED", 10)
    result = run(schedule_of(SEED, SPAN, NODES))
    every = plain.checks["decisions recomputed"]
    assert 10 < result.checks["decisions recomputed"] < every / 2
    assert result.digest == plain.digest


def test_a_log_of_which_little_is_kept_keeps_every_promise(plain: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "KEPT_LOG", 100)
    result = run(schedule_of(SEED, SPAN, NODES))
    assert result.violation is None
    assert result.view is not None
    assert len(result.view.log) < 200 < result.view.seen
    assert result.digest == plain.digest
    assert result.checks["decisions recomputed"] == plain.checks["decisions recomputed"] > 50


def test_what_still_stands_is_known_however_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "KEPT_LOG", 5)
    seen = LogView()
    for sequence in range(1, 31):
        subject = "commits.standing.0" if sequence == 1 else "commits.toy.0"
        seen.see(Event(subject=subject, data=Commit(prior=0, folded=0, now=START, count=0), sequence=sequence))
    assert seen.by_reference("LOG:1") is not None
    assert seen.by_reference("LOG:2") is None
    assert seen.was_there(2)
    assert not seen.was_there(31)

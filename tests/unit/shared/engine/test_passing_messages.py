"""What HISTORY does not take over: a commit says how many of its last messages, and a replay does not miss them."""

from __future__ import annotations

from datetime import UTC, datetime

from cotenant.engine.commit import CommitPlace, Decision, Identity, commit_batch
from cotenant.engine.replay import Verifier
from cotenant.events.commits import Commit
from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
METRIC = Event(subject="metrics.n", data=NodeMetricComputed(node="n"))
STATE = Event(subject="predictions.n", data=PredictionState(node="n"))


def record(*events: Event) -> Commit:
    decision = Decision(events=events, folded=0, now=NOW, took_us=0)
    return commit_batch(decision, Identity(service="metrics-ingest"), "", CommitPlace(0, 0)).record


def holes(commit: Commit, *sequences: int) -> int:
    verifier = Verifier({})
    verifier.read(Event(subject="commits.metrics-ingest.0", data=commit, sequence=1))
    for sequence in sequences:
        verifier.read(Event(subject="metrics.n", data=METRIC.data, sequence=sequence))
    return verifier.report.holes


def test_a_commit_counts_the_last_messages_that_history_does_not_take() -> None:
    assert record(METRIC, STATE, STATE).passing == 2
    assert record(METRIC).passing == 0
    assert record(STATE, METRIC).passing == 0


def test_messages_that_pass_are_not_missed_and_others_are() -> None:
    commit = record(METRIC, STATE, STATE)
    assert holes(commit, 2, 5) == 0
    assert holes(commit, 2, 3, 4, 5) == 0
    assert holes(commit, 5) == 1
    assert holes(commit, 2, 6) == 1
    assert holes(record(METRIC, METRIC, METRIC), 2, 5) == 2

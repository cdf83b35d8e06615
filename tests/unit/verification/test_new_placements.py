"""Which placements of a commit the promises take for decisions about a node."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from cotenant.events.commits import Commit
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import placement_subject
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.placements import new_placements
from tests.builders import encoded, pod_document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GIVEN = Placement(
    node="a",
    namespace="default",
    name="web",
    uid="uid-web",
    pod=encoded(pod_document("web")),
    bound_at=NOW,
    object_sequence=1,
)


def is_new(view: LogView, data: Placement, *, tombstone: bool = False) -> bool:
    """Whether a commit at NOW with this message gives the pod a node."""
    first = view.seen + 1
    record = Event(subject="commits.scheduler.0", data=Commit(prior=0, folded=0, now=NOW, count=1), sequence=first, time=NOW)
    subject = placement_subject(data.node, data.namespace, data.name)
    event = Event(subject=subject, data=data, sequence=first + 1, time=NOW, tombstone=tombstone)
    commits = [seen for each in (record, event) if (seen := view.see(each)) is not None]
    assert len(commits) == 1
    assert isinstance(commits[0], CommitSeen)
    return bool(new_placements(view, commits[0]))


def test_seed_15003_a_placement_that_another_commit_of_the_moment_stores_again_is_not_new() -> None:
    view = LogView()
    assert is_new(view, GIVEN)
    assert not is_new(view, msgspec.structs.replace(GIVEN, object_sequence=2))


def test_a_pod_that_is_created_again_or_had_gone_is_placed_anew() -> None:
    view = LogView()
    assert is_new(view, GIVEN)
    assert is_new(view, msgspec.structs.replace(GIVEN, uid="uid-later"))
    assert not is_new(view, msgspec.structs.replace(GIVEN, phase=PlacementPhase.GONE))
    assert is_new(view, GIVEN)
    assert not is_new(view, GIVEN, tombstone=True)
    assert is_new(view, GIVEN)

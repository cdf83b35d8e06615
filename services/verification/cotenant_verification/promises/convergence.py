"""Promise 12: after the faults everything becomes idle, and no event is published without a change."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.model.subjects import node_subject, object_subject, pod_subject, run_subject, tokens
from cotenant_gateway.planning.leftovers import KEPT
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen

LAST_STRETCH = timedelta(minutes=2)
EVENTS_PER_NODE = 40
"""In the last stretch of the idle phase: metrics, resources, quotas, reports of jobs that end."""
STORM = 1_500
"""Events of a source within a second, beside two for each pod: its placement, and the end of its waiting event."""
TOLD_AGAIN = timedelta(seconds=0.9)
"""A second, less a commit's delay after its decision."""
LEFT_ALONE = timedelta(minutes=2)
"""Work that began longer ago counts as unfinished."""
DECIDING = ("scheduler", "quota-tree", "batch-resource-calculator", "descheduler-arbiter")


def nothing_is_published_twice(view: LogView, seen: CommitSeen) -> Wrong:
    """No decision publishes what is already the last message of its subject."""
    if seen.service not in DECIDING:
        return
    for event in seen.events:
        before = view.before(event)
        if before is not None and not before.tombstone and not event.tombstone and before.data == event.data:
            yield event.subject, f"{event.ref} repeats {before.ref} unchanged"


def no_work_is_left(moment: Moment) -> Wrong:
    """In the idle phase, every placed pod has a report, nothing has been ending for long, every ordered eviction is answered,
    no report and no answer to an eviction remains of a pod that is gone, and no waiting event remains for a pod that does not
    exist or is placed.
    """
    view = moment.view
    for node, held in sorted(view.placed.items()):
        if node not in moment.harness.nodes:
            continue
        for (namespace, name), event in sorted(held.items()):
            run = view.last.get(run_subject(node, namespace, name))
            data = event.data
            assert isinstance(data, Placement)
            if data.phase is PlacementPhase.TERMINATING:
                if _long_ago(data.terminating_at, moment):
                    yield event.subject, f"{namespace}/{name} has been terminating on {node} since {data.terminating_at}"
            elif run is None or not isinstance(run.data, RunStatus) or run.data.uid != data.uid:
                yield event.subject, f"{namespace}/{name} is placed on {node}, whose executor has not reported it"
    for subject, event in sorted(view.last.items()):
        if isinstance(event.data, Waiting):
            yield from _needless_waiting(view, subject, event.data)
        elif isinstance(event.data, RunStatus):
            node = event.data.node
            if node in moment.harness.nodes or node_subject(node) not in view.last:
                yield from _needless_report(moment, event, event.data)
        elif isinstance(event.data, EvictionOutcome):
            yield from _needless_answer(moment, event, event.data)
    for (namespace, name), pod in sorted(view.pods.items()):
        since = pod.metadata.deletion_timestamp
        if since is not None and _long_ago(datetime.fromisoformat(since), moment) and not view.places[pod.metadata.uid]:
            yield pod_subject(namespace, name), f"{namespace}/{name} has been terminating since {since} although no node has it"
    for subject, job in sorted(view.moves.items()):
        if job.phase == "Running" and not (job.answer or job.evicted_at) and _long_ago(job.ordered_at, moment):
            yield subject, f"the eviction that {job.job} ordered at {job.ordered_at} has no answer"


def nothing_outlives_its_namespace(moment: Moment) -> Wrong:
    """No namespace is being deleted for long, and nothing remains in one that is gone."""
    view = moment.view
    for subject, event in sorted(view.last.items()):
        parts = tokens(subject)
        if parts[0] != "objects":
            continue
        if parts[2] == "namespaces" and view.ends(event) and event.time is not None and _long_ago(event.time, moment):
            yield subject, f"namespace {parts[4]} has been terminating since {event.time}"
        elif parts[3] != "_" and object_subject("", "namespaces", "", parts[3]) not in view.last:
            yield subject, f"{parts[2]} {parts[4]} is in namespace {parts[3]}, which is gone"


def _long_ago(at: datetime | None, moment: Moment) -> bool:
    return at is not None and moment.now - at > LEFT_ALONE


def _needless_waiting(view: LogView, subject: str, data: Waiting) -> Wrong:
    pod = view.pods.get((data.namespace, data.name))
    if pod is None or pod.metadata.uid != data.uid:
        yield subject, f"{data.namespace}/{data.name} is reported as waiting and does not exist"
    elif view.places[data.uid]:
        yield subject, f"{data.namespace}/{data.name} is reported as waiting and is placed"


def _needless_report(moment: Moment, event: Event, data: RunStatus) -> Wrong:
    pod = moment.view.pods.get((data.namespace, data.name))
    gone = (pod is None or pod.metadata.uid != data.uid) and data.node not in moment.view.places[data.uid]
    if gone and _long_ago(event.time, moment):
        yield event.subject, f"{data.node} still reports {data.namespace}/{data.name} ({data.uid}), which is gone"


def _needless_answer(moment: Moment, event: Event, data: EvictionOutcome) -> Wrong:
    pod = moment.view.pods.get((data.namespace, data.name))
    gone = pod is None or pod.metadata.uid != data.uid
    if gone and event.time is not None and moment.now - event.time > KEPT + LEFT_ALONE:
        yield event.subject, (
            f"the answer to an eviction of {data.namespace}/{data.name} ({data.uid}) is still stored after the "
            "pod"
        )


def idle_phase_is_quiet(moment: Moment) -> Wrong:
    """In the last stretch of the idle phase only samples, load changes and ending jobs cause events."""
    since = moment.now - LAST_STRETCH
    counts: Counter[str] = Counter()
    for event in reversed(moment.view.log):
        if event.time is not None and event.time < since:
            break
        if not isinstance(event.data, Commit | ServiceStarted):
            counts[event.source] += 1
    limit = EVENTS_PER_NODE * max(len(moment.harness.nodes), 1) + 3 * len(moment.view.pods)
    for source, count in counts.most_common(1):
        if count > limit:
            yield source, f"{source} stored {count} events in the last {LAST_STRETCH} of the idle phase, more than {limit}"


def nobody_storms(view: LogView, event: Event) -> Wrong:
    """No source stores more events in one second than STORM and two for each pod."""
    second = int(view.now.timestamp()) if view.now is not None else 0
    if view.second != second:
        view.second = second
        view.of_second.clear()
    view.of_second[event.source] += 1
    most = STORM + 2 * len(view.pods)
    if view.of_second[event.source] > most:
        yield event.subject, f"{event.source} stored more than {most} events within one second"


def waiting_reasons_do_not_flap(view: LogView, event: Event) -> Wrong:
    """The reason why a pod waits is published at most once a second, however often it changes, except for its nomination
    and the room that is reserved for it."""
    data = event.data
    before = view.before(event)
    if not isinstance(data, Waiting) or event.tombstone or before is None or before.tombstone:
        return
    previous = before.data
    if not isinstance(previous, Waiting) or previous.uid != data.uid:
        return
    if (previous.nomination, previous.hold) != (data.nomination, data.hold):
        return
    after = event.time - before.time if event.time is not None and before.time is not None else TOLD_AGAIN
    if after < TOLD_AGAIN:
        yield event.subject, f"{event.ref} states why {data.namespace}/{data.name} waits only {after} after {before.ref}"

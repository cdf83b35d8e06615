"""Promises 8, 9, 12 and 13: borrowed CPU is given back at once and without flutter, everything comes to rest, nothing grows."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, Waiting
from cotenant.events.runs import RunStatus
from cotenant.log import KEEP_PER_SUBJECT, LOG
from cotenant.names import PODS
from cotenant_console.chaos.checking import Moment
from cotenant_console.chaos.invariants import Wrong
from cotenant_console.chaos.sight import TRACKED, Sight
from cotenant_console.chaos.weighing import weight

LAST_STRETCH = timedelta(minutes=2)
EVENTS_PER_NODE = 40
"""In the last stretch of the quiet: metrics, resources, quotas, reports of jobs that end."""
STORM = 1_500
QUEUE = 5_000
"""A reader that is further behind starts over."""
SLACK = 200
"""Entries that a live core may hold beyond a fresh one's and a quarter."""


def queues_stay_short(moment: Moment) -> Wrong:
    """No more than QUEUE messages wait for a service that is up and not cut off."""
    for name, service in moment.stage.services.items():
        link = moment.stage.world.link(name)
        if link is not None and link.severed(moment.now):
            continue
        waiting = moment.stage.world.waiting_for(name)
        if service.service.deciding and waiting > QUEUE:
            yield name, f"{waiting} messages wait for {name}"


def the_log_is_bounded(moment: Moment) -> Wrong:
    """No subject holds more versions than the stream keeps."""
    stream = moment.stage.world.streams.log
    counts: Counter[str] = Counter()
    for subject in stream.subjects():
        counts[subject] = stream.count_of(subject)
    for subject, count in counts.items():
        if count > KEEP_PER_SUBJECT:
            yield subject, f"{subject} holds {count} versions on {LOG}"


def cores_hold_what_is_alive(moment: Moment) -> Wrong:
    """A live core holds at most a quarter more, and SLACK, than a fresh one that loads the last message of each subject."""
    stream = moment.stage.world.streams.log
    for name, service in sorted(moment.stage.services.items()):
        process = service.service
        if not process.definition.recomputed or not process.deciding:
            continue
        fresh = process.definition.make_core(process.config)
        for sequence in stream.snapshot(process.definition.filters):
            event = stream.event(sequence)
            if event is not None:
                fresh.apply(event)
        fresh.decide(moment.now)
        live, needed = weight(process.cycle.core), weight(fresh)
        if live > needed * 5 // 4 + SLACK:
            yield name, f"{name} holds {live} entries; a fresh core of the same state needs {needed}"


def no_work_is_left(moment: Moment) -> Wrong:
    """When it is quiet, every placed pod has a report, and nobody is said to wait who does not exist or is placed."""
    sight = moment.sight
    for node, held in sorted(sight.placed.items()):
        if node not in moment.stage.nodes:
            continue
        for (namespace, name), event in sorted(held.items()):
            run = sight.last.get(f"node.{node}.run.{namespace}.{name}")
            data = event.data
            assert isinstance(data, Placement)
            if run is None or not isinstance(run.data, RunStatus) or run.data.uid != data.uid:
                yield event.subject, f"{namespace}/{name} is placed on {node} and its executor says nothing of it"
    for subject, event in sorted(sight.last.items()):
        if isinstance(event.data, Waiting):
            pod = sight.pods.get((event.data.namespace, event.data.name))
            if pod is None or pod.metadata.uid != event.data.uid:
                yield subject, f"{event.data.namespace}/{event.data.name} is said to wait and does not exist"
            elif sight.places[event.data.uid]:
                yield subject, f"{event.data.namespace}/{event.data.name} is said to wait and is placed"


def nobody_waits_who_fits(moment: Moment) -> Wrong:
    """When it is quiet, every pod without a place says why; one that waits for room alone would fit on no node."""
    sight = moment.sight
    for (namespace, name), pod in sorted(sight.pods.items()):
        if sight.places[pod.metadata.uid] or pod.metadata.deletion_timestamp is not None:
            continue
        if (uid := pod.metadata.uid) in {ended for _, ended in sight.ended_runs}:
            continue
        event = sight.last.get(f"waiting.{namespace}.{name}")
        subject = f"objects.core.pods.{namespace}.{name}"
        if event is None or not isinstance(event.data, Waiting):
            yield subject, f"{namespace}/{name} ({uid}) has no place and nobody says why"
            continue
        if {reason.code for reason in event.data.reasons} != {"insufficient"}:
            continue
        requests = moment.requests_of(namespace, name)
        for node in sorted(moment.stage.nodes):
            if _fits(moment, node, requests):
                yield subject, f"{namespace}/{name} waits for room, and node {node} has {requests}"


def _fits(moment: Moment, node: str, requests: dict[str, int]) -> bool:
    last = moment.sight.log[-1].sequence
    offered = moment.sight.offer(node, last, node)
    used: Counter[str] = Counter()
    for placement in moment.sight.held(node, last):
        used.update(placement.requests)
        used[PODS] += 1
    wanted = {**requests, PODS: 1}
    return all(used[name] + wanted[name] <= offered.get(name, 0) for name in TRACKED if name in wanted)


def it_is_quiet(moment: Moment) -> Wrong:
    """In the last stretch of the quiet no more is published than samples, loads and jobs that end give rise to."""
    since = moment.now - LAST_STRETCH
    counts: Counter[str] = Counter()
    for event in reversed(moment.sight.log):
        if event.time is not None and event.time < since:
            break
        if not isinstance(event.data, Commit | ServiceStarted):
            counts[event.source] += 1
    limit = EVENTS_PER_NODE * max(len(moment.stage.nodes), 1) + 3 * len(moment.sight.pods)
    for source, count in counts.most_common(1):
        if count > limit:
            yield source, f"{source} stored {count} events in the last {LAST_STRETCH} of the quiet, more than {limit}"


def nobody_storms(sight: Sight, event: Event) -> Wrong:
    """No source stores more than STORM events in one second."""
    second = int(sight.now.timestamp()) if sight.now is not None else 0
    if sight.second != second:
        sight.second = second
        sight.of_second.clear()
    sight.of_second[event.source] += 1
    if sight.of_second[event.source] > STORM:
        yield event.subject, f"{event.source} stored more than {STORM} events within one second"


def suppression_settles(moment: Moment) -> Wrong:
    """A node whose services use the same all the time turns its best-effort bound round at most FEW times in a stretch."""
    for name, changes in sorted(moment.suppressions.flutter(moment.now).items()):
        yield f"execution.{name}.suppress", f"node {name} turned its best-effort bound {changes} times under constant load"


def services_keep_their_latency(moment: Moment) -> Wrong:
    """Two control periods after a spike no service's p99 is longer than with the most that best-effort may use."""
    for name, text in moment.suppressions.slowed:
        yield f"execution.{name}.suppress", text


def kernels_refuse_nothing(moment: Moment) -> Wrong:
    """No kernel refuses a write: parents are widened before their children, and narrowed after them."""
    for name, text in moment.suppressions.refused:
        yield f"execution.{name}.refusals", text


def borrowed_cpu_is_given_back(moment: Moment) -> Wrong:
    """Two control periods after a spike of the services the best-effort bound of a node is what the threshold leaves."""
    for name, text in moment.suppressions.late():
        yield f"execution.{name}.suppress", text

"""Promises 6 and 7: evictions stay within their limits, and every move comes to an end."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, Migration
from cotenant_console.chaos.checking import Moment
from cotenant_console.chaos.invariants import Wrong
from cotenant_console.chaos.sight import CommitSeen, Sight

PER_NODE = 1
TOTAL = 2
"""Of one descheduling cycle, as the stage configures them."""
MIGRATING_PER_NODE = 2
"""MigrationController's default."""
PATIENCE = timedelta(minutes=10)
"""After a job's time to live: a service may be down, or cut off, for some minutes."""


def evictions_of_a_cycle_stay_in_limits(sight: Sight, seen: CommitSeen) -> Wrong:
    """LowNodeLoad creates at most PER_NODE moves of a node and TOTAL in all in one descheduling cycle (10 s)."""
    if seen.service != "descheduler-arbiter":
        return
    made = [e.data for e in seen.events if isinstance(e.data, Migration) and e.data.trigger == "LowNodeLoad"]
    fresh = [job for job in made if job.created_at == seen.commit.now]
    if not fresh:
        return
    slot = int(seen.commit.now.timestamp()) // 10
    per_node: Counter[str] = Counter()
    for event in sight.last.values():
        job = event.data
        if isinstance(job, Migration) and job.trigger == "LowNodeLoad" and job.created_at is not None:
            per_node[job.node] += int(job.created_at.timestamp()) // 10 == slot
    for node, count in sorted(per_node.items()):
        if count > PER_NODE:
            yield f"migrations.{fresh[0].job}", f"{count} pods of {node} are moved in one cycle, limit {PER_NODE}"
    if per_node.total() > TOTAL:
        yield f"migrations.{fresh[0].job}", f"{per_node.total()} pods are moved in one cycle, limit {TOTAL}"


def moves_of_a_node_stay_in_limits(sight: Sight, seen: CommitSeen) -> Wrong:
    """At most MIGRATING_PER_NODE pods of a node are on the move by arbitration at once; a lost node's, and those that make room
    for others, go as they must."""
    if seen.service != "descheduler-arbiter":
        return
    running: Counter[str] = Counter()
    for event in sight.last.values():
        job = event.data
        if isinstance(job, Migration) and job.phase == "Running" and job.trigger not in ("TaintEviction", "Preemption"):
            running[job.node] += 1
    for node, count in sorted(running.items()):
        if count > MIGRATING_PER_NODE:
            yield seen.record.subject, f"{count} pods of {node} are on the move at once, limit {MIGRATING_PER_NODE}"


def a_pod_is_evicted_once(sight: Sight, event: Event) -> Wrong:
    """The gateway evicts a pod (a uid) at most once; further requests are answered and change nothing."""
    data = event.data
    if isinstance(data, EvictionOutcome) and data.allowed and data.reason == "Evicted":
        sight.may_end.add(data.uid)
        sight.evicted[data.uid] += 1
        if sight.evicted[data.uid] > 1:
            yield event.subject, f"{data.namespace}/{data.name} ({data.uid}) is evicted {sight.evicted[data.uid]} times"


def a_move_is_begun_once(sight: Sight, event: Event) -> Wrong:
    """A job of a pod is not begun anew while it, or another job of that pod, is unfinished."""
    data = event.data
    if not isinstance(data, Migration) or event.tombstone or data.finished:
        return
    positions = sight.touched[event.subject]
    before = sight.log[positions[-2]] if len(positions) > 1 else None
    if before is not None and not before.tombstone and isinstance(before.data, Migration):
        if before.data.uid == data.uid and not before.data.finished and before.data.created_at != data.created_at:
            yield event.subject, f"{event.ref} begins {data.job} anew, which {before.ref} left {before.data.phase}"
        return
    for subject, other in sorted(sight.last.items()):
        job = other.data
        if subject != event.subject and isinstance(job, Migration) and job.uid == data.uid and not job.finished:
            yield event.subject, f"{event.ref} begins {data.job} while {job.job} of the same pod is {job.phase}"


def moves_with_a_time_to_live_end(moment: Moment) -> Wrong:
    """A job with a time to live is finished when that, and PATIENCE, have passed. While its user has it paused, nothing
    follows, as in Koordinator.
    """
    for subject, event in sorted(moment.sight.last.items()):
        job = event.data
        if not isinstance(job, Migration) or job.finished or job.paused or not job.ttl_seconds or job.created_at is None:
            continue
        if moment.now > job.created_at + timedelta(seconds=job.ttl_seconds) + PATIENCE:
            yield subject, f"job {job.job} of {job.created_at} is {job.phase} after its {job.ttl_seconds} s"


def every_move_has_ended(moment: Moment) -> Wrong:
    """When it is quiet, no job of a pod that is gone, or of a lost node's pod, is unfinished, but for paused ones."""
    for subject, event in sorted(moment.sight.last.items()):
        job = event.data
        if not isinstance(job, Migration) or job.finished or job.paused:
            continue
        pod = moment.sight.pods.get((job.namespace, job.pod))
        if pod is None or pod.metadata.uid != job.uid:
            yield subject, f"job {job.job} is {job.phase}, its pod {job.namespace}/{job.pod} is gone"

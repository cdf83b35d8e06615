"""Promise 20: lost nodes lose their pods at the rate of their zone, taints evict exactly the pods that do not tolerate them.

The rules are worked out here from the log alone: zones, states and rates with Kubernetes' defaults, tolerations by the first
that matches. What the arbiter wrote itself counts as of its previous commit, everything else as of what it had folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from cotenant.api.objects.node import Node, decode_node
from cotenant.api.objects.pod import Pod, Toleration
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, Migration
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import condition_subject, executor_subject, metrics_subject, migration_subject, node_subject
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen

ARBITER = "descheduler-arbiter"
UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"
NORMAL_RATE, LARGE_ZONE, SLOW_RATE, UNHEALTHY = 0.1, 50, 0.01, 0.55
DEFAULT_SECONDS = 300
READY_FOR = timedelta(seconds=75)
"""Deliveries to a reader may be lost for a minute, in which it still requests an eviction; plus some seconds."""
LEFT_FOR = timedelta(minutes=2)


def lost_nodes_are_tainted_by_rate(view: LogView, seen: CommitSeen) -> Wrong:
    """In a zone no node gets the NoExecute taint earlier after another than the zone's rate allows, by the state of the zone in
    the state decided on; none does where the rate is 0.
    """
    if seen.service != ARBITER:
        return
    counted: tuple[Counter[str], Counter[str]] | None = None
    for event in seen.events:
        condition = event.data
        if not isinstance(condition, NodeCondition) or event.tombstone or not _evicts(condition):
            continue
        before = _own(view, condition_subject(condition.node), seen)
        if isinstance(before, NodeCondition) and _evicts(before):
            continue
        counted = counted or _count(view, seen)
        zone = _zone(view, condition.node, seen)
        rate = _rate(zone, *counted)
        last, now = view.tainted.get(zone), seen.commit.now
        view.tainted[zone] = now
        if rate == 0:
            total, lost = counted
            yield event.subject, (
                f"{condition.node} is tainted at rate 0: {lost[zone]} of {total[zone]} nodes of zone {zone!r} are "
                "lost"
            )
        elif last is not None and now - last < timedelta(seconds=1 / rate):
            yield event.subject, f"{condition.node} is tainted {now - last} after another node of zone {zone!r}, rate {rate}/s"


def _evicts(condition: NodeCondition) -> bool:
    return condition.status != "True" and any(effect == "NoExecute" for _, _, effect in condition.taints)


def _own(view: LogView, subject: str, seen: CommitSeen) -> object:
    """The arbiter's last message on a subject before this commit."""
    found = view.version_at(subject, seen.record.sequence - 1)
    return found.data if found is not None else None


def _count(view: LogView, seen: CommitSeen) -> tuple[Counter[str], Counter[str]]:
    """The measured nodes and the lost ones by zone, in the state decided on."""
    total: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for node in sorted(view.measured):
        metric = view.version_at(metrics_subject(node), seen.commit.folded)
        exists = _node(view, node, seen) is not None or _executor(view, node, seen) is not None
        if metric is None or not isinstance(metric.data, NodeMetricComputed) or not exists:
            continue
        zone = _zone(view, node, seen)
        total[zone] += 1
        condition = _own(view, condition_subject(node), seen)
        lost[zone] += isinstance(condition, NodeCondition) and condition.status != "True"
    return total, lost


def _rate(zone: str, total: Counter[str], lost: Counter[str]) -> float:
    if lost.total() == total.total():
        return 0
    partial = total[zone] > lost[zone] > 2 and lost[zone] >= UNHEALTHY * total[zone]
    if not partial:
        return NORMAL_RATE
    return SLOW_RATE if total[zone] > LARGE_ZONE else 0


def _node(view: LogView, node: str, seen: CommitSeen) -> Node | None:
    found = view.version_at(node_subject(node), seen.commit.folded)
    return decode_node(found.data.object) if found is not None and isinstance(found.data, ObjectStored) else None


def _executor(view: LogView, node: str, seen: CommitSeen) -> ExecutorStatus | None:
    found = view.version_at(executor_subject(node), seen.commit.folded)
    return found.data if found is not None and isinstance(found.data, ExecutorStatus) else None


def _zone(view: LogView, node: str, seen: CommitSeen) -> str:
    declared, executor = _node(view, node, seen), _executor(view, node, seen)
    if declared is None:
        return ""
    labels = {**(executor.labels if executor is not None else {}), **declared.metadata.labels}
    return "|".join(labels.get(f"topology.kubernetes.io/{part}", "") for part in ("region", "zone"))


def taints_evict_whom_they_should(view: LogView, seen: CommitSeen) -> Wrong:
    """An eviction by taint is begun, and ordered, only for a pod on a node with a NoExecute taint that it does not tolerate any
    longer, in the state decided on.
    """
    if seen.service != ARBITER:
        return
    for event in seen.events:
        job = event.data
        if not isinstance(job, Migration) or event.tombstone or job.trigger != "TaintEviction":
            continue
        if seen.commit.now not in (job.created_at, job.ordered_at):
            continue
        pod = view.pods.get((job.namespace, job.pod))
        if pod is None or pod.metadata.uid != job.uid:
            continue
        over = min(_ends(view, view.pod(job.namespace, job.pod), job, seen), default=None)
        if over is None or over > seen.commit.now:
            what = "requested" if job.created_at == seen.commit.now else "ordered"
            yield event.subject, (
                f"the eviction of {job.namespace}/{job.pod} is {what}, whose tolerations on {job.node} end at "
                f"{over}"
            )


def _ends(view: LogView, pod: Pod, job: Migration, seen: CommitSeen) -> Iterator[datetime]:
    """When the pod's tolerations of its node's taints end."""
    condition = _own(view, condition_subject(job.node), seen)
    if not isinstance(condition, NodeCondition):
        return
    placed = view.placed[job.node].get((job.namespace, job.pod))
    bound = placed.data.bound_at if placed is not None and isinstance(placed.data, Placement) else None
    taints = [(taint.key, taint.value, taint.since) for taint in condition.no_execute if _set(view, job.node, taint.key, seen)]
    if _evicts(condition) and condition.tainted_at is not None:
        taints += [(key, "", condition.tainted_at) for key, _, effect in condition.taints if effect == "NoExecute"]
    for key, value, since in taints:
        seconds = _seconds(pod, key, value)
        if seconds is not None:
            yield max(since, bound or since) + timedelta(seconds=seconds)


def _set(view: LogView, node: str, key: str, seen: CommitSeen) -> bool:
    declared, executor = _node(view, node, seen), _executor(view, node, seen)
    of_object = [taint.key for taint in declared.spec.taints if taint.effect == "NoExecute"] if declared is not None else []
    reported = executor.taints if executor is not None else ()
    return key in of_object or key in [name for name, _, effect in reported if effect == "NoExecute"]


def _seconds(pod: Pod, key: str, value: str) -> int | None:
    """How long the pod tolerates a NoExecute taint; None: forever."""
    for toleration in pod.spec.tolerations:
        if _matches(toleration, key, value):
            return None if toleration.toleration_seconds is None else max(0, toleration.toleration_seconds)
    return DEFAULT_SECONDS if key in (UNREACHABLE, NOT_READY) else 0


def _matches(toleration: Toleration, key: str, value: str) -> bool:
    if toleration.effect not in ("", "NoExecute") or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (bool(toleration.key) and toleration.value == value)


def ready_nodes_keep_their_pods(view: LogView, event: Event) -> Wrong:
    """No pod of a node that was lost is evicted for that when the node has been ready again for READY_FOR."""
    data = event.data
    if event.tombstone or not isinstance(data, EvictionOutcome) or data.reason != "Evicted" or not data.job:
        return
    if event.time is None:
        return
    job = view.moves.get(migration_subject(data.job))
    if job is None or job.taint not in (UNREACHABLE, NOT_READY):
        return
    stands = view.last.get(condition_subject(job.node))
    condition = stands.data if stands is not None else None
    if not isinstance(condition, NodeCondition) or condition.status != "True" or condition.since is None:
        return
    if event.time - condition.since > READY_FOR:
        text = (
            f"{data.namespace}/{data.name} is evicted from the lost node {job.node}, which has been ready since "
            f"{condition.since}"
        )
        yield event.subject, text


def tainted_nodes_are_left(moment: Moment) -> Wrong:
    """In the idle phase no pod is left for long on a ready node with a NoExecute taint of a user that it does not tolerate."""
    view = moment.view
    for node, held in sorted(view.placed.items()):
        stored = view.last.get(node_subject(node))
        if node not in moment.harness.nodes or stored is None or not isinstance(stored.data, ObjectStored):
            continue
        taints = [taint for taint in decode_node(stored.data.object).spec.taints if taint.effect == "NoExecute"]
        for (namespace, name), event in sorted(held.items()) if taints else ():
            placed, pod = event.data, view.pods.get((namespace, name))
            assert isinstance(placed, Placement)
            late = placed.bound_at is not None and moment.now - placed.bound_at > LEFT_FOR
            if pod is None or pod.metadata.uid != placed.uid or placed.phase is not PlacementPhase.BOUND or not late:
                continue
            document = view.pod(namespace, name)
            refused = [taint.key for taint in taints if _seconds(document, taint.key, taint.value) == 0]
            if refused and (node, placed.uid) not in view.ended_runs:
                yield event.subject, f"{namespace}/{name} is on {node} and does not tolerate {', '.join(refused)}"

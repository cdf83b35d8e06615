"""The defects, by service. Each docstring or comment says what a person could have got wrong."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np

import cotenant_batch_resource_calculator.formulas.evaluation as batch_evaluation
import cotenant_batch_resource_calculator.situations as batch_situations
import cotenant_descheduler_arbiter.migration.budgets as budgets
import cotenant_descheduler_arbiter.migration.reconcile as reconciling
import cotenant_descheduler_arbiter.node_lifecycle.lifecycle as node_lifecycle
import cotenant_descheduler_arbiter.node_lifecycle.taint_eviction as taint_eviction
import cotenant_descheduler_arbiter.node_lifecycle.zones as zones
import cotenant_gateway.admission.profiles.applying as profiles
import cotenant_gateway.loop.duties as gateway_duties
import cotenant_gateway.loop.requests as gateway_requests
import cotenant_node_executor.core.pod_lifecycle as pod_life
import cotenant_node_executor.core.resizing.resizes as resizing
import cotenant_node_executor.simulated.files as simulated_files
import cotenant_node_executor.simulated.sampler as sampler
import cotenant_node_executor.strategies.cpu.suppression.strategy as suppression
import cotenant_node_executor.strategies.pods.batch_pods as batch_pods
import cotenant_quota_tree.core as quota_core
import cotenant_quota_tree.profiles as quota_profiles
import cotenant_quota_tree.revocation as revocation
import cotenant_scheduler.cycle.endings.resizes as scheduler_resizes
import cotenant_scheduler.cycle.waiting as waiting
import cotenant_scheduler.plugins.quota as quota_plugin
import cotenant_scheduler.plugins.taints as taints
import cotenant_scheduler.state.gangs as scheduler_gangs
import cotenant_scheduler.state.reading.pod_reader as pod_reader
import cotenant_scheduler.state.reading.pod_traits as pod_traits
import cotenant_verification.harness.gateways as chaos_gateways
import cotenant_verification.harness.harness as harness
from cotenant.domain.quota.trees.line import Line
from cotenant.engine.commit import Batch
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.migrations import Migration
from cotenant.events.resizes import ResizeState
from cotenant.log.contract import Write
from cotenant.simulation import START
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_metrics_ingest.node_state import NodeMetricState
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.evictions import Evictions
from cotenant_node_executor.core.resizing.resizes import Resizes
from cotenant_node_executor.runtime.restart import ALWAYS
from cotenant_node_executor.targets.cgroup.levels import WritePhase, WriteStep
from cotenant_node_executor.targets.convert import UNLIMITED
from cotenant_quota_tree.core import QuotaTreeCore
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.cycle.endings.endings import Endings
from cotenant_scheduler.cycle.groups.placing_groups import PlacingGroups
from cotenant_scheduler.cycle.ordering.queue_head import QueueHead
from cotenant_scheduler.cycle.placing import Placing
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.plugin import row_count
from cotenant_scheduler.plugins.host_ports import NodePorts
from cotenant_scheduler.plugins.node_affinity import NodeAffinityMatch
from cotenant_scheduler.plugins.pod_affinity import InterPodAffinity
from cotenant_scheduler.plugins.quota import AdmittedRun, QuotaAdmission
from cotenant_scheduler.plugins.topology_spread import PodTopologySpread
from cotenant_scheduler.state.gangs import GangCache, GangGroup
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.quotas.quota_demands import QuotaDemands
from cotenant_scheduler.state.reading.relations import SelectorIndex
from cotenant_scheduler.state.relation_counts import RelationCounts
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.rules import OwnerIndex
from cotenant_verification.workload.schedule import ScheduleEntry
from cotenant_yarn_copilot.core import YarnCopilot
from tests.simulation.mutants.patches import Mutant, Replacement

Function = Callable[..., Any]


def unfenced(_: Function) -> Function:
    """Whoever commits does not say what it expects: a second replica is not refused."""
    return lambda self: [Write(event=event) for event in self.events]


def always_new(_: Function) -> Function:
    """An overtaken message counts as news."""
    return lambda self, event: True


def charged_again(right: Function) -> Function:
    """A placement that is stored again is charged to its quota again."""

    def wrong(self: PodCache, key: Any, data: Any, *others: Any, **more: Any) -> Any:
        before = self.records[key].placements.get(data.node) if key in self.records else None
        charge = before.charge if before is not None else None
        placed = right(self, key, data, *others, **more)
        if charge is not None and charge.membership is not None and placed.charge == charge:
            self.charged.charge(charge, key)
        return placed

    return wrong


def no_limit(_: Function) -> Function:
    """Every pod fits its quota."""
    return lambda self, shape, membership, preemptible, reserves=False: None


def any_pod(_: Function) -> Function:
    """The next pod of a run is admitted."""
    return lambda self, charge: True


def all_pods(_: Function) -> Function:
    """A quota admits as many pods of a run as there are."""
    return lambda self, charge, most: most


def never_ends(right: Function) -> Function:
    """A placement of a deleted pod is kept."""

    def wrong(self: Endings, now: datetime, limit: int) -> list[Event]:
        return [event for event in right(self, now, limit) if getattr(event.data, "reason", "") != "the pod was deleted"]

    return wrong


def rounded_up(right: Function) -> Function:
    """A share is rounded up to whole thousands."""
    return lambda self, index, total: -(-right(self, index, total) // 1000) * 1000


def all_rounded_up(right: Function) -> Function:
    """All shares are."""
    return lambda self, total: [-(-amount // 1000) * 1000 for amount in right(self, total)]


def weights_ignored(right: Function) -> Function:
    """What is left is shared equally."""
    return lambda self, weights, floors, lends: right(self, [min(weight, 1) for weight in weights], floors, lends)


def placed_ones_alone(right: Function) -> Function:
    """A pod requests of its quota once it is placed."""

    def wrong(self: QuotaDemands, record: PodRecord) -> Any:
        kind, held = right(self, record)
        return (kind, held) if held else (None, False)

    return wrong


def counted_as_published(right: Function) -> Function:
    """What was decided once counts as published, although its batch may never be stored."""

    def wrong(self: QuotaTreeCore, now: datetime) -> Any:
        counted = self.__dict__.setdefault("_counted_as_published", {})
        decided = [event for event in right(self, now) if counted.get(event.subject) != event.data]
        counted.update({event.subject: event.data for event in decided})
        return decided

    return wrong


def without_causes(right: Function) -> Function:
    """A decision does not say what it rests on."""
    return lambda self, now: [msgspec.structs.replace(event, causes=()) for event in right(self, now)]


def said_again(_: Function) -> Function:
    """What is on the log already is published with every decision."""
    return lambda quota, published, settle: START


def services_forgotten(right: Function) -> Function:
    """The formula leaves out the services that have a metric."""

    def wrong(pods: Any, metrics: Any) -> Any:
        return right([pod for pod in pods if pod.key not in metrics], {})

    return wrong


def hidden_counter(right: Function) -> Function:
    """What is decided depends on how often that was asked for, which no event says."""

    def wrong(self: Any, now: datetime) -> Any:
        count = self.__dict__["_asked"] = self.__dict__.get("_asked", 0) + 1
        return [
            msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, message=f"decision {count}"))
            if hasattr(event.data, "batch_cpu_milli")
            else event
            for event in right(self, now)
        ]

    return wrong


def node_clock(right: Function) -> Function:
    """When a node was heard is read from its own clock."""

    def wrong(self: NodeMetricState, event: Event, log_time: datetime | None) -> None:
        right(self, event, event.time)

    return wrong


def jobs_forgotten(right: Function) -> Function:
    """Moves in progress are not read: the arbiter does not know what it has stored."""

    def wrong(self: ClusterFold, event: Event) -> None:
        if not isinstance(event.data, Migration):
            right(self, event)

    return wrong


def never_full(_: Function) -> Function:
    """The limits of a cycle are not looked at."""
    return lambda self, place: False


def everything_kept(right: Function) -> Function:
    """A core keeps every event it ever saw."""

    def wrong(self: ClusterFold, event: Event) -> None:
        self.__dict__.setdefault("_kept", []).append([event] * 10)
        right(self, event)

    return wrong


def unconditional(right: Function) -> Function:
    """The gateway does not say which version it rests on, nor look at the version that the user states."""

    def wrong(self: Any, plan: Any, now: datetime, world: Any) -> Any:
        writes = tuple(msgspec.structs.replace(write, expected=None) for write in plan.writes)
        return right(self, msgspec.structs.replace(plan, writes=writes), now, world)

    return wrong


def evicted_again(right: Function) -> Function:
    """An eviction is granted whether or not the pod is ending already."""

    def wrong(core: Any, request: Any, now: datetime) -> Any:
        planned = right(core, request, now)
        if planned.outcome.reason != "Terminating" or planned.plan is None:
            return planned
        again = msgspec.structs.replace(planned.outcome, reason="Evicted")
        writes = tuple(msgspec.structs.replace(write, payload=again) for write in planned.plan.writes)
        return msgspec.structs.replace(planned, plan=msgspec.structs.replace(planned.plan, writes=writes), outcome=again)

    return wrong


def services_ignored(_: Function) -> Function:
    """Suppression leaves batch work the whole threshold, whatever the services use."""
    return lambda capacity, percent, split, least=None: capacity * percent // 100


def flapping(right: Function) -> Function:
    """Every period the wanted bound is half of what it was, or twice."""
    turns = {"count": 0}

    def wrong(*args: Any, **kwargs: Any) -> int:
        turns["count"] += 1
        wanted = int(right(*args, **kwargs))
        return wanted // 3 if turns["count"] % 2 else wanted

    return wrong


def children_first(right: Function) -> Function:
    """Files are written from the leaves up in the phases that go the other way: a child is widened before its parent."""

    def place(step: WriteStep) -> tuple[int, int]:
        return step.phase, 0 if step.phase is WritePhase.NARROW else -step.group.count("/")

    return lambda changes: sorted(right(changes), key=place)


def refused_and_kept(_: Function) -> Function:
    """What was assumed stays in the core although its batch was refused."""
    return lambda self: self.confirm(1)


def leaf_only(right: Function) -> Function:
    """Only the pod's own quota is looked at, not those above it."""
    return lambda request, chain, check_ancestors, **options: right(request, chain, **options)


def no_refusal(_: Function) -> Function:
    """A budget of migrating pods is not looked at."""
    return lambda *args, **kwargs: None


def evicted_at_once(_: Function) -> Function:
    """A job that should reserve first evicts its pod at once."""
    return reconciling.evict


def one_at_a_time(_: Function) -> Mapping[str, str]:
    """Not a defect: a configuration that lets one pod of a namespace go at a time."""
    args = {"maxMigratingPerNamespace": 1, "maxMigratingPerNode": None}
    document = {"profiles": [{"pluginConfig": [{"name": "MigrationController", "args": args}]}]}
    return {"descheduler-arbiter": json.dumps(document)}


def one_a_cycle(_: Function) -> Mapping[str, str]:
    """Not a defect: a configuration that lets one pod of a namespace go in a cycle."""
    return {"descheduler-arbiter": json.dumps({"maxNoOfPodsToEvictPerNamespace": 1})}


def one_eviction_a_minute(_: Function) -> Mapping[str, str]:
    """Not a defect: a configuration in which evictions wait for their turn."""
    args = {"evictQPS": "0.02"}
    document = {"profiles": [{"pluginConfig": [{"name": "MigrationController", "args": args}]}]}
    return {"descheduler-arbiter": json.dumps(document)}


def nothing_revoked(_: Function) -> Mapping[str, str]:
    """Not a defect: a configuration in which quotas keep what they use beyond their runtime."""
    return {"descheduler-arbiter": harness.LIMITS}


def no_rate(_: Function) -> Function:
    """However many nodes of a zone are lost, each of them gets the taint that evicts."""
    return lambda state, nodes, rates: 1000.0


def never_called_off(_: Function) -> Function:
    """An eviction that was begun goes on though its cause is gone."""
    return lambda *_: iter(())


def only_lost_nodes(_: Function) -> Function:
    """NoExecute taints of users evict nobody."""
    return lambda fold, node: ()


def yarn_forgotten(right: Function) -> Function:
    """What YARN uses is not taken off what is overcommitted."""
    return lambda foreign, **known: right(foreign=Amounts(), **known)


def requests_lent(right: Function) -> Function:
    """Mid lends everything that is unused, whatever services may still need of their requests."""

    def wrong(*, capacity: Amounts, prod_reclaimable: Amounts, **known: Any) -> Any:
        return right(capacity=capacity, prod_reclaimable=capacity, **known)

    return wrong


def remembered_room(right: Function) -> Function:
    """The room of a pod that has ended is not given back in the table of nodes."""

    def wrong(self: NodeTable, name: str, key: Any) -> None:
        row = self.rows[name]
        shape = self.pods[row][key].shape
        right(self, name, key)
        if name in self.rows and shape.requests:
            self.requested[self.dims["cpu"], row] += shape.requests.get("cpu", 0)

    return wrong


def waits_for_ever(right: Function) -> Function:
    """A pod that waits is looked at once, and not again when its quota has room."""
    known: dict[int, Any] = {}

    def wrong(self: QuotaAdmission, shape: Any, membership: Any, preemptible: bool, *, reserves: bool = False) -> Any:
        refusal = right(self, shape, membership, preemptible, reserves=reserves)
        if refusal is not None:
            known[id(shape)] = refusal
        return known.get(id(shape))

    return wrong


def suppressed_late(right: Function) -> Function:
    """The bound is that of some samples ago."""
    wanted: deque[int] = deque(maxlen=8)

    def wrong(*args: Any, **kwargs: Any) -> int:
        wanted.append(int(right(*args, **kwargs)))
        return max(wanted)

    return wrong


def said_when_asked(right: Function) -> Function:
    """A waiting event is stored with every decision."""

    def wrong(self: WaitingPods, record: Any, template: Any, nomination: Any, now: datetime) -> datetime | None:
        return now

    return wrong


def means_everybody(_: Function) -> Function:
    """A reservation is for every pod."""
    return lambda self, record, facts: tuple(sorted(self._rules))


def never_used_up(_: Function) -> Function:
    """A reservation that is allocated once stays."""
    return lambda self, choice, record, shape, now: ()


def any_number_of_members(right: Function) -> Function:
    """The minimum of a PodGroup is not read."""
    return lambda gang, least, *others, **more: right(gang, min(least, 1), *others, **more)


def every_node(_: Function) -> Function:
    """A quota profile has all nodes, whatever its selector says."""
    return lambda selector, labels: True


def whoever_fits(_: Function) -> Function:
    """The members of a gang that fit are placed, however few they are."""
    return lambda self, placed, members: bool(placed)


def one_by_one(_: Function) -> Function:
    """A member of a gang is placed alone."""
    return lambda self, key, facts=None: None


def given_up(right: Function) -> Function:
    """A gang whose first pod has waited for ten seconds is not tried any more."""

    def wrong(self: Any, walk: Any, entry: Any, group: Any, now: datetime, bound: Any) -> None:
        most, born = self._most, entry.records[0].object_at
        if born is not None and now - born > timedelta(seconds=10):
            self._most = 0
        try:
            right(self, walk, entry, group, now, bound)
        finally:
            self._most = most

    return wrong


def all_preemptible(_: Function) -> Function:
    """The labels that protect a pod are not read."""
    return lambda labels: True


def taken_from_all(right: Function) -> Function:
    """A quota's pods are revoked whatever their labels say."""

    def wrong(runtime: Any, used: Any, pods: Any) -> Any:
        return right(runtime, used, [msgspec.structs.replace(pod, preemptible=True) for pod in pods])

    return wrong


def no_rooms(_: Function) -> Function:
    """What the queue's head is kept counts for nobody."""
    return lambda self, record, hold, shape: None


def backed_off(right: Function) -> Function:
    """A pod is tried only ten seconds after it was stored."""

    def wrong(self: Placing, walk: Any) -> Any:
        top = right(self, walk)
        while top is not None and _is_new(top[0].records[0].object_at, self._waiting.now):
            walk.close(by_nodes=True)
            top = right(self, walk)
        return top

    return wrong


def _is_new(stored: datetime | None, now: datetime | None) -> bool:
    return stored is not None and now is not None and now - stored < timedelta(seconds=10)


def room_for_every_resize(right: Function) -> Function:
    """A node defers no resize: it looks at its own size, not at its other pods."""

    def wrong(self: Resizes, *others: Any) -> Any:
        refused = right(self, *others)
        return None if refused is not None and refused[0] is ResizeState.DEFERRED else refused

    return wrong


def counted_as_asked(right: Function) -> Function:
    """The scheduler counts a pod that shrinks with less before its node has done it."""

    def wrong(before: Any, had: Any, asked: Any, *others: Any) -> Any:
        found = right(before, had, asked, *others)
        return None if found is None else msgspec.structs.replace(found, counted=asked)

    return wrong


def lowered_below_use(_: Function) -> Function:
    """A node writes a memory limit however much the container uses."""
    return lambda wanted, applied, used: (wanted, "")


def never_over(_: Function) -> Function:
    """The time of no reservation is over."""
    return lambda self, now: []


def no_pause(_: object) -> timedelta:
    """A pod is told of each change of its reasons at once."""
    return timedelta(0)


def never_set(_: Function) -> Function:
    """NodeManagers keep the totals that they announce."""
    return lambda self, matches: []


def unconcerned(_: Function) -> Function:
    """A filter is not asked."""
    return lambda self, shape: False


def all_tolerated(_: Function) -> Function:
    """Every pod tolerates every taint."""
    return lambda taints, tolerations: None


def any_node(_: Function) -> Function:
    """Every node has the labels that a pod wants."""
    return lambda self, nodes, shape, rows: np.zeros(row_count(rows), dtype=np.int32)


def gates_ignored(_: Function) -> Function:
    """A gated pod is given a node as any other."""

    def wrong(self: Endings, record: Any) -> bool:
        facts = record.facts
        return facts is not None and not (record.placements or facts.deleting or facts.node_name or record.finished)

    return wrong


def labels_at_birth(right: Function) -> Function:
    """A namespace keeps the labels that it was first seen with."""

    def wrong(self: SelectorIndex, namespace: str, labels: Mapping[str, str]) -> bool:
        known = self.__dict__.setdefault("seen_before", set())
        if namespace in known:
            return False
        if labels:
            known.add(namespace)
        return bool(right(self, namespace, labels))

    return wrong


def never_given_back(right: Function) -> Function:
    """Pods that have left still keep others away, and draw them."""

    def wrong(self: RelationCounts, row: int, shape: Any, sign: int) -> None:
        if sign > 0 or not shape.relations.anti_affinity:
            right(self, row, shape, sign)

    return wrong


def no_profiles(_: Function) -> Function:
    """Admission does not look at profiles."""
    return lambda review, drawn: (None, ())


def first_version(right: Function) -> Function:
    """A gateway goes on with the profiles that it first saw."""
    known: list[Any] = []

    def wrong(objects: Any) -> Any:
        found = right(objects)
        if found.profiles:
            known.append(found)
        return known[0] if known else found

    return wrong


def ended_late(right: Function) -> Function:
    """Objects end at a round a quarter of an hour apart."""
    return lambda core, now: right(core, now) if now.minute % 16 == 14 else ()


def no_policy(_: Function) -> str:
    """What `preemptionPolicy: Never` is taken for."""
    return "no such policy"


def no_memory_limits(right: Function) -> Function:
    """What a batch pod may hold is not limited."""

    def wrong(*args: Any, **kwargs: Any) -> Any:
        values = right(*args, **kwargs)
        return values if values is None else msgspec.structs.replace(values, memory_limit_bytes=UNLIMITED)

    return wrong


def no_score(_: Function) -> Function:
    """The kernel is not told whom to end first, so it ends whoever holds most."""
    return lambda pod, request_bytes, machine_bytes: 0


def no_backoff(_: Function) -> Function:
    """A container starts again at once, however often it has ended."""
    return lambda attempt, previous_seconds, ran_seconds: 0


def first_run_only(right: Function) -> Function:
    """A report does not say how often a container was restarted."""
    return lambda **known: right(**{**known, "restarts": 0})


def failures_are_final(_: Function) -> Function:
    """A container that failed is not started again, whatever the policy says."""
    return lambda policy, exit_code: policy == ALWAYS and exit_code == 0


def same_attempt(right: Function) -> Function:
    """A restart has the number of the run before, which is known already: nothing is started."""
    return lambda pod, container, attempt, *wait: right(pod, container, max(attempt - 1, 0), *wait)


def same_life(right: Function) -> Function:
    """A new life of an executor has the name of the one before, and gives its messages the same ids."""

    def wrong(self: ExecutorCore) -> ExecutorCore:
        core: ExecutorCore = right(self)
        core.boot = self.boot
        return core

    return wrong


def spread_without(**less: Any) -> Callable[[Function], Function]:
    """A spread constraint is taken for one that does not say something."""

    def changed(right: Function) -> Function:
        def wrong(self: SelectorIndex, pod: Any) -> Any:
            constraints = [msgspec.structs.replace(each, **less) for each in pod.spec.topology_spread_constraints]
            spec = msgspec.structs.replace(pod.spec, topology_spread_constraints=constraints)
            return right(self, msgspec.structs.replace(pod, spec=spec))

        return wrong

    return changed


def not_looked_for(right: Function) -> Function:
    """What comes to be in a namespace after its end is not looked for."""

    def wrong(self: GatewayCore, event: Event) -> None:
        right(self, event)
        self.orphaned.clear()

    return wrong


Args = dict[str, int | str]
"""What an entry of a schedule says beside its target."""

SMALL: Args = {"class": "ls", "cpu": 50, "memory_mib": 64}


def evicts_at_once(_: Function) -> Function:
    """No eviction waits for its turn."""
    return lambda self, strategy, before, now: ""


def arriving(app: str, count: int, **more: Any) -> tuple[ScheduleEntry, ...]:
    """Small services of one app that come one after the other."""
    return tuple(
        ScheduleEntry(
            at_ms=15_000 + 100 * index,
            kind="create-pod",
            target=f"{app}-{index}",
            args=SMALL | {"app": app} | more,
        )
        for index in range(count)
    )


STALE = tuple(
    ScheduleEntry(at_ms=at, kind="delay", target="scheduler/b", fault=True, args={"by_ms": 8_000, "for_ms": 30_000})
    for at in range(10_000, 240_000, 40_000)
)
"""One replica of the scheduler decides on what was true eight seconds ago."""
PAUSED = tuple(
    ScheduleEntry(at_ms=at, kind="pause", target="scheduler/b", fault=True, args={"for_ms": 15_000})
    for at in range(10_000, 110_000, 20_000)
)
"""One replica of the scheduler stores what it decided fifteen seconds ago, when the other one has taken over."""
HOT = tuple(
    ScheduleEntry(
        at_ms=20_000 + 10 * app + index,
        kind="create-pod",
        target=f"hot-{app}-{index}",
        args={
            "class": "ls",
            "app": f"hot-{app}",
            "cpu": 100,
            "memory_mib": 64,
            "use_low": 900,
            "use_high": 901,
            "period": 60,
            "named": "n0",
        },
    )
    for app in range(3)
    for index in range(4)
)
"""Services that use far more than they ask for, all on one node: pods of it are moved as fast as the limits allow."""
BUSY: dict[str, int | str] = {
    "class": "ls", "app": "busy", "cpu": 100, "memory_mib": 64, "use_low": 900, "use_high": 901, "period": 60, "named": "n0"
}
WANTING: dict[str, int | str] = {
    "class": "batch", "cpu": 1000, "memory_mib": 64, "use_low": 990, "use_high": 1000, "period": 60, "lasts": 600, "named": "n0"
}
STARVED = (
    ScheduleEntry(at_ms=5_000, kind="config", args={"reclaim": 65, "threshold": 65, "policy": "cfsQuota", "satisfied": 60}),
    *(ScheduleEntry(at_ms=12_000 + 10 * index, kind="create-pod", target=f"busy-{index}", args=BUSY) for index in range(8)),
    *(
        ScheduleEntry(at_ms=15_000 + 1_500 * index, kind="create-pod", target=f"starved-{index}", args=WANTING)
        for index in range(60)
    ),
)
"""Batch pods that come one after the other to a node whose services leave them nothing: there is always one to evict."""
MOVES = tuple(
    ScheduleEntry(
        at_ms=70_000 + index, kind="create-move", target=f"extra-{app}-{index}", args={"pod": f"service-{app}-{index}"}
    )
    for app in (0, 1)
    for index in range(4)
)
"""Users want many pods moved at once."""

RESERVED = tuple(
    ScheduleEntry(
        at_ms=70_000 + 5_000 * index,
        kind="create-move",
        target=f"place-{app}-{index}",
        args={"pod": f"service-{app}-{index}", "mode": "ReservationFirst", "ttl": 120},
    )
    for app in (0, 1, 2)
    for index in range(4)
)
"""Users want pods moved to places that are held before."""

FORSAKEN = (
    ScheduleEntry(at_ms=29_000, kind="gap", target="gateway-b", fault=True, args={"for_ms": 8_000}),
    ScheduleEntry(at_ms=30_000, kind="end-namespace", target="team-a"),
    *(
        ScheduleEntry(
            at_ms=30_100 + 300 * index,
            kind="create-pod",
            target=f"team-a/late-{index}",
            args={"class": "ls", "app": "late", "cpu": 50, "memory_mib": 64},
        )
        for index in range(20)
    ),
)
"""A namespace ends while one gateway hears nothing: who asks that one still gets pods there."""

HUNGRY = tuple(
    ScheduleEntry(
        at_ms=20_000 + 100 * index,
        kind="create-pod",
        target=f"hungry-{quota}-{index}",
        args={"class": "job", "cpu": 1000, "memory_mib": 64, "quota": quota},
    )
    for quota in ("web-a", "web-b", "ml", "lone")
    for index in range(6)
)
"""Jobs that never end, in several quotas: at the end of a run these still want more than there is."""
IN_TURN = tuple(
    ScheduleEntry(
        at_ms=at_ms + 100 * index,
        kind="create-pod",
        target=f"turn-{quota}-{index}",
        args={"class": "job", "cpu": 500, "memory_mib": 64, "quota": quota},
    )
    for quota, at_ms in (("web-a", 20_000), ("web-b", 70_000))
    for index in range(24)
)
"""Jobs that never end fill what two quotas have together, and then the other quota wants its share of it."""
APART = arriving("solo", 6, apart="host", of="solo", lasts=60)
"""More pods than nodes, no two of which may be together."""
GATED = arriving("shut", 2, gated=1)
PORTS = arriving("door", 6, port=8_080)
SPREAD = tuple(
    ScheduleEntry(
        at_ms=15_000 + 100 * index,
        kind="create-pod",
        target=f"wide-{index}",
        args={"class": "ls", "app": "wide", "cpu": 50 + 500 * index, "memory_mib": 64, "spread": "host", "skew": 1},
    )
    for index in range(6)
)
SCARCE = arriving("scarce", 6, spread="host", skew=1, domains=9)
"""More domains wanted than there are nodes: each node takes one."""
REVISED = tuple(
    ScheduleEntry(
        at_ms=15_000 + 100 * index,
        kind="create-pod",
        target=f"revised-{index}",
        args=SMALL | {"app": "revised", "spread": "host", "revision": revision}
        | ({"selects": "n0"} if revision == "old" else {}),
    )
    for index, revision in enumerate(("old", "new", "new", "new", "old", "new", "new", "new"))
)
"""Pods of two revisions, each of which is spread by itself; those of the old one are all on one node."""
ZONED = arriving("here", 6, zones="zone-1")
TAINTED = tuple(
    ScheduleEntry(at_ms=8_000, kind="taint", target=f"n{node}", args={"value": "others", "effect": "NoSchedule"})
    for node in (0, 1)
)
SWITCH = (ScheduleEntry(at_ms=10_000, kind="switch", fault=True, args={"nodes": 5, "for_ms": 225_000}),)
"""A node is silent after three minutes."""
CLOSED = (
    *arriving("leaves", 9),
    *(
        ScheduleEntry(at_ms=30_000, kind="taint", target=f"n{node}", args={"value": "others", "effect": "NoExecute"})
        for node in (0, 1)
    ),
)
"""Two of three nodes are given to others while they have pods,"""
REOPENED = (
    *CLOSED,
    *(ScheduleEntry(at_ms=40_000, kind="taint", target=f"n{node}", args={"value": "", "effect": ""}) for node in (0, 1)),
)
"""and not any more, before all pods have gone."""
TIERED = (
    ScheduleEntry(at_ms=3_000, kind="namespace", target="team-a", args={"tier": "silver"}),
    *(
        ScheduleEntry(
            at_ms=at_ms,
            kind="create-pod",
            target=target,
            args=SMALL | {"app": app, **request},
        )
        for at_ms, target, app, request in (
            *((15_000 + index, f"team-a/loud-{index}", "loud", {"apart": "host", "of": "loud"}) for index in range(3)),
            (16_000, "calm-0", "calm", {"apart": "host", "of": "loud", "where": "selected"}),
            (40_000, "calm-1", "calm", {"apart": "host", "of": "loud", "where": "selected"}),
        )
    ),
    ScheduleEntry(at_ms=30_000, kind="namespace", target="team-a", args={"tier": "gold"}),
)
"""A namespace comes to be one whose pods others keep away from."""
PROFILED = tuple(
    entry
    for revision, at_ms in enumerate((10_000, 240_000), 100)
    for entry in (
        ScheduleEntry(at_ms=at_ms, kind="profile", target="grind", args={"revision": revision, "lends": 1}),
        *(
            ScheduleEntry(
                at_ms=at_ms + 20_000 + 200_000 * late + 100 * index,
                kind="create-pod",
                target=f"grind-{revision}-{late}-{index}",
                args={"class": "job", "app": "grind", "cpu": 100, "memory_mib": 64, "lasts": 5},
            )
            for late in (0, 1)
            for index in range(3)
        ),
    )
)
"""A profile that changes, and pods of it just after and long after."""
PATIENT = (
    ScheduleEntry(at_ms=3_000, kind="priority-class", target="modest", args={"value": 9_100, "policy": "PreemptLowerPriority"}),
    ScheduleEntry(at_ms=3_001, kind="priority-class", target="patient", args={"value": 9_800, "policy": "Never"}),
    *(
        ScheduleEntry(
            at_ms=15_000 + 100 * index,
            kind="create-pod",
            target=f"{priority}-door-{index}",
            args={"class": "ls", "app": "door", "cpu": 50, "memory_mib": 64, "port": 8_080, "priority": priority},
        )
        for priority, indexes in (("modest", range(6)), ("patient", range(6, 8)))
        for index in indexes
    ),
)
"""Patient pods want the port that modest ones have on every node."""
KEPT: Args = {"protected": "quota"}
PROTECTED = (
    ScheduleEntry(at_ms=3_000, kind="priority-class", target="modest", args={"value": 9_100, "policy": "PreemptLowerPriority"}),
    ScheduleEntry(at_ms=3_001, kind="priority-class", target="vital", args={"value": 9_900, "policy": "PreemptLowerPriority"}),
    *(
        ScheduleEntry(
            at_ms=15_000 + 100 * index,
            kind="create-pod",
            target=f"{priority}-lock-{index}",
            args=SMALL | {"app": "lock", "port": 8_080, "priority": priority} | more,
        )
        for priority, indexes, more in (("modest", range(6), KEPT), ("vital", range(6, 8), Args()))
        for index in indexes
    ),
)
"""Vital pods want the port that pods have on every node which must not be preempted."""
LOWERED = (
    *(
        ScheduleEntry(
            at_ms=20_000 + 100 * index,
            kind="create-pod",
            target=f"lowered-{index}",
            args={"class": "job", "cpu": 100, "memory_mib": 16, "quota": "lone", "protected": "quota"},
        )
        for index in range(4)
    ),
    ScheduleEntry(at_ms=60_000, kind="update-quota", target="lone", args={"min": 0, "max": 150}),
)
"""The max of a quota falls below what its pods use, which are not preemptible."""


def _of_gang(gang: str, index: int, at_ms: int, args: Args) -> ScheduleEntry:
    """A pod of a gang."""
    common: Args = {"class": "job", "cpu": 50, "memory_mib": 64, "lasts": 600, "gang": gang}
    return ScheduleEntry(at_ms=at_ms, kind="create-pod", target=f"{gang}-{index}", args=common | args)


_OF_FIVE: Args = {"gang_min": 5, "gang_mode": "NonStrict"}
PARTED = (
    *(_of_gang("parted", index, 15_000 + 10 * index, _OF_FIVE) for index in range(4)),
    _of_gang("parted", 4, 15_040, _OF_FIVE | {"cpu": 1_000_000}),
)
"""A gang of which one pod fits nowhere."""
CREW = (
    ScheduleEntry(at_ms=14_000, kind="create-pod-group", target="crew", args={"min": 5, "mode": "NonStrict"}),
    *(
        ScheduleEntry(at_ms=15_000 + index, kind="create-pod", target=f"crew-{index}", args=args | {"cpu": cpu})
        for args in (Args({"class": "job", "memory_mib": 64, "lasts": 600, "pod_group": "crew"}),)
        for index, cpu in enumerate((50, 50, 50, 50, 1_000_000))
    ),
)
"""The same with a PodGroup."""
ZONED_TREE = (ScheduleEntry(at_ms=9_000, kind="quota-profile", target="tree", args={"zone": "zone-0", "percent": 50}),)
BELATED = tuple(
    _of_gang("belated", index, at_ms, {"memory_mib": 16, "gang_min": 3, "gang_mode": "Strict"})
    for index, at_ms in enumerate((15_000, 15_001, 30_002))
)
"""A small gang whose last pod comes late."""
DELETED = tuple(
    ScheduleEntry(at_ms=at_ms, kind=kind, target=f"brief-{index}", args=args)
    for index in range(3)
    for at_ms, kind, args in (
        (20_000, "create-pod", SMALL | {"app": "brief"}),
        (100_000 + index, "delete-pod", Args(grace=-1)),
    )
)

HOARDING = arriving(
    "hoard", 6, **{"class": "batch", "memory_mib": 128, "hold_low": 100, "hold_high": 400, "period": 60, "leaks": 1}
)
"""Batch pods that soon hold more than they may."""
SHRUNK = tuple(
    each
    for index in range(6)
    for each in (
        ScheduleEntry(
            at_ms=20_000 + index,
            kind="create-pod",
            target=f"shrunk-{index}",
            args={"class": "batch", "cpu": 50, "memory_mib": 256, "hold_low": 200, "hold_high": 200, "period": 60},
        ),
        ScheduleEntry(
            at_ms=40_000 + index,
            kind="resize-pod",
            target=f"shrunk-{index}",
            args={"class": "batch", "cpu": 50, "memory_mib": 128},
        ),
    )
)
"""Batch pods whose limit users lower below what they hold."""
LEAKING = arriving("leak", 2, memory_mib=128, memory_limit=256, hold_low=64, hold_high=2_048, period=120, leaks=1)
"""Services that hold more than they may some seconds after each start."""
SQUEEZED = tuple(
    each
    for index in range(8)
    for each in (
        ScheduleEntry(
            at_ms=20_000 + index,
            kind="create-pod",
            target=f"squeezed-{index}",
            args=SMALL | {"app": "squeezed", "selects": "n0"},
        ),
        ScheduleEntry(
            at_ms=30_000 + index,
            kind="resize-pod",
            target=f"squeezed-{index}",
            args={"class": "ls", "cpu": 2_500, "memory_mib": 64},
        ),
    )
)
"""Eight small services on one node, each of which is resized to an amount that the node has, and not for all of them."""
CRAMPED = tuple(
    ScheduleEntry(
        at_ms=20_000,
        kind="create-pod",
        target=f"{name}-{node}",
        args=SMALL | {"app": name, "memory_mib": asked, "selects": f"n{node}"}
        | {"hold_low": low, "hold_high": high, "period": 60},
    )
    for node in range(3)
    for name, asked, low, high in (("large", 5_000, 4_900, 4_950), ("bloat", 256, 2_000, 4_000))
)
"""On each node a large service within its request, and one that takes more than it asked for: small machines lack memory."""

NO_CYCLE_LIMITS: tuple[Replacement, ...] = (
    (CycleCounts, "refusal", no_refusal),
    (CycleCounts, "node_full", never_full),
    (CycleCounts, "namespace_full", never_full),
)

MUTANTS = (
    Mutant(
        "a_second_replica_is_not_refused",
        ((Batch, "writes", unfenced),),
        (1, 2, 3, 10, 11, 12, 15),
        faults=STALE,
    ),
    Mutant(
        "what_was_assumed_of_a_refused_batch_stays",
        ((SchedulerCore, "withdraw", refused_and_kept),),
        (1, 2, 10, 15),
        (1, 2, 6),
        faults=PAUSED,
    ),
    Mutant(
        "an_overtaken_message_counts_as_news",
        ((LastSequences, "is_new", always_new),),
        (2, 10, 12, 15),
        faults=tuple(
            ScheduleEntry(at_ms=at, kind="redeliver", target=f"scheduler/{letter}", fault=True, args={"count": 60})
            for at in range(60_000, 240_000, 20_000)
            for letter in "ab"
        ),
    ),
    Mutant("a_placement_stored_again_is_charged_again", ((PodCache, "store_placement", charged_again),), (10, 15)),
    Mutant(
        "the_quota_is_not_looked_at",
        ((QuotaAdmission, "check", no_limit), (AdmittedRun, "admits", any_pod), (AdmittedRun, "count", all_pods)),
        (3,),
    ),
    Mutant("places_of_deleted_pods_are_kept", ((Endings, "decide", never_ends),), (2, 12)),
    Mutant("the_scheduler_overlooks_what_waiting_pods_request", ((QuotaDemands, "counted_as", placed_ones_alone),), (3, 12)),
    Mutant("shares_are_rounded_up", ((Line, "of", rounded_up), (Line, "amounts", all_rounded_up)), (3,)),
    Mutant("weights_are_ignored", ((Line, "__init__", weights_ignored),), (3,), faults=HUNGRY),
    Mutant("a_decision_names_no_causes", ((QuotaTreeCore, "decide", without_causes),), (11,)),
    Mutant("a_quota_is_published_with_every_decision", ((quota_core, "publish_at", said_again),), (11, 12)),
    Mutant("the_batch_formula_forgets_services", ((batch_evaluation, "sum_need", services_forgotten),), (4,)),
    Mutant("a_decision_depends_on_a_hidden_counter", ((BatchResourceCalculator, "decide", hidden_counter),), (10, 15, 19)),
    Mutant(
        "silence_is_judged_by_the_nodes_clock",
        ((NodeMetricState, "accepted", node_clock),),
        (5,),
        faults=(ScheduleEntry(at_ms=60_000, kind="clock", target="n0", fault=True, args={"by_ms": 45_000, "drift_ppm": 0}),),
    ),
    Mutant("moves_under_way_are_forgotten", ((ClusterFold, "apply", jobs_forgotten),), (6, 7, 12), (3, 5, 6), 6, 6),
    Mutant("the_limits_of_a_cycle_are_ignored", NO_CYCLE_LIMITS, (6,), (3, 5, 2), faults=HOT),
    Mutant(
        "the_namespace_limit_of_a_cycle_is_ignored",
        ((harness, "CONFIGS", one_a_cycle), *NO_CYCLE_LIMITS),
        (6,),
        (3, 5, 2),
        faults=HOT,
    ),
    Mutant("a_core_keeps_every_event", ((ClusterFold, "apply", everything_kept),), (13,)),
    Mutant("the_gateway_writes_unconditionally", ((chaos_gateways.ChaosGateway, "store", unconditional),), (14, 2, 12)),
    Mutant("a_pod_is_evicted_again", ((gateway_requests, "plan_eviction", evicted_again),), (6,), (3, 5, 6), 6, 6),
    Mutant("suppression_ignores_services", ((suppression, "suppress_milli", services_ignored),), (8,)),
    Mutant("the_executor_widens_the_child_before_the_parent", ((simulated_files, "plan", children_first),), (8,), (1,)),
    Mutant("reservations_are_for_everybody", ((OwnerIndex, "meaning", means_everybody),), (22,)),
    Mutant("a_used_up_reservation_is_used_again", ((Reserving, "used_up", never_used_up),), (22,)),
    Mutant("nobody_sees_the_rooms_of_the_queues_head", ((QueueHead, "count_room", no_rooms),), (24,), minutes=6),
    Mutant("a_pod_is_tried_ten_seconds_late", ((Placing, "_top", backed_off),), (26,)),
    Mutant("no_reservation_expires", ((ReservationCache, "expire", never_over),), (22,)),
    Mutant(
        "a_quota_is_checked_at_its_leaf_alone",
        ((harness, "CONFIGS", nothing_revoked), (quota_plugin, "admit", leaf_only)),
        (3,),
        faults=IN_TURN,
    ),
    Mutant(
        "the_arbiter_ignores_the_namespace_limit",
        ((harness, "CONFIGS", one_at_a_time), (budgets, "per_namespace", no_refusal)),
        (6,),
        faults=MOVES,
    ),
    Mutant(
        "pods_leave_before_their_next_place_is_held", ((reconciling, "with_place", evicted_at_once),), (23,), faults=RESERVED
    ),
    Mutant("the_arbiter_ignores_the_workload_limit", ((budgets, "per_workload", no_refusal),), (6,), faults=MOVES),
    Mutant("mid_lends_what_services_request", ((batch_evaluation, "calculate_mid", requests_lent),), (4,)),
    Mutant("yarn_capacity_is_lent_twice", ((batch_situations, "NodeSettings", yarn_forgotten),), (4,), (2, 4, 6)),
    Mutant("room_is_not_given_back", ((NodeTable, "remove", remembered_room),), (10, 12, 15)),
    Mutant("a_quota_that_refused_refuses_for_ever", ((QuotaAdmission, "check", waits_for_ever),), (10, 12, 15)),
    Mutant("suppression_is_late", ((suppression, "suppress_milli", suppressed_late),), (8,)),
    Mutant("waiting_is_said_with_every_decision", ((WaitingPods, "due_at", said_when_asked),), (11, 12)),
    Mutant("reasons_to_and_fro_are_all_said", ((waiting, "CHANGE_PAUSE", no_pause),), (12,)),
    Mutant("yarn_keeps_what_it_announces", ((YarnCopilot, "settings", never_set),), (12,), (4, 2)),
    Mutant("affinity_is_not_looked_at", ((InterPodAffinity, "concerns", unconcerned),), (1,), (1, 2), 1, faults=APART),
    Mutant("host_ports_are_not_looked_at", ((NodePorts, "concerns", unconcerned),), (1,), (1, 2), 1, faults=PORTS),
    Mutant("hard_spread_is_not_looked_at", ((PodTopologySpread, "concerns", unconcerned),), (1,), faults=SPREAD),
    Mutant("taints_are_not_looked_at", ((taints, "untolerated", all_tolerated),), (1,), (1, 2), 1, faults=TAINTED),
    Mutant("lost_nodes_are_tainted_all_at_once", ((zones, "eviction_rate", no_rate),), (20,), (1, 2), 4, 6, SWITCH),
    Mutant("users_taints_evict_nobody", ((taint_eviction, "set_taints", only_lost_nodes),), (20,), (1, 2), 1, faults=CLOSED),
    Mutant(
        "evictions_are_never_called_off",
        ((harness, "CONFIGS", one_eviction_a_minute), (node_lifecycle, "settle_jobs", never_called_off)),
        (20,),
        (1, 2),
        2,
        faults=REOPENED,
    ),
    Mutant("node_affinity_is_not_looked_at", ((NodeAffinityMatch, "filter", any_node),), (1,), (1, 2), 1, faults=ZONED),
    Mutant("gates_are_not_looked_at", ((Endings, "wants_node", gates_ignored),), (1,), (1, 2), 1, faults=GATED),
    Mutant(
        "a_namespaces_new_labels_change_nothing", ((SelectorIndex, "label_namespace", labels_at_birth),), (1, 10), faults=TIERED
    ),
    Mutant(
        "pods_that_left_keep_others_away", ((RelationCounts, "count", never_given_back),), (10, 12, 15), minutes=2, faults=APART
    ),
    Mutant("profiles_are_not_applied", ((profiles, "changed_by_profiles", no_profiles),), (16,), minutes=1, faults=PROFILED),
    Mutant("profiles_stay_as_first_seen", ((profiles, "ready_profiles", first_version),), (16,), minutes=1, faults=PROFILED),
    Mutant("patient_pods_preempt", ((pod_reader, "PREEMPT_NEVER", no_policy),), (17,), (1, 2), 1, faults=PATIENT),
    Mutant("protected_pods_are_victims", ((pod_traits, "is_preemptible", all_preemptible),), (28,), (1,), 1, faults=PROTECTED),
    Mutant("protected_pods_are_revoked", ((revocation, "victims_of", taken_from_all),), (28,), minutes=2, faults=LOWERED),
    Mutant("a_gang_has_the_members_that_fit", ((GangGroup, "enough", whoever_fits),), (21,), (1, 2), 1, faults=PARTED),
    Mutant(
        "the_minimum_of_a_pod_group_is_not_read",
        ((scheduler_gangs, "of_pod_group", any_number_of_members),),
        (21,),
        (1, 2),
        1,
        faults=CREW,
    ),
    Mutant(
        "a_quota_profile_has_every_node", ((quota_profiles, "selector_holds", every_node),), (3,), (1, 2), 1, faults=ZONED_TREE
    ),
    Mutant("members_of_a_gang_are_placed_alone", ((GangCache, "together", one_by_one),), (21,), (1, 2), 1, faults=PARTED),
    Mutant("a_gang_is_given_up", ((PlacingGroups, "decide", given_up),), (12,), minutes=2, faults=BELATED),
    Mutant("objects_end_late", ((gateway_duties, "endings", ended_late),), (12,), faults=DELETED),
    Mutant(
        "an_executor_evicts_without_a_cool_down", ((Evictions, "_refusal", evicts_at_once),), (25,), (1, 2), 2, faults=STARVED
    ),
    Mutant("suppression_flaps", ((suppression, "suppress_milli", flapping),), (8, 9)),
    Mutant(
        "a_new_life_of_an_executor_has_the_ids_of_the_last",
        ((ExecutorCore, "fresh", same_life),),
        (0,),
        (1, 2),
        1,
        faults=(ScheduleEntry(at_ms=40_000, kind="executor-crash", target="n0", fault=True, args={"down_ms": 500}),),
    ),
    Mutant(
        "min_domains_are_ignored",
        ((SelectorIndex, "relations", spread_without(min_domains=None)),),
        (1,),
        (1, 2),
        1,
        faults=SCARCE,
    ),
    Mutant(
        "match_label_keys_are_ignored",
        ((SelectorIndex, "relations", spread_without(match_label_keys=[])),),
        (1,),
        (1, 2),
        1,
        faults=REVISED,
    ),
    Mutant(
        "what_comes_into_an_ended_namespace_stays",
        ((GatewayCore, "apply", not_looked_for),),
        (12,),
        (2, 1, 3),
        1,
        faults=FORSAKEN,
    ),
    Mutant("a_node_defers_no_resize", ((Resizes, "_why_not", room_for_every_resize),), (27,), (1, 2), 1, faults=SQUEEZED),
    Mutant("pods_that_shrink_count_less_at_once", ((scheduler_resizes, "next_resize", counted_as_asked),), (27,), (1, 2)),
    Mutant("a_lowered_limit_waits_for_nobody", ((resizing, "spared", lowered_below_use),), (18,), faults=SHRUNK),
    Mutant("batch_memory_is_not_limited", ((batch_pods, "batch_values", no_memory_limits),), (18,), (1, 2), 1, faults=HOARDING),
    Mutant("the_kernel_is_not_told_whom_to_end", ((sampler, "oom_score_adj", no_score),), (18,), faults=CRAMPED),
    Mutant("a_decision_counts_as_published", ((QuotaTreeCore, "decide", counted_as_published),), (19,)),
    Mutant("there_is_no_backoff", ((pod_life, "backoff_seconds", no_backoff),), (18,), (1, 2), 1, faults=LEAKING),
    Mutant("restarts_are_not_counted", ((pod_life, "ContainerRun", first_run_only),), (18,), (1, 2), 1, faults=LEAKING),
    Mutant("failures_are_final", ((pod_life, "restarts", failures_are_final),), (18,), (1, 2), 1, faults=LEAKING),
    Mutant("a_restart_has_its_predecessors_number", ((pod_life, "Start", same_attempt),), (18,), (1, 2), 1, faults=LEAKING),
)

"""The defects, by service. Each docstring or comment says what a person could have got wrong."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

import cotenant.quota.admission as quota_admission
import cotenant_batch_resource_calculator.deciding as batch_deciding
import cotenant_batch_resource_calculator.formulas.evaluation as batch_evaluation
import cotenant_console.chaos.gateways as chaos_gateways
import cotenant_console.chaos.stage as stage
import cotenant_descheduler_arbiter.budgets as budgets
import cotenant_descheduler_arbiter.cycle_limits as cycle_limits
import cotenant_node_executor.kernel.levels as write_levels
import cotenant_node_executor.strategies.suppress as suppression
import cotenant_quota_tree.runtime as quota_runtime
from cotenant.cycle import Cycle
from cotenant.events.envelope import Event
from cotenant.last_sequences import LastSequences
from cotenant.log import Write
from cotenant.sealing import Batch
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_console.chaos.schedule import Entry
from cotenant_descheduler_arbiter.fold import ClusterFold
from cotenant_metrics_ingest.core import MetricsIngestCore
from cotenant_quota_tree.core import QuotaTreeCore
from cotenant_scheduler.being_stored import BeingStored
from cotenant_scheduler.endings import Endings
from cotenant_scheduler.nodes import NodeTable
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.pods import PodBook
from cotenant_scheduler.waiting import WaitingPods
from cotenant_yarn_copilot.core import YarnCopilot
from tests.simulation.mutants.patches import Mutant

Function = Callable[..., Any]


def unfenced(_: Function) -> Function:
    """Whoever commits does not say what it expects: a second replica is not refused."""
    return lambda self: [Write(event=event) for event in self.events]


def always_new(_: Function) -> Function:
    """An overtaken message counts as news."""
    return lambda self, event: True


def charged_again(right: Function) -> Function:
    """A placement that is stored again is charged again."""

    def wrong(self: PodBook, record: Any, node: str, placed: Any) -> None:
        if placed.counted is not None and placed.counted.membership is not None:
            counted = placed.counted
            self._quotas.charge(counted.membership, counted.shape.requests, preemptible=counted.preemptible)
        right(self, record, node, placed)

    return wrong


def no_limit(_: Function) -> Function:
    """Every pod fits its quota."""
    return lambda self, shape, membership, preemptible: None


def all_room(_: Function) -> Function:
    """A quota has room for as many as there are."""
    return lambda self, shape, membership, preemptible, most: most


def never_ends(right: Function) -> Function:
    """A placement of a deleted pod is kept."""

    def wrong(self: Endings, record: Any, node: str, placed: Any) -> str | None:
        return None if record.facts is None else right(self, record, node, placed)

    return wrong


def rounded_up(right: Function) -> Function:
    """A share is rounded up to whole thousands."""

    def wrong(*args: Any) -> Any:
        shared = right(*args)
        return msgspec.structs.replace(
            shared, runtime={name: -(-amount // 1000) * 1000 for name, amount in shared.runtime.items()}
        )

    return wrong


def weights_ignored(right: Function) -> Function:
    """What is left is shared equally."""
    return lambda total, siblings: right(
        total, [msgspec.structs.replace(sibling, weight=min(sibling.weight, 1)) for sibling in siblings]
    )


def without_causes(_: Function) -> Function:
    """A decision does not say what it rests on."""
    return lambda self, quota, published: ()


def said_again(_: Function) -> Function:
    """What is on the log already is published with every decision."""
    return lambda self, quota, published, now: True


def services_forgotten(right: Function) -> Function:
    """The formula leaves out the services that have a metric."""

    def wrong(*, pods: Any, metrics: Any, **others: Any) -> Any:
        return right(pods=[pod for pod in pods if pod.key not in metrics], metrics={}, **others)

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

    def wrong(self: MetricsIngestCore, event: Event, sample: Any) -> None:
        right(self, event, sample)
        node = self._nodes.get(sample.node)
        if node is not None and node.heard is not None:
            node.heard = event.time

    return wrong


def jobs_forgotten(_: Function) -> Function:
    """Moves under way are not read after a restart: the arbiter knows only what it stored in this life."""

    def wrong(self: ClusterFold, event: Event, parts: Any) -> None:
        return None

    return wrong


def no_cycle_limits(_: Function) -> Function:
    """The limits of a cycle are not looked at."""
    return lambda count, limit: False


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

    def wrong(core: Any, wish: Any, now: datetime) -> Any:
        planned = right(core, wish, now)
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
    """Files are written from the leaves up in every phase: a child is widened before its parent."""

    def wrong(step: Any) -> Any:
        phase, depth, group, knob = right(step)
        return phase, -depth, group, knob

    return wrong


def refused_and_kept(_: Function) -> Function:
    """What was assumed stays in the core although its batch was refused."""
    return lambda self: self._forget()


def leaf_only(_: Function) -> Function:
    """Only the pod's own quota is looked at, not those above it."""
    return lambda request, chain, runtime_limits: None


def no_refusal(_: Function) -> Function:
    """A budget of migrating pods is not looked at."""
    return lambda *args, **kwargs: None


def one_at_a_time(_: Function) -> Mapping[str, str]:
    """Not a defect: a configuration that lets one pod of a namespace go at a time."""
    args = {"maxMigratingPerNamespace": 1, "maxMigratingPerNode": None}
    document = {"profiles": [{"pluginConfig": [{"name": "MigrationController", "args": args}]}]}
    return {"descheduler-arbiter": json.dumps(document)}


def one_a_cycle(_: Function) -> Mapping[str, str]:
    """Not a defect: a configuration that lets one pod of a namespace go in a cycle."""
    return {"descheduler-arbiter": json.dumps({"maxNoOfPodsToEvictPerNamespace": 1})}


def yarn_forgotten(_: Function) -> Function:
    """What YARN uses is not taken off what is lent."""
    return lambda state: (Amounts(), "")


def kept_after_refusal(right: Function) -> Function:
    """What was decided behind a batch that is refused is kept,"""

    def wrong(self: Cycle) -> None:
        ahead = self._ahead
        right(self)
        self._ahead = ahead

    return wrong


def proposed_all_the_same(right: Function) -> Function:
    """and proposed, whoever has committed since."""

    def wrong(self: Cycle, now: datetime) -> Any:
        self._ahead_prior = self.prior
        return right(self, now)

    return wrong


def remembered_room(right: Function) -> Function:
    """The room of a pod that has ended is not given back in the table of nodes."""

    def wrong(self: NodeTable, name: str, key: Any) -> None:
        row = self.rows[name]
        shape = self.pods[row][key][0]
        right(self, name, key)
        if name in self.rows and shape.requests:
            self.requested[self.dims["cpu"], row] += shape.requests.get("cpu", 0)

    return wrong


def waits_for_ever(right: Function) -> Function:
    """A pod that waits is looked at once, and not again when its quota has room."""
    known: dict[int, Any] = {}

    def wrong(self: QuotaAdmission, shape: Any, membership: Any, preemptible: bool) -> Any:
        refusal = right(self, shape, membership, preemptible)
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

    def wrong(self: WaitingPods, record: Any, verdict: Any, now: datetime) -> datetime | None:
        return now

    return wrong


def never_set(_: Function) -> Function:
    """NodeManagers keep the totals that they announce."""
    return lambda self, matches: []


STALE = tuple(
    Entry(at_ms=at, kind="delay", target="scheduler/b", fault=True, args={"by_ms": 8_000, "for_ms": 30_000})
    for at in range(10_000, 240_000, 40_000)
)
"""One replica of the scheduler decides on what was true eight seconds ago."""
HOT = tuple(
    Entry(
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
MOVES = tuple(
    Entry(at_ms=70_000 + index, kind="create-move", target=f"extra-{app}-{index}", args={"pod": f"service-{app}-{index}"})
    for app in (0, 1)
    for index in range(4)
)
"""Users want many pods moved at once."""

HUNGRY = tuple(
    Entry(
        at_ms=20_000 + 100 * index,
        kind="create-pod",
        target=f"hungry-{quota}-{index}",
        args={"class": "job", "cpu": 1000, "memory_mib": 64, "quota": quota},
    )
    for quota in ("web-a", "web-b", "ml", "lone")
    for index in range(6)
)
"""Jobs that never end, in several quotas: at the end of a run these still want more than there is."""

MUTANTS = (
    Mutant(
        "a_second_replica_is_not_refused",
        ((Batch, "writes", unfenced),),
        (1, 2, 3, 10, 11, 12, 15),
        faults=STALE,
    ),
    Mutant(
        "what_was_assumed_of_a_refused_batch_stays",
        ((BeingStored, "withdraw", refused_and_kept),),
        (1, 2, 10, 15),
        (6,),
        faults=STALE,
    ),
    Mutant(
        "an_overtaken_message_counts_as_news",
        ((LastSequences, "is_new", always_new),),
        (2, 10, 15),
        faults=tuple(
            Entry(at_ms=at, kind="redeliver", target=f"scheduler/{letter}", fault=True, args={"count": 60})
            for at in range(60_000, 240_000, 20_000)
            for letter in "ab"
        ),
    ),
    Mutant("a_placement_stored_again_is_charged_again", ((PodBook, "_account", charged_again),), (10, 15)),
    Mutant(
        "the_quota_is_not_looked_at", ((QuotaAdmission, "check", no_limit), (QuotaAdmission, "room", all_room)), (3,)
    ),
    Mutant("places_of_deleted_pods_are_kept", ((Endings, "_reason_to_end", never_ends),), (2, 12)),
    Mutant("shares_are_rounded_up", ((quota_runtime, "share", rounded_up),), (3,)),
    Mutant("weights_are_ignored", ((quota_runtime, "share", weights_ignored),), (3,), faults=HUNGRY),
    Mutant("a_decision_names_no_causes", ((QuotaTreeCore, "_causes", without_causes),), (11,)),
    Mutant("a_quota_is_published_with_every_decision", ((QuotaTreeCore, "_due", said_again),), (11, 12)),
    Mutant("the_batch_formula_forgets_services", ((batch_evaluation, "calculate_batch", services_forgotten),), (4,)),
    Mutant("a_decision_depends_on_a_hidden_counter", ((BatchResourceCalculator, "decide", hidden_counter),), (10, 15)),
    Mutant(
        "silence_is_judged_by_the_nodes_clock",
        ((MetricsIngestCore, "_take", node_clock),),
        (5,),
        faults=(Entry(at_ms=60_000, kind="clock", target="n0", fault=True, args={"by_ms": 45_000, "drift_ppm": 0}),),
    ),
    Mutant("moves_under_way_are_forgotten", ((ClusterFold, "_migration", jobs_forgotten),), (6, 7, 12), (3, 5, 6), 6, 6),
    Mutant("the_limits_of_a_cycle_are_ignored", ((cycle_limits, "_full", no_cycle_limits),), (6,), (3, 5, 2), faults=HOT),
    Mutant(
        "the_namespace_limit_of_a_cycle_is_ignored",
        ((stage, "CONFIGS", one_a_cycle), (cycle_limits, "_full", no_cycle_limits)),
        (6,),
        (3, 5, 2),
        faults=HOT,
    ),
    Mutant("a_core_keeps_every_event", ((ClusterFold, "apply", everything_kept),), (13,)),
    Mutant("the_gateway_writes_unconditionally", ((chaos_gateways.ChaosGateway, "_store", unconditional),), (14, 2, 12)),
    Mutant("a_pod_is_evicted_again", ((chaos_gateways, "plan_eviction", evicted_again),), (6,), (3, 5, 6), 6, 6),
    Mutant("suppression_ignores_services", ((suppression, "suppress_milli", services_ignored),), (8,)),
    Mutant("the_executor_widens_the_child_before_the_parent", ((write_levels, "_position", children_first),), (8,), (1,)),
    Mutant("a_quota_is_checked_at_its_leaf_alone", ((quota_admission, "_ancestor_refusal", leaf_only),), (3,), (3, 1, 2)),
    Mutant(
        "the_arbiter_ignores_the_namespace_limit",
        ((stage, "CONFIGS", one_at_a_time), (budgets, "per_namespace", no_refusal)),
        (6,),
        faults=MOVES,
    ),
    Mutant("the_arbiter_ignores_the_workload_limit", ((budgets, "per_workload", no_refusal),), (6,), faults=MOVES),
    Mutant("yarn_capacity_is_lent_twice", ((batch_deciding, "_foreign", yarn_forgotten),), (4,), (2, 4, 6)),
    Mutant(
        "a_pipelined_decision_is_kept_after_a_refusal",
        ((Cycle, "_withdraw", kept_after_refusal), (Cycle, "propose", proposed_all_the_same)),
        (1, 2, 3, 10, 12, 15),
        (3, 1, 2),
        faults=STALE,
    ),
    Mutant("room_is_not_given_back", ((NodeTable, "remove", remembered_room),), (10, 12, 15)),
    Mutant("a_quota_that_refused_refuses_for_ever", ((QuotaAdmission, "check", waits_for_ever),), (10, 12, 15)),
    Mutant("suppression_is_late", ((suppression, "suppress_milli", suppressed_late),), (8,)),
    Mutant("waiting_is_said_with_every_decision", ((WaitingPods, "_due", said_when_asked),), (11, 12)),
    Mutant("yarn_keeps_what_it_announces", ((YarnCopilot, "settings", never_set),), (12,), (4, 2)),
    Mutant("suppression_flaps", ((suppression, "suppress_milli", flapping),), (8, 9)),
)

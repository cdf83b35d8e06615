"""Migration jobs and the load of nodes as descheduler-arbiter judged it, and the gateway's answers to eviction requests."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from cotenant.events.envelope import Part, Payload
from cotenant.events.placements import Figure
from cotenant.events.reservations import ReservationOwner
from cotenant.model.bounds import Amount, Count, Seconds
from cotenant.model.subjects import encode_token

EVICT_ENDPOINT = "cotenant.gateway.evict.*"
"""The micro endpoint that takes an `EvictionRequest` as JSON; what it decides comes back as an `EvictionOutcome` event. The
last token names who asks: NATS tells the gateway nothing else of them, and lets each user publish its own name only."""
NODE_EVICT_ENDPOINT = "cotenant.gateway.node-evict.*"
"""The same for the executor of a node whose pods kubelet runs: the last token is the node, which may evict the pods that are
placed on it, within their budgets, and no others."""
RESERVE_ENDPOINT = "cotenant.gateway.reserve.*"
"""The micro endpoint that takes a `ReservationRequest` as JSON. What it creates is an object; a refusal comes back as the
`EvictionOutcome` of the pod, as it cannot be evicted without a place."""
EVICTION_POLICY, DELETE_POLICY, SOFT_EVICTION_POLICY = "Eviction", "Delete", "SoftEviction"
EVICT_POLICIES = (EVICTION_POLICY, DELETE_POLICY, SOFT_EVICTION_POLICY)
"""How a pod is ended. Source of the names: koord-descheduler's evictors."""
PREEMPTION, TAINT_EVICTION = "Preemption", "TaintEviction"
"""Triggers of jobs that end victims of preemption, and pods that do not tolerate a NoExecute taint."""

USER_PREFIX = "system:cotenant:"
"""Users on NATS are called so where roles are given."""


def evict_subject(user: str) -> str:
    """Where a user on NATS asks for evictions."""
    return EVICT_ENDPOINT.replace("*", encode_token(user))


def node_evict_subject(node: str) -> str:
    """Where a node's executor asks for evictions of the node's pods."""
    return NODE_EVICT_ENDPOINT.replace("*", encode_token(node))


def reserve_subject(user: str) -> str:
    """Where a user on NATS asks for reservations of pods that migrate."""
    return RESERVE_ENDPOINT.replace("*", encode_token(user))


class JobCondition(Part, frozen=True, kw_only=True):
    """A condition of a PodMigrationJob: `Eviction` False (reason Evicting) while the pod ends, True (EvictComplete) after."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class FormerMove(Part, frozen=True, kw_only=True):
    """A move by an earlier job of the same name, whose object was deleted: limiters and back-off still count it."""

    job: str
    namespace: str
    pod: str
    workload: str = ""
    evicted_at: datetime
    """When the eviction was granted; when it was ordered, if the job was deleted before the answer."""
    workload_moves: Count = 0
    workload_retry_at: datetime | None = None


class Migration(Payload, frozen=True, kw_only=True):
    """Subject `migrations.<job>`: a migration job's phase (Pending, Running, Succeeded, Failed, Aborted) and why.

    The job's specification is here too (mode, ttl, trigger, evict_reason), because a job that a plugin creates has no object of
    its own: `object_uid` is that of a user's PodMigrationJob, empty for the others.
    """

    TYPE = "cotenant.migration.v1"
    SUBJECT = "migrations.{job}"

    job: str
    namespace: str
    pod: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    status: str = ""
    """Type of the last changed condition, or Complete."""
    reason: str = ""
    message: str = ""
    conditions: tuple[JobCondition, ...] = ()
    evict_ordered: bool = False
    created_at: datetime | None = None
    updated_at: datetime | None = None

    object_uid: str = ""
    mode: str = "EvictDirectly"
    ttl_seconds: Seconds = 0
    """0: never times out."""
    paused: bool = False
    trigger: str = ""
    """The plugin that wants the move (LowNodeLoad, TaintEviction), or User."""
    evict_reason: str = ""
    taint: str = ""
    """Key of the NoExecute taint that evicts the pod; the job ends when the pod's node no longer has it."""
    ignore_budgets: bool = False
    """True for evictions by taint, which no budget may keep from happening."""
    passed_arbitration: bool = False

    workload: str = ""
    """uid of the pod's controller; empty for a bare pod."""
    target: str = ""
    """The node that showed room for the pod when the move was decided; the scheduler chooses for itself."""
    pod_usage: dict[str, Amount] = {}
    """Measured usage of the pod that the decision counted with (cpu in milli-cores, others in units)."""
    figures: tuple[Figure, ...] = ()
    """Usage, bounds and computed after-state of source and target, per resource."""

    ordered_at: datetime | None = None
    """When the eviction was first asked for."""
    attempts: Count = 0
    """Refusals so far."""
    retry_at: datetime | None = None
    """Not asked again before this time."""
    answer: str = ""
    """The last EvictionOutcome that was taken into account, as STREAM:sequence."""
    evicted_at: datetime | None = None
    finished_at: datetime | None = None

    workload_moves: Count = 0
    """Moves of the workload in a row, this one included: the exponent of its back-off."""
    workload_retry_at: datetime | None = None
    """No further move of the workload before this time."""
    former_moves: tuple[FormerMove, ...] = ()
    """Moves by earlier jobs of this name that still count, oldest first; at most 16."""

    labels: dict[str, str] = {}
    """Of a job without an object."""
    annotations: dict[str, str] = {}
    """Of a job without an object."""
    grace_period_seconds: Seconds | None = None
    """How long the pod may take to end; None: what the pod itself says."""
    reservation: str = ""
    """Name of the Reservation that holds the pod's next place, in mode ReservationFirst."""
    reservation_given: bool = False
    """The job's object names it (reservationRef): it is not this job's to delete."""
    reservation_uid: str = ""
    """Of the Reservation, once its object was seen."""
    reservation_node: str = ""
    """The node that holds the place, once there is one."""
    reserve_ordered_at: datetime | None = None
    """When the Reservation was asked for."""
    bound: ReservationOwner | None = None
    """The pod that has taken the place."""
    evict_policy: str = ""
    """How the pod is ended (Eviction, Delete, SoftEviction), decided when its eviction is ordered; empty: Eviction."""

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed", "Aborted")


class EvictionRequest(Part, frozen=True, kw_only=True):
    """Body of a request to `EVICT_ENDPOINT`: end this pod, if its budgets allow it.

    Idempotent by uid: a pod that is terminating already is answered as allowed. `ignore_budgets` is for pods of lost nodes.
    `policy`: Eviction; Delete, which no budget holds back; SoftEviction, which only writes the annotation
    `scheduling.koordinator.sh/soft-eviction` on the pod and leaves its end to whoever reads that.
    """

    namespace: str
    name: str
    uid: str
    job: str = ""
    trigger: str = ""
    reason: str = ""
    grace_period_seconds: Seconds | None = None
    ignore_budgets: bool = False
    policy: str = EVICTION_POLICY
    reservation: str = ""
    """The Reservation that has to hold a place on another node; without it the eviction is refused. Empty: none is needed."""


class ReservationRequest(Part, frozen=True, kw_only=True):
    """Body of a request to `RESERVE_ENDPOINT`: create the Reservation `name` that holds the next place of this pod; or, with
    `release`, delete it.

    Idempotent: a Reservation of this name that was made for this job is there already, or is gone already. The object is made
    from the pod's, and from the template in the job's object if there is one.
    """

    job: str
    name: str
    namespace: str
    pod: str
    uid: str
    ttl_seconds: Seconds = 0
    order_ms: Count = 0
    """Milliseconds since 1970, for the label `scheduling.koordinator.sh/reservation-order`."""
    without_claims: bool = False
    """Leave the pod's persistent volume claims and ephemeral volumes out of the template."""
    release: bool = False


class EvictionOutcome(Payload, frozen=True, kw_only=True):
    """Subject `evictions.<namespace>.<pod>`, written by the gateway: the answer to an eviction request.

    `allowed` false: `reason` and `message` say which budget refused, with its figures. `job` names the asking migration job.
    `soft`: the pod was only asked to go, by its annotation.
    """

    TYPE = "cotenant.eviction.v1"
    SUBJECT = "evictions.{namespace}.{name}"

    namespace: str
    name: str
    uid: str
    allowed: bool
    job: str = ""
    reason: str = ""
    message: str = ""
    budget: str = ""
    soft: bool = False

    @property
    def ends_pod(self) -> bool:
        """Whether the pod is ending, or has ended."""
        return self.allowed and not self.soft


class DetectorState(StrEnum):
    """OK until a node was seen hot often enough in a row."""

    OK = "OK"
    ANOMALY = "Anomaly"


class AnomalyStreak(Part, frozen=True, kw_only=True):
    """The anomaly detector of one node: its state and its streaks."""

    state: DetectorState = DetectorState.OK
    total: Count = 0
    normal: Count = 0
    abnormal: Count = 0
    normal_streak: Count = 0
    abnormal_streak: Count = 0
    expires_at: datetime | None = None


class RetainedPod(Part, frozen=True, kw_only=True):
    """A pod of a hot node that stays, and why."""

    namespace: str
    name: str
    reason: str


class NodeLoadJudged(Payload, frozen=True, kw_only=True):
    """Subject `descheduling.<node>`: how LowNodeLoad judged a hot node in its last cycle, and the streaks that it goes on from.

    Stored once per cycle while a node is hot, and when a streak ends. `figures`: `<resource>.usage`, `.low`, `.high`
    (amounts) and the same with the prefix `prod.`.
    """

    TYPE = "cotenant.nodeload.v1"
    SUBJECT = "descheduling.{node}"

    node: str
    pool: str = ""
    load_class: str = "normal"
    """high, prodHigh, low, bothLow, prodLow or normal."""
    judged_at: datetime | None = None
    node_streak: AnomalyStreak = AnomalyStreak()
    prod_streak: AnomalyStreak = AnomalyStreak()
    abnormal_at: datetime | None = None
    """The last time that the node was seen hot."""
    figures: tuple[Figure, ...] = ()
    moved: tuple[str, ...] = ()
    """Jobs that this cycle created for the node."""
    kept: tuple[RetainedPod, ...] = ()
    """At most 10 pods that stay, with reasons."""
    kept_count: Count = 0
    message: str = ""

"""Migration jobs and evaluations of nodes' load by descheduler-arbiter, and the gateway's answers to eviction requests."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from cotenant.events.envelope import Part, Payload
from cotenant.events.placements import Figure
from cotenant.events.reservations import ReservationOwner
from cotenant.model.bounds import Amount, Count, Seconds
from cotenant.model.subjects import encode_token

EVICT_ENDPOINT = "cotenant.gateway.evict.*"
"""The micro endpoint that takes an `EvictionRequest` as JSON; the decision comes back as an `EvictionOutcome` event. The
last token names the requester: NATS gives the gateway no other identity, and lets each user publish its own name only."""
NODE_EVICT_ENDPOINT = "cotenant.gateway.node-evict.*"
"""The same for the executor of a node whose pods kubelet runs: the last token is the node, which may evict the pods that are
placed on it, within their budgets, and no others."""
RESERVE_ENDPOINT = "cotenant.gateway.reserve.*"
"""The micro endpoint that takes a `ReservationRequest` as JSON. What it creates is an object; a refusal comes back as the
`EvictionOutcome` of the pod, as it cannot be evicted without a reservation."""
EVICTION_POLICY, DELETE_POLICY, SOFT_EVICTION_POLICY = "Eviction", "Delete", "SoftEviction"
EVICT_POLICIES = (EVICTION_POLICY, DELETE_POLICY, SOFT_EVICTION_POLICY)
"""How a pod is ended. Source of the names: koord-descheduler's evictors."""
PREEMPTION, TAINT_EVICTION = "Preemption", "TaintEviction"
"""Triggers of jobs that end victims of preemption, and pods that do not tolerate a NoExecute taint."""

USER_PREFIX = "system:cotenant:"
"""Prefix of NATS users in role bindings."""


def evict_subject(user: str) -> str:
    """Subject on which a NATS user requests evictions."""
    return EVICT_ENDPOINT.replace("*", encode_token(user))


def node_evict_subject(node: str) -> str:
    """Subject on which a node's executor requests evictions of the node's pods."""
    return NODE_EVICT_ENDPOINT.replace("*", encode_token(node))


def reserve_subject(user: str) -> str:
    """Subject on which a NATS user requests reservations for migrating pods."""
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
    """The plugin that requested the move (LowNodeLoad, TaintEviction), or User."""
    evict_reason: str = ""
    taint: str = ""
    """Key of the NoExecute taint that evicts the pod; the job ends when the pod's node no longer has it."""
    ignore_budgets: bool = False
    """True for evictions by taint, which bypass budgets."""
    passed_arbitration: bool = False

    workload: str = ""
    """uid of the pod's controller; empty for a bare pod."""
    target: str = ""
    """The node that had room for the pod when the move was decided; the scheduler chooses independently."""
    pod_usage: dict[str, Amount] = {}
    """Measured usage of the pod that the decision used (cpu in milli-cores, others in units)."""
    figures: tuple[Figure, ...] = ()
    """Usage, bounds and computed after-state of source and target, per resource."""

    ordered_at: datetime | None = None
    """When the eviction was first requested."""
    attempts: Count = 0
    """Refusals so far."""
    retry_at: datetime | None = None
    """Not requested again before this time."""
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
    """Grace period of the pod; None: its own."""
    reservation: str = ""
    """Name of the Reservation for the pod's replacement, in mode ReservationFirst."""
    reservation_given: bool = False
    """The job's object names it (reservationRef): this job must not delete it."""
    reservation_uid: str = ""
    """Of the Reservation, once its object was folded."""
    reservation_node: str = ""
    """The node of the reservation, once it has one."""
    reserve_ordered_at: datetime | None = None
    """When the Reservation was requested."""
    bound: ReservationOwner | None = None
    """The pod that uses the reservation."""
    evict_policy: str = ""
    """How the pod is ended (Eviction, Delete, SoftEviction), decided when its eviction is ordered; empty: Eviction."""

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed", "Aborted")


class EvictionRequest(Part, frozen=True, kw_only=True):
    """Body of a request to `EVICT_ENDPOINT`: end this pod, if its budgets allow it.

    Idempotent by uid: a pod that is terminating already is answered as allowed. `ignore_budgets` is for pods of lost nodes.
    `policy`: Eviction; Delete, which bypasses budgets; SoftEviction, which only writes the annotation
    `scheduling.koordinator.sh/soft-eviction` on the pod, whose reader ends the pod.
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
    """The Reservation that must be Available on another node, else the eviction is refused. Empty: none is needed."""


class ReservationRequest(Part, frozen=True, kw_only=True):
    """Body of a request to `RESERVE_ENDPOINT`: create the Reservation `name` for this pod's replacement; or, with
    `release`, delete it.

    Idempotent: a Reservation of this name for this job may exist already, or be gone already. The object is created
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

    `allowed` false: `reason` and `message` name the budget that refused, with its figures. `job` names the requesting migration
    job. `soft`: only the pod's annotation was written.
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
    """OK until a node was hot often enough in a row."""

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
    """A pod of a hot node that stays, and the reason."""

    namespace: str
    name: str
    reason: str


class NodeLoadJudged(Payload, frozen=True, kw_only=True):
    """Subject `descheduling.<node>`: LowNodeLoad's evaluation of a hot node in its last cycle, and the streaks.

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
    """The last time that the node was hot."""
    figures: tuple[Figure, ...] = ()
    moved: tuple[str, ...] = ()
    """Jobs that this cycle created for the node."""
    kept: tuple[RetainedPod, ...] = ()
    """At most 10 pods that stay, with reasons."""
    kept_count: Count = 0
    message: str = ""

"""Gangs: pods that are placed together or not at all, as users write them.

In: labels and annotations of a pod, or a PodGroup. Out: which gang the pod belongs to, what the gang requires, which gangs form
one group, and a PodGroup's phase. Source: Koordinator's Coscheduling plugin and PodGroup controller.

    gang id        `namespace/name`
    gang group id  the ids of the gangs that wait for one another, sorted, joined by commas

A value that cannot be read is replaced by the default, but for the minimum: without one the gang is not initialised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from cotenant.domain.network_topology import ANNOTATION_TOPOLOGY_SPEC, GatherRule, TopologyError, gather_rules
from cotenant.model.durations import DurationError, parse_duration

LABEL_POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
LABEL_LIGHTWEIGHT_NAME = "pod-group.scheduling.sigs.k8s.io/name"
LABEL_LIGHTWEIGHT_MIN = "pod-group.scheduling.sigs.k8s.io/min-available"
_PREFIX = "gang.scheduling.koordinator.sh/"
ANNOTATION_GANG_NAME = f"{_PREFIX}name"
ANNOTATION_GANG_MIN = f"{_PREFIX}min-available"
ANNOTATION_GANG_TOTAL = f"{_PREFIX}total-number"
ANNOTATION_GANG_WAITING_TIME = f"{_PREFIX}waiting-time"
ANNOTATION_GANG_MODE = f"{_PREFIX}mode"
ANNOTATION_GANG_GROUPS = f"{_PREFIX}groups"
ANNOTATION_GANG_MATCH_POLICY = f"{_PREFIX}match-policy"
ANNOTATION_MATCH_POLICY_ALIAS = "pod-group.scheduling.sigs.k8s.io/match-policy"

DEFAULT_WAIT = timedelta(seconds=600)
MAX_MEMBERS = 2**31 - 1
MAX_GANGS_IN_GROUP = 256
MAX_GANG = 7_749
"""Pods that one batch of the scheduler places, beside the room that it keeps for endings."""
OLD_AFTER = timedelta(hours=48)
"""A PodGroup that is placed and has had nothing running for this long is no longer updated."""


class GangError(ValueError):
    """A value of a gang that cannot be read."""


class Mode(StrEnum):
    """What happens to the members that fit when one does not: Strict: they wait too; NonStrict: the others are tried."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """Which members count towards the minimum."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"


class Source(StrEnum):
    """The source of a gang's requirements."""

    ANNOTATION = "annotation"
    POD_GROUP = "podgroup"


class GangSpec(msgspec.Struct, frozen=True):
    """What a gang requires. `groups`: ids of the gangs of its group, itself among them, as they were written."""

    min_member: int
    total_member: int
    mode: Mode
    match_policy: MatchPolicy
    wait: timedelta
    groups: tuple[str, ...]
    source: Source
    gather: tuple[GatherRule, ...] = ()
    """How near to one another its pods shall be in the network."""

    @property
    def group_id(self) -> str:
        """The id of its group."""
        return group_id(self.groups)


def gang_id(namespace: str, name: str) -> str:
    """Return a gang's id."""
    return f"{namespace}/{name}"


def group_id(gangs: Iterable[str]) -> str:
    """Return the id of a group of gangs."""
    return ",".join(sorted(gangs))


def gang_name(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the name of a pod's gang in its namespace; empty: it is in none. The first that is not empty wins."""
    return labels.get(LABEL_POD_GROUP) or labels.get(LABEL_LIGHTWEIGHT_NAME) or annotations.get(ANNOTATION_GANG_NAME) or ""


def min_member(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    """Return the minimum that a pod states for its gang. Raises GangError."""
    text = labels.get(LABEL_LIGHTWEIGHT_MIN) or annotations.get(ANNOTATION_GANG_MIN, "")
    number = _integer(text)
    if number is None:
        raise GangError(f"{ANNOTATION_GANG_MIN}: {text!r} is no number of pods")
    return number


def wait_of(seconds: int | None, default: timedelta) -> timedelta:
    """Return how long a PodGroup's members may wait for one another: `spec.scheduleTimeoutSeconds` if it is above 0."""
    return timedelta(seconds=seconds) if seconds is not None and seconds > 0 else default


def parse_groups(text: str) -> tuple[str, ...]:
    """Return the ids in the groups annotation, none for an empty text. Raises GangError."""
    if not text:
        return ()
    try:
        ids = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise GangError(f"{ANNOTATION_GANG_GROUPS}: {error}") from error
    if len(ids) > MAX_GANGS_IN_GROUP:
        raise GangError(f"{ANNOTATION_GANG_GROUPS}: {len(ids)} gangs; a group has at most {MAX_GANGS_IN_GROUP}")
    return tuple(ids)


def of_pod(
    gang: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    default_wait: timedelta = DEFAULT_WAIT,
    default_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED,
) -> GangSpec:
    """Return a pod's statements about its gang. Raises GangError where its minimum cannot be read."""
    least = min_member(labels, annotations)
    try:
        wait = parse_duration(annotations.get(ANNOTATION_GANG_WAITING_TIME, ""))
    except DurationError:
        wait = timedelta(0)
    return _spec(gang, least, wait if wait > timedelta(0) else default_wait, annotations, default_policy, Source.ANNOTATION)


def of_pod_group(
    gang: str,
    least: int,
    timeout_seconds: int | None,
    annotations: Mapping[str, str],
    *,
    default_wait: timedelta = DEFAULT_WAIT,
    default_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED,
) -> GangSpec:
    """Return what a PodGroup requires."""
    return _spec(gang, least, wait_of(timeout_seconds, default_wait), annotations, default_policy, Source.POD_GROUP)


def _spec(
    gang: str, least: int, wait: timedelta, annotations: Mapping[str, str], policy: MatchPolicy, source: Source
) -> GangSpec:
    stated = _integer(annotations.get(ANNOTATION_GANG_TOTAL, ""))
    try:
        groups = parse_groups(annotations.get(ANNOTATION_GANG_GROUPS, ""))
    except GangError:
        groups = ()
    try:
        gather = gather_rules(annotations.get(ANNOTATION_TOPOLOGY_SPEC, ""))
    except TopologyError:
        gather = ()
    named = annotations.get(ANNOTATION_GANG_MATCH_POLICY) or annotations.get(ANNOTATION_MATCH_POLICY_ALIAS, "")
    mode = annotations.get(ANNOTATION_GANG_MODE, "")
    return GangSpec(
        min_member=least,
        total_member=stated if stated is not None and stated >= max(least, 1) else least,
        mode=Mode.NON_STRICT if mode == Mode.NON_STRICT else Mode.STRICT,
        match_policy=_POLICIES.get(named, policy),
        wait=wait,
        groups=groups or (gang,),
        source=source,
        gather=gather,
    )


_POLICIES = {policy.value: policy for policy in MatchPolicy}


def _integer(text: str) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        return None
    number = int(text)
    return number if -MAX_MEMBERS <= number <= MAX_MEMBERS else None


# -- the status of a PodGroup ----------------------------------------------------------------------------------------


class PodGroupPhase(StrEnum):
    """A PodGroup's phase."""

    NONE = ""
    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FAILED = "Failed"
    FINISHED = "Finished"
    UNKNOWN = "Unknown"


class Members(msgspec.Struct, frozen=True):
    """The members of a PodGroup, counted. `scheduled`: with a node; the others by what their runs report."""

    pods: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroupState(msgspec.Struct, frozen=True):
    """The status of a PodGroup."""

    phase: PodGroupPhase = PodGroupPhase.NONE
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start: datetime | None = None


_OVER = (PodGroupPhase.FINISHED, PodGroupPhase.FAILED)
_MOST_STEPS = 8
"""Phases only go forward but for Pending, so that a few steps reach the last one."""


def synchronised(
    last: PodGroupState, least: int, members: Members, created: datetime | None, now: datetime
) -> PodGroupState:
    """Return the status that follows from the last one and the members, when nothing changes any more."""
    for _ in range(_MOST_STEPS):
        following = _next_state(last, least, members, created, now)
        if following == last:
            break
        last = following
    return last


def _next_state(
    last: PodGroupState, least: int, members: Members, created: datetime | None, now: datetime
) -> PodGroupState:
    """One step of the PodGroup controller."""
    if last.phase in _OVER or _is_old(last, least, created):
        return last
    if last.phase is PodGroupPhase.NONE:
        return msgspec.structs.replace(last, phase=PodGroupPhase.PENDING)
    if last.phase is PodGroupPhase.PENDING:
        ready = members.pods >= least > 0
        return msgspec.structs.replace(last, phase=PodGroupPhase.PRE_SCHEDULING) if ready else last
    if not members.pods:
        return msgspec.structs.replace(last, phase=PodGroupPhase.PENDING)
    phase, start = last.phase, last.schedule_start
    if members.scheduled < least:
        phase, start = PodGroupPhase.SCHEDULING, start or now
    else:
        phase = PodGroupPhase.SCHEDULED if phase in (PodGroupPhase.PRE_SCHEDULING, PodGroupPhase.SCHEDULING) else phase
    if members.succeeded + members.running >= least and phase is PodGroupPhase.SCHEDULED:
        phase = PodGroupPhase.RUNNING
    if members.failed and members.failed + members.running + members.succeeded >= least:
        phase = PodGroupPhase.FAILED
    if members.succeeded >= least:
        phase = PodGroupPhase.FINISHED
    return PodGroupState(
        phase, members.scheduled, members.running, members.succeeded, members.failed, start
    )


def _is_old(last: PodGroupState, least: int, created: datetime | None) -> bool:
    start = last.schedule_start
    if start is None or created is None:
        return False
    return last.scheduled == least and not last.running and start - created > OLD_AFTER


def occupied_by(namespace: str, owners: Iterable[str]) -> str:
    """Return a PodGroup's occupiedBy: the owners of its first pod."""
    return ",".join(sorted(gang_id(namespace, owner) for owner in owners))

"""Placements and waiting reasons, written by the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.envelope import Part, Payload, null_document
from cotenant.events.resizes import PlacementResize
from cotenant.model.bounds import Amount, Count, Int32, Seconds

VICTIMS_SHOWN = 3
"""Victims that a nomination's line names."""


class PlacementPhase(StrEnum):
    """bound: shall run; terminating: shall end; gone: has ended (a tombstone)."""

    BOUND = "bound"
    TERMINATING = "terminating"
    GONE = "gone"


class Figure(Part, frozen=True, kw_only=True):
    """A named integer on which the decision is based, for example `score.load-aware` 83 or `node.cpu.usage-percent` 41."""

    name: str
    value: int


class UsedBy(Part, frozen=True, kw_only=True):
    """The pod that uses another one, which acts as a reservation."""

    namespace: str
    name: str
    uid: str = ""


class Placement(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.placement.<namespace>.<pod>`: the pod as it shall run on this node.

    `pod` is the manifest (null once gone), taken from the object's message `object_sequence`; it is stored again when
    the object changes. `requests`: the pod's counted amounts (cpu in milli-cores, others in units). `terminating_at`
    is when its end was first decided, and `reason` why. `quota`: the one that it belonged to when this was stored; quotas that
    are declared or end later move it without another placement. `figures`: the score, its parts by plugin (left out at 0), the
    node's figures that they are based on; of a terminating one they are with its cause, the bound one. `allocation`: its
    individual units, if any. `used_by`: of a pod that acts as a reservation, its user. `resize`: while the pod is resized in
    place.
    """

    TYPE = "cotenant.placement.v1"
    SUBJECT = "node.{node}.placement.{namespace}.{name}"

    node: str
    namespace: str
    name: str
    uid: str
    phase: PlacementPhase = PlacementPhase.BOUND
    pod: msgspec.Raw = msgspec.field(default_factory=null_document)
    requests: dict[str, Amount] = {}
    quota: str = ""
    quota_tree: str = ""
    bound_at: datetime | None = None
    grace_period_seconds: Seconds = 30
    reason: str = ""
    figures: tuple[Figure, ...] = ()
    object_sequence: Count = 0
    terminating_at: datetime | None = None
    allocation: Allocation | None = None
    used_by: UsedBy | None = None
    resize: PlacementResize | None = None


class WaitingReason(Part, frozen=True, kw_only=True):
    """Nodes refused for one reason, or (count 0) a reason that is about the pod and no node.

    `code` is one of: insufficient, load, metric-expired, taint, node-affinity, unschedulable, host-port (of nodes);
    quota, gated, malformed, predecessor, node-missing (of the pod). `resource` names the dimension where there is one.
    `detail` carries the figures of the node that is nearest to taking the pod, for example "short by 1500m"; `node` is its
    name, given for members of a gang.
    """

    code: str
    count: Count
    resource: str = ""
    detail: str = ""
    node: str = ""


class RefusedMembers(Part, frozen=True, kw_only=True):
    """Members of a gang that do not fit beside those placed before them, all for the same reasons, as they request the same.

    `names` are the first of them (`namespace/name`, or `reservation <name>`), `count` is how many there are. `reasons` are
    those of `nodes` nodes: all, or those of one domain of the network (`where`), where the gang must be in one. `wakes_on`:
    where it is not that of the waiting event.
    """

    names: tuple[str, ...] = ()
    count: Count = 0
    where: str = ""
    nodes: Count = 0
    reasons: tuple[WaitingReason, ...] = ()
    wakes_on: tuple[str, ...] = ()


class Victim(Part, frozen=True, kw_only=True):
    """A pod of lower priority that shall end so that a nominated pod has room.

    `violates_budget`: every choice violates its disruption budget, so its eviction ignores the budget.
    """

    namespace: str
    name: str
    uid: str
    priority: Int32 = 0
    violates_budget: bool = False


class Nomination(Part, frozen=True, kw_only=True):
    """The node on which a waiting pod gets room by preemption.

    The room counts as occupied, for pods of the same or a lower priority. `victims` were on the node at `at`, when the
    node was chosen; `attempts` counts the choices in a row: another one is made once all victims have had their time, which
    doubles from 1 s to 10 s. `reservation`: the one on the node in which the pod gets its room; None: beside all of them.
    """

    node: str
    at: datetime
    attempts: Count = 1
    victims: tuple[Victim, ...] = ()
    reservation: ReservationUsed | None = None


class Hold(Part, frozen=True, kw_only=True):
    """The node with room reserved for a job at the queue's head: pods behind it are placed there only beside that room.

    The node was chosen at `at`. No pod is preempted: the room becomes free as pods end by themselves. `reservation`: the one on
    the node in which the pod gets its room; None: beside all of them.
    """

    node: str
    at: datetime
    reservation: ReservationUsed | None = None


class Waiting(Payload, frozen=True, kw_only=True):
    """Subject `waiting.<namespace>.<pod>`: why the pod is not placed, and what would change that.

    `nodes` is how many nodes there are; `wakes_on` the subjects (with NATS' wildcards) whose events can change the
    answer; `message` is the text of the pod's PodScheduled condition (`condition_message` adds members and hold), as
    kube-scheduler and Koordinator word it. `priority` is the pod's; `nomination` the node where victims make room; `hold` the
    node with room reserved for it as the queue's head; `member` the pod (`namespace/name`) or `reservation <name>` that all
    of this is about, where a gang waits because that one of its members does not fit.
    `members` are all members of the gang that do not fit, if those before them are placed, as of when this was stored; of
    `members_not_tried` further ones that is not known.
    Stored again when the nomination or `hold` changes, when the set of (code, resource) changes, at most once a second, or when
    figures changed and 30 s have passed.
    """

    TYPE = "cotenant.waiting.v1"
    SUBJECT = "waiting.{namespace}.{name}"

    namespace: str
    name: str
    uid: str
    nodes: Count = 0
    reasons: tuple[WaitingReason, ...] = ()
    wakes_on: tuple[str, ...] = ()
    message: str = ""
    priority: Int32 = 0
    nomination: Nomination | None = None
    hold: Hold | None = None
    member: str = ""
    members: tuple[RefusedMembers, ...] = ()
    members_not_tried: Count = 0

    @property
    def codes(self) -> frozenset[tuple[str, str]]:
        """The set of reason codes with their resources."""
        return frozenset((reason.code, reason.resource) for reason in self.reasons)


def reasons_text(reasons: Sequence[WaitingReason], nodes: int) -> str:
    """Return reasons in words: `0/4 nodes: 3 batch-cpu short by 1500m, 1 cpu usage 71% > 65%`."""
    of_pod = [reason.detail or reason.code for reason in reasons if not reason.count]
    of_nodes = [_of_nodes(reason) for reason in reasons if reason.count]
    if of_nodes or not of_pod:
        of_pod.append(f"0/{nodes} nodes" + (f": {', '.join(of_nodes)}" if of_nodes else ""))
    return "; ".join(of_pod)


def _of_nodes(reason: WaitingReason) -> str:
    at = (f"on {reason.node}" if reason.count == 1 else f"(nearest: {reason.node})") if reason.node else ""
    parts = (str(reason.count), reason.resource.rpartition("/")[2], reason.detail or reason.code, at)
    return " ".join(part for part in parts if part)


def waiting_line(waiting: Waiting) -> str:
    """Return one line on why a pod waits: the reasons, of which member of its gang they are, and where it gets room."""
    lines = [reasons_text(waiting.reasons, waiting.nodes)]
    if waiting.member not in ("", f"{waiting.namespace}/{waiting.name}"):
        what = waiting.member if waiting.member.startswith("reservation ") else f"pod {waiting.member}"
        lines[0] = f"{what} of its gang does not fit: {lines[0]}"
    return "; ".join([*lines, *room_lines(waiting)])


def room_lines(waiting: Waiting) -> list[str]:
    """Return where a pod gets room, if anywhere."""
    nominated = [nomination_line(waiting.nomination)] if waiting.nomination is not None else []
    return [*nominated, hold_line(waiting.hold)] if waiting.hold is not None else nominated


def hold_line(hold: Hold) -> str:
    """Return where room is reserved for a pod."""
    where = f"{hold.node} in reservation {hold.reservation.name}" if hold.reservation is not None else hold.node
    return f"room is kept on {where}, as it is first in the queue"


def members_line(members: RefusedMembers) -> str:
    """Return which members of a gang do not fit, and why: `default/a, default/b do not fit: 0/2 nodes: 2 cpu short by 1`."""
    more = members.count - len(members.names)
    names = ", ".join(members.names) + (f" and {more} more like {'it' if len(members.names) == 1 else 'them'}" if more else "")
    verb = "does" if members.count == 1 else "do"
    where = f" in {members.where}" if members.where else ""
    return f"{names} {verb} not fit{where}: {reasons_text(members.reasons, members.nodes)}"


def with_members(message: str, member: str, members: Sequence[RefusedMembers], not_tried: int) -> str:
    """Return a message about a gang that waits with the members that do not fit; `member` is the one that it is about."""
    if [one.names for one in members if one.count] in ([], [(member,)]) and not not_tried:
        return message
    lines = [members_line(one) for one in members]
    if not_tried:
        lines.append(f"{not_tried} further {'members were' if not_tried > 1 else 'member was'} not tried")
    return f"{message.rstrip('.')}. Of its gang: {'; '.join(lines)}."


def condition_message(waiting: Waiting) -> str:
    """Return the text of the pod's PodScheduled condition: the scheduler's words, the members of its gang that do not fit, and
    where room is reserved for it."""
    message = with_members(waiting.message, waiting.member, waiting.members, waiting.members_not_tried)
    return message if waiting.hold is None else f"{message} In the queue: {hold_line(waiting.hold)}."


def nomination_line(nomination: Nomination) -> str:
    """Return where a pod gets room and which pods make it: `nominated to n3, which pods of lower priority leave: default/a`."""
    victims = nomination.victims
    if not victims:
        return f"nominated to {nomination.node}, where pods are ending"
    shown = ", ".join(f"{victim.namespace}/{victim.name}" for victim in victims[:VICTIMS_SHOWN])
    more = f" and {len(victims) - VICTIMS_SHOWN} others" if len(victims) > VICTIMS_SHOWN else ""
    return f"nominated to {nomination.node}, which pods of lower priority leave: {shown}{more}"

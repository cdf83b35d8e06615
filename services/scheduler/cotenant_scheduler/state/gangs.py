"""Gangs in the scheduler: members, what each gang requires, which gangs wait for one another.

In: pods (their labels, annotations, whether they have a node) and PodGroups, in any order. Out: the group of a queued pod,
whether a group may be tried, and whether enough of it was placed. Rules, and the texts of refusals: Koordinator's Coscheduling
plugin. Different from it:

    requirements that pods state come from the oldest pod (then by name) with a minimum that can be read, whichever came first:
    the state is the same after a restart
    a group is satisfied while a member has a node. (Koordinator resets it only when it restarts.)
    a group is one entry of the queue, whose members are tried in queue order and stored in one batch: there is no
    representative, no permit to wait in, and nothing is held for a group that waits, so that two gangs cannot deadlock

Bound: one Gang per gang with members or a PodGroup, one GangPod per member.

Over 300 lines: members, requirements and groups of gangs are derived from one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated

import msgspec

from cotenant.api.objects.pod_group import PodGroup
from cotenant.domain.gangs import (
    LABEL_POD_GROUP,
    GangError,
    GangSpec,
    MatchPolicy,
    Mode,
    gang_id,
    gang_name,
    of_pod,
    of_pod_group,
)
from cotenant.events.node.runs import RunPhase
from cotenant.model.values import Value
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.reading.shapes import ParsedPod

MAX_TIMEOUT_SECONDS = 86_400 * 3650


class CoschedulingArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Defaults of gangs."""

    default_timeout: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMEOUT_SECONDS)] = 600
    """Seconds that a gang may wait; shown, as nothing is held for a gang that waits."""
    default_match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED


class GangPod(Value, frozen=True):
    """A member. `bound`: it has a node; `run`: what its executor reports, None while it does not."""

    created: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    bound: bool
    run: RunPhase | None = None

    def states_as(self, other: GangPod) -> bool:
        """Return whether both make the same statements about their gang."""
        return (self.created, self.labels, self.annotations) == (other.created, other.labels, other.annotations)


class Gang:
    """One gang. `spec` is None while its minimum is unknown."""

    __slots__ = ("bound", "id", "members", "pod_group", "pod_group_sequence", "spec")

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.members: dict[PodKey, GangPod] = {}
        self.bound = 0
        """How many members have a node."""
        self.pod_group: PodGroup | None = None
        self.pod_group_sequence = 0
        self.spec: GangSpec | None = None

    def stated(self, args: CoschedulingArgs) -> GangSpec | None:
        """Return what its PodGroup requires, else what its oldest pod states."""
        wait, policy = timedelta(seconds=args.default_timeout), args.default_match_policy
        if self.pod_group is not None:
            spec = self.pod_group.spec
            return of_pod_group(
                self.id,
                spec.min_member,
                spec.schedule_timeout_seconds,
                self.pod_group.metadata.annotations,
                default_wait=wait,
                default_policy=policy,
            )
        for _, _, pod in sorted((pod.created, key, pod) for key, pod in self.members.items() if _names_no_pod_group(pod)):
            try:
                return of_pod(self.id, pod.labels, pod.annotations, default_wait=wait, default_policy=policy)
            except GangError:
                continue
        return None


def _names_no_pod_group(pod: GangPod) -> bool:
    return not pod.labels.get(LABEL_POD_GROUP)


class GangGroup:
    """The group of a queued member: the pods of all gangs of its group. See `framework.plugin.Together`."""

    __slots__ = ("_gangs", "name")

    def __init__(self, gangs: GangCache, name: str) -> None:
        self._gangs = gangs
        self.name = name

    def missing(self, members: Collection[PodKey]) -> str:
        """Return why none of the members may be tried yet; empty if they may."""
        first = min(members)
        return self._gangs.refusal(self._gangs.of_pod[first], first)

    def enough(self, placed: Collection[PodKey], members: Collection[PodKey]) -> bool:  # noqa: ARG002
        """Return whether what was placed may be stored: every gang of the group has its minimum."""
        return bool(placed) and self._gangs.permits(self._gangs.of_pod[next(iter(placed))], placed)

    def gives_up(self, refused: PodKey) -> bool:
        """Return whether the others wait too because a member does not fit."""
        return self._gangs.rejects(self._gangs.of_pod[refused])

    def gang_of(self, pod: PodKey) -> str:
        """Return the id of a member's gang."""
        return self._gangs.of_pod[pod]


class GangCache:
    """All gangs."""

    def __init__(self, args: CoschedulingArgs | None = None) -> None:
        self._args = args or CoschedulingArgs()
        self.gangs: dict[str, Gang] = {}
        self.of_pod: dict[PodKey, str] = {}
        """The gang of each member."""
        self._groups: dict[str, set[str]] = {}
        """Gangs by the id of their group."""
        self._together: dict[str, GangGroup] = {}
        self._dirty: set[str] = set()
        """Gangs whose members or PodGroup changed since `settle`."""
        self._moved: set[str] = set()
        """Gangs of which a member got a node or lost it since `settle`."""
        self.unreported: set[str] = set()
        """Gangs of which anything changed since their status was computed (`cycle.pod_groups`)."""
        self._left: set[str] = set()
        """Groups that a gang has left since `settle`, as it ended."""
        self._satisfied: set[str] = set()
        """Groups of which a member has a node, as of `settle`."""

    # -- folding -----------------------------------------------------------------------------------------------------

    def put(self, key: PodKey, pod: GangPod | None, namespace: str = "") -> None:
        """Take over a pod; None: it is gone. Pods without a gang are not recorded. `namespace`: of a reserve pod, whose key
        names none."""
        name = gang_name(pod.labels, pod.annotations) if pod is not None and key[1] else ""
        identity = gang_id(namespace or key[0], name) if name else ""
        before = self.of_pod.get(key, "")
        if before and before != identity:
            self._leave(key, before)
        if pod is None or not identity:
            return
        gang = self._gang(identity)
        known = gang.members.get(key)
        if known == pod:
            return
        gang.bound += pod.bound - (known.bound if known is not None else False)
        gang.members[key] = pod
        self.of_pod[key] = identity
        self.unreported.add(identity)
        if known is None or not known.states_as(pod):
            self._dirty.add(identity)
        if known is None or known.bound != pod.bound:
            self._moved.add(identity)

    def put_pod_group(self, identity: str, pod_group: PodGroup | None, sequence: int = 0) -> None:
        """Take over a PodGroup; None: it was deleted."""
        gang = self._gang(identity)
        gang.pod_group, gang.pod_group_sequence = pod_group, sequence
        self._dirty.add(identity)
        self.unreported.add(identity)
        self._drop_if_empty(gang)

    def _leave(self, key: PodKey, identity: str) -> None:
        gang = self.gangs[identity]
        gang.bound -= gang.members.pop(key).bound
        del self.of_pod[key]
        self._dirty.add(identity)
        self.unreported.add(identity)
        self._drop_if_empty(gang)

    def _gang(self, identity: str) -> Gang:
        gang = self.gangs.get(identity)
        if gang is None:
            gang = self.gangs[identity] = Gang(identity)
        return gang

    def _drop_if_empty(self, gang: Gang) -> None:
        if not gang.members and gang.pod_group is None:
            self._left.add(self._leave_group(gang))
            self._dirty.discard(gang.id)
            self._moved.discard(gang.id)
            del self.gangs[gang.id]

    def settle(self) -> Iterator[PodKey]:
        """Finish folding: yield the pods of groups whose rules changed, which have to be queued again."""
        if not (self._dirty or self._left or self._moved):
            return
        concerned = {group for group in self._left if group in self._groups}
        groups = set(self._left)
        for identity in self._dirty:
            gang = self.gangs[identity]
            spec = gang.stated(self._args)
            if spec != gang.spec:
                concerned.add(self._leave_group(gang))
                gang.spec = spec
                self._groups.setdefault(self._group_of(identity), set()).add(identity)
                concerned.add(self._group_of(identity))
            groups.add(self._group_of(identity))
        groups.update(self._group_of(identity) for identity in self._moved)
        self._moved.clear()
        for group in groups | concerned:
            satisfied = any(self.gangs[identity].bound for identity in self._groups.get(group, ()))
            if satisfied != (group in self._satisfied):
                (self._satisfied.add if satisfied else self._satisfied.discard)(group)
                concerned.add(group)
        self._dirty.clear()
        self._left.clear()
        for group in sorted(concerned):
            for identity in sorted(self._groups.get(group, ())):
                yield from sorted(self.gangs[identity].members)

    def _leave_group(self, gang: Gang) -> str:
        """Take a gang out of its group; return the group's id."""
        group = self._group_of(gang.id)
        of = self._groups.get(group, set())
        of.discard(gang.id)
        if not of:
            self._groups.pop(group, None)
            self._together.pop(group, None)
        return group

    def _group_of(self, identity: str) -> str:
        gang = self.gangs.get(identity)
        return gang.spec.group_id if gang is not None and gang.spec is not None else identity

    # -- asking ------------------------------------------------------------------------------------------------------

    def together(self, key: PodKey, facts: ParsedPod | None = None) -> GangGroup | None:  # noqa: ARG002
        """Return the group of a queued pod; None: it is placed alone, as it has no gang, or one that is
        satisfied already and may be anywhere in the network."""
        identity = self.of_pod.get(key)
        if identity is None:
            return None
        if self._once_satisfied(identity) and not any(one.spec and one.spec.gather for one in self.group(identity)):
            return None
        group = self._group_of(identity)
        found = self._together.get(group)
        if found is None:
            found = self._together[group] = GangGroup(self, group)
        return found

    def group(self, identity: str) -> Iterator[Gang]:
        """Walk the gangs of a gang's group that are there."""
        return self._present(self._named(identity))

    def satisfied(self, identity: str) -> bool:
        """Return whether a member of the gang's group has a node."""
        spec = self.gangs[identity].spec
        # A loop: it runs for each pod that is queued, placed or counted.
        for one in spec.groups if spec is not None else (identity,):
            gang = self.gangs.get(one)
            if gang is not None and gang.bound:
                return True
        return False

    def _once_satisfied(self, identity: str) -> bool:
        spec = self.gangs[identity].spec
        return spec is not None and spec.match_policy is MatchPolicy.ONCE_SATISFIED and self.satisfied(identity)

    def _named(self, identity: str) -> tuple[str, ...]:
        """The gangs that the gang's requirements name."""
        spec = self.gangs[identity].spec
        return tuple(sorted(spec.groups)) if spec is not None else (identity,)

    def _present(self, identities: Iterable[str]) -> Iterator[Gang]:
        return (self.gangs[identity] for identity in identities if identity in self.gangs)

    def refusal(self, identity: str, pod: PodKey) -> str:
        """Return why no member of the gang's group may be tried; empty if they may. The text is Koordinator's."""
        gang, name = self.gangs.get(identity), "/".join(pod)
        if gang is None:
            return f"can't find gang, gangName: {identity}, podName: {name}"
        if gang.spec is None:
            return f"gang has not init, gangName: {identity}, podName: {name}"
        if self._complete(gang.spec.groups) or self._once_satisfied(identity):
            return ""
        group = self._named(identity)
        absent = [one for one in group if one not in self.gangs]
        unready = [one.id for one in self._present(group) if one.spec is None]
        short = any(one.spec is not None and len(one.members) < one.spec.min_member for one in self._present(group))
        parts = [f"memberGangs {_go_list(absent)} doesn't exists"] if absent else []
        parts += [f"memberGangs {_go_list(unready)} has not init"] if unready else []
        parts += [f"memberGangs {_go_list(group)} child pod not collect enough"] if short else []
        if not parts:
            return ""
        return f"gangGroup {_go_list(group)} basic check: {', '.join(parts)}, current gang: {identity}, podName: {name}"

    def _complete(self, identities: Iterable[str]) -> bool:
        """Return whether the gangs are known and have the pods that they require. A decision asks this of each waiting gang."""
        for one in identities:
            gang = self.gangs.get(one)
            if gang is None or gang.spec is None or len(gang.members) < gang.spec.min_member:
                return False
        return True

    def permits(self, identity: str, placed: Collection[PodKey]) -> bool:
        """Return whether the pods that were placed are enough for each gang that the gang's requirements name."""
        count: dict[str, int] = {}
        for key in placed:
            count[self.of_pod[key]] = count.get(self.of_pod[key], 0) + 1
        for one in self._named(identity):
            gang = self.gangs.get(one)
            if gang is None or gang.spec is None or not self._valid(gang, count.get(one, 0)):
                return False
        return True

    def _valid(self, gang: Gang, placed: int) -> bool:
        spec = gang.spec
        assert spec is not None
        if spec.match_policy is MatchPolicy.ONLY_WAITING:
            return placed >= spec.min_member
        if spec.match_policy is MatchPolicy.WAITING_AND_RUNNING:
            return placed + gang.bound >= spec.min_member
        return placed >= spec.min_member or self.satisfied(gang.id)

    def rejects(self, identity: str) -> bool:
        """Return whether a member that no node takes makes the others of its group wait too."""
        gang = self.gangs.get(identity)
        spec = gang.spec if gang is not None else None
        return spec is not None and spec.mode is Mode.STRICT and not self._once_satisfied(identity)


def _go_list(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"

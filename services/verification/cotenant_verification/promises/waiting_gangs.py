"""Promise 12 for gangs: when idle, no gang waits that fits as a whole, nor a pod of one that has begun.

In: waiting pods and the gangs that their manifests and PodGroups state, and the filters of the independent check, now and
JUST_NOW ago. A gang group fits if its members can be put on nodes one after the other, each where no filter refuses it beside
those before it, until every gang of the group has what its match policy asks for: members of a gang in chaos runs request the
same and have no constraints, so the order does not matter. By the policy once-satisfied, each further pod of a group of which a
pod has a place is placed by itself. A gang whose PodGroup does not exist waits for it, and so do the other gangs of its group,
also if none of its own pods waits; and a group waits for those of its gangs that have no pods. Left out are nodes that have
just changed, those with reservations, and those where room is held for a pod of another group; room that is held for the group
itself is its own. So this covers the queue's head, too: a gang that is kept room and fits there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime

from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.gangs import MatchPolicy
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant.model.subjects import pod_subject, waiting_subject
from cotenant_verification.bench.audit.rooms import need_of
from cotenant_verification.checks.filters import Filters
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.needs import gates_of
from cotenant_verification.promises.filters import JUST_NOW, now_and_before, rooms_of
from cotenant_verification.promises.gangs import StatedGang, gang_of

PodKey = tuple[str, str]


def no_waiting_gang_fits(moment: Moment) -> Wrong:
    """In the idle phase."""
    view = moment.view
    groups, gangs, had = _groups(view)
    for group, members in sorted(groups.items(), key=lambda entry: sorted(entry[0])):
        if _waits_for_something_else(moment, members.keys()):
            continue
        begun = any(had[gang] for gang in group)
        one_by_one = begun and all(gangs[gang].policy == MatchPolicy.ONCE_SATISFIED for gang in members.values())
        # Once satisfied, a group is not looked at as a whole any more: only the own PodGroup of a pod counts.
        asked = set(members.values()) if one_by_one else group & gangs.keys()
        if any(gangs[gang].least is None for gang in asked):
            moment.counts["gangs waiting for their PodGroup"] += 1
            continue
        if not one_by_one and not group <= gangs.keys():
            moment.counts["gangs waiting for members"] += 1
            continue
        needed = {gang: gangs[gang].needed(had[gang], begun=begun) for gang in group if gang in gangs}
        if not _suffices(Counter(members.values()), needed):
            moment.counts["gangs waiting for members"] += 1
            continue
        moment.counts["gangs refused by nodes"] += 1
        present, earlier, changed, _ = now_and_before(moment)
        nodes = sorted(present.facts.keys() - changed - _promised_to_others(view, members.keys()))
        for filters, at in ((present, moment.now), (earlier, moment.now - JUST_NOW)):
            placed = _placed(view, filters, members, nodes, at)
            if not _suffices(placed, needed):
                break
        else:
            first = min(members)
            names, counts = ", ".join(sorted(group)), sum(placed.values())
            event = view.last[waiting_subject(*first)]
            said = event.data.message if isinstance(event.data, Waiting) else ""
            yield pod_subject(*first), f"gang {names} waits ({said}) although {counts} of its pods fit together"


def _suffices(pods: Counter[str], needed: Mapping[str, int]) -> bool:
    """Whether there are pods, of each gang as many as it needs."""
    return pods.total() > 0 and all(pods[gang] >= least for gang, least in needed.items())


def _groups(view: LogView) -> tuple[dict[frozenset[str], dict[PodKey, str]], dict[str, StatedGang], Counter[str]]:
    """By gang group, the gangs of its pods without a place; each gang as it is stated; how many of its pods have a place."""
    found: dict[frozenset[str], dict[PodKey, str]] = defaultdict(dict)
    gangs: dict[str, StatedGang] = {}
    had: Counter[str] = Counter()
    for key, head in view.pods.items():
        stored = view.last[pod_subject(*key)].data
        if not isinstance(stored, ObjectStored):
            continue
        gang = gang_of(view, stored.object)
        if gang is None:
            continue
        gangs[gang.name] = gang
        if view.places[head.metadata.uid]:
            had[gang.name] += 1
            continue
        over = head.metadata.deletion_timestamp is not None or head.metadata.uid in view.ended_at
        if not over and not gates_of(stored.object):
            found[gang.group][key] = gang.name
    return found, gangs, had


def _waits_for_something_else(moment: Moment, members: Collection[PodKey]) -> bool:
    """Whether a member waits for its predecessor, or has just been stored."""
    for key in members:
        event = moment.view.last.get(waiting_subject(*key))
        stored = moment.view.last[pod_subject(*key)]
        if event is None or not isinstance(event.data, Waiting) or moment.now - (stored.time or moment.now) < JUST_NOW:
            return True
        if "predecessor" in {reason.code for reason in event.data.reasons}:
            return True
    return False


def _promised_to_others(view: LogView, members: Collection[PodKey]) -> set[str]:
    """The nodes with a reservation, and those where room is held for another pod."""
    found = {node for node, shares in view.shares.items() if shares}
    for waiting in view.kept_rooms.values():
        if (waiting.namespace, waiting.name) not in members:
            found.update(rooms_of(waiting))
    return found


def _placed(
    view: LogView, filters: Filters, members: dict[PodKey, str], nodes: list[str], at: datetime
) -> Counter[str]:
    """Put members on nodes; return how many of each gang found one."""
    placed: Counter[str] = Counter()
    for key, gang in sorted(members.items()):
        pod = view.pod(*key)
        need = need_of(pod, "")
        refusal = filters.judge(need, at)
        node = next((node for node in nodes if not refusal(node)), None)
        if node is None:
            continue
        namespace, name = key
        requests = pod_requests(pod)
        filters.add(
            need, Placement(node=node, namespace=namespace, name=name, uid=pod.metadata.uid, requests=requests, bound_at=at)
        )
        placed[gang] += 1
    return placed

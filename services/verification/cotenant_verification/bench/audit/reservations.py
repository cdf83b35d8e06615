"""The independent check of reservations: what they hold is for their owners alone, is given once or often, and does not leak.

In: Reservations, their shares of nodes and their statuses, pods, and the placements that use shares, in LOG's order. Out:
what of a node is kept from a pod, and findings. After a placement the pods of its node, and what is left of each share, fit
into the node; a pod that uses a reservation takes from what is left of it first, and a pod with reservation affinity uses one.
Which pod may use which: `reservation_rules`. A share that ends in the commit of a placement counts for that placement.

Unsupported features (pre-allocation, another size when bound, pods that ignore or act as reservations) are errors, not
ignored. Expiry is not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.objects.reservation import Reservation, decode_reservation
from cotenant.domain.reservations.names import (
    ANNOTATION_AFFINITY,
    ANNOTATION_EXACT_MATCH,
    ANNOTATION_RESIZE_ALLOCATABLE,
    LABEL_IGNORED,
    LABEL_OPERATING_MODE,
    POLICY_DEFAULT,
)
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant.model.names import RESOURCE_PODS
from cotenant_verification.bench.audit.reservation_rules import kept_inside, needs_one, overdraws, refuses


class _Ended(msgspec.Struct, frozen=True):
    """A share that has ended, and the commit in which it did."""

    share: ReservationShare
    commit: int


class ReservationCheck:
    """The shares of nodes and who uses them."""

    def __init__(self) -> None:
        self.any = False
        """Whether the log has any reservation; without one pods are not kept."""
        self._declared: dict[str, Reservation] = {}
        self._pods: dict[str, Pod] = {}
        """By name, without their specs."""
        self._shares: dict[str, dict[str, ReservationShare]] = {}
        """Node to reservation to its share."""
        self._ending: dict[str, ReservationShare] = {}
        """By reservation, the last message of a share that has ended."""
        self._ended: dict[tuple[str, str], _Ended] = {}
        self._statuses: dict[str, ReservationStatus] = {}
        self._users: dict[str, dict[str, Mapping[str, int]]] = {}
        """By the reservation's uid, what each pod requests."""

    def will_end(self, data: ReservationShare) -> None:
        """Note that LOG holds the end of a share: it has removed the share itself, which counts from its Reservation on."""
        self._ending[data.name] = data

    def declared(self, document: msgspec.Raw) -> None:
        """Take a Reservation; raises ValueError for one that the check does not support."""
        reservation = decode_reservation(document)
        spec, name = reservation.spec, reservation.metadata.name
        if spec.pre_allocation or ANNOTATION_RESIZE_ALLOCATABLE in reservation.metadata.annotations:
            raise ValueError(f"the check does not support reservations like {name}")
        self._declared[name] = reservation
        ending = self._ending.get(name)
        if ending is not None and ending.uid == reservation.metadata.uid and spec.template is not None:
            held = pod_requests(Pod(spec=spec.template.spec))
            self._shares.setdefault(ending.node, {})[name] = msgspec.structs.replace(ending, allocatable=held)

    def shared(self, data: ReservationShare, tombstone: bool, commit: int) -> Iterator[str]:
        """Take a share of a node, or its end; yield what is wrong with its place. `commit`: the number of the scheduler's
        commit."""
        there = self._shares.setdefault(data.node, {})
        if tombstone:
            if (share := there.pop(data.name, None)) is not None:
                self._ended[data.node, data.name] = _Ended(share, commit)
            return
        if data.name not in there:
            yield from self._misplaced(data)
        there[data.name] = data

    def _misplaced(self, data: ReservationShare) -> Iterator[str]:
        """One of the policy Default is on a node with others of that policy only; one that names its node is there."""
        own = self._declared.get(data.name)
        if own is None:
            return
        wanted = own.spec.template.spec.node_name if own.spec.template is not None else ""
        if wanted and wanted != data.node:
            yield f"reservation {data.name} is on {data.node}, and names {wanted}"
        for name in self._shares[data.node]:
            other = self._declared.get(name)
            if other is None or self._used_up(other):
                continue
            policies = {own.spec.allocate_policy, other.spec.allocate_policy}
            if len(policies) > 1 and POLICY_DEFAULT in policies:
                yield f"reservation {data.name} is on {data.node} beside {name}, whose policy conflicts"

    def stated(self, data: ReservationStatus, tombstone: bool) -> None:
        """Take a status, or its end."""
        if tombstone:
            self._statuses.pop(data.name, None)
        else:
            self._statuses[data.name] = data

    def submitted(self, pod: Pod) -> None:
        """Take a pod; raises ValueError for one that the check does not support."""
        metadata = pod.metadata
        if LABEL_IGNORED in metadata.labels or LABEL_OPERATING_MODE in metadata.labels:
            raise ValueError(f"the check does not support pods that ignore or act as reservations: {metadata.name}")
        if self.any:
            self._pods[metadata.name] = Pod(metadata=metadata)

    def alike(self, name: str) -> Hashable:
        """Return what decides, beside its template, which reservations a pod may use."""
        pod = self._pods.get(name)
        if pod is None:
            return ()
        if any(rule.object is not None for each in self._declared.values() for rule in each.spec.owners):
            return name
        annotations = pod.metadata.annotations
        owners = tuple((each.uid, each.name, each.kind, each.api_version) for each in pod.metadata.owner_references)
        return owners, annotations.get(ANNOTATION_AFFINITY), annotations.get(ANNOTATION_EXACT_MATCH)

    def kept_from(self, node: str, requests: Mapping[str, int], uid: str = "") -> Counter[str]:
        """Return what the shares of a node keep from a pod. `uid`: of the reservation that it uses."""
        kept: Counter[str] = Counter()
        for share in self._shares.get(node, {}).values():
            used = self._used(share.uid)
            mine = share.uid == uid
            inside = self._inside(share) if mine else {}
            for name, held in share.allocatable.items():
                left = max(0, held - used[name])
                kept[name] += left - (min(requests.get(name, 0), max(0, left - inside.get(name, 0))) if mine else 0)
            kept[RESOURCE_PODS] += not mine
        return kept

    def _inside(self, share: ReservationShare) -> Mapping[str, int]:
        reservation = self._declared.get(share.name)
        return kept_inside(reservation) if reservation is not None else {}

    def _used(self, uid: str) -> Counter[str]:
        used: Counter[str] = Counter()
        for requests in self._users.get(uid, {}).values():
            used.update(requests)
        return used

    def usable(
        self, node: str, name: str, requests: Mapping[str, int], labels: Mapping[str, str]
    ) -> Iterator[str]:
        """Yield the uids of the reservations of a node with these labels that a waiting pod may use; an empty one if it may do
        without."""
        pod = self._pods.get(name)
        if pod is None or not needs_one(pod):
            yield ""
        for share in self._shares.get(node, {}).values():
            reservation = self._declared.get(share.name)
            if reservation is not None and not self._refusal(reservation, share.allocatable, name, requests, labels):
                yield share.uid

    def _refusal(
        self,
        reservation: Reservation,
        held: Mapping[str, int],
        name: str,
        requests: Mapping[str, int],
        labels: Mapping[str, str],
    ) -> str:
        """Why a pod may not use a reservation that holds these amounts of a node with these labels; empty if it may."""
        users = self._users.get(reservation.metadata.uid, {})
        others = {other: taken for other, taken in users.items() if other != name}
        used: Counter[str] = Counter()
        for taken in others.values():
            used.update(taken)
        if reservation.spec.allocate_once is not False and others:
            return "it is allocated once and was used before"
        return refuses(reservation, self._pods[name], requests, held, labels) or overdraws(
            reservation, requests, held, used, len(others)
        )

    def placed(self, data: Placement, requests: Mapping[str, int], labels: Mapping[str, str], commit: int) -> Iterator[str]:
        """Take a placement of a pod on a node with these labels; yield what is wrong with the reservation that it uses."""
        used = data.allocation.reservation if data.allocation is not None else None
        if used is None:
            if data.name in self._pods and needs_one(self._pods[data.name]):
                yield "has reservation affinity and uses no reservation"
            return
        share = self._shares.get(data.node, {}).get(used.name)
        ended = self._ended.get((data.node, used.name))
        if ended is not None and (share is None or share.uid != used.uid) and ended.commit == commit:
            share = ended.share
        there = share is not None and share.uid == used.uid
        if not there:
            yield f"uses reservation {used.name}, which holds nothing on {data.node}"
        reservation = self._declared.get(used.name)
        if reservation is None or reservation.metadata.uid != used.uid:
            yield f"uses reservation {used.name}, which does not exist"
        else:
            held = share.allocatable if there and share is not None else requests
            if refusal := self._refusal(reservation, held, data.name, requests, labels):
                yield f"uses reservation {used.name}: {refusal}"
        self.use(used.uid, data.name, requests)

    def use(self, uid: str, name: str, requests: Mapping[str, int]) -> None:
        """A pod uses a reservation from now on; an empty uid: none."""
        self._users.setdefault(uid, {})[name] = requests

    def removed(self, name: str) -> None:
        """A pod has no placement any more."""
        for users in self._users.values():
            users.pop(name, None)

    def _used_up(self, reservation: Reservation, name: str = "") -> bool:
        """Whether it is allocated once and another pod than this uses it."""
        others = self._users.get(reservation.metadata.uid, {}).keys() - {name}
        return reservation.spec.allocate_once is not False and bool(others)

    def findings(self) -> Iterator[str]:
        """Yield what is wrong at the end: a reservation has a share or a status, and one that was used up has succeeded."""
        shares: Counter[str] = Counter(share.uid for there in self._shares.values() for share in there.values())
        for name, reservation in sorted(self._declared.items()):
            uid, status = reservation.metadata.uid, self._statuses.get(name)
            stated = status is not None and status.uid == uid
            if shares[uid] + stated != 1:
                yield f"reservation {name} has {shares[uid]} shares of nodes and {'a' if stated else 'no'} status"
            used_up = self._used_up(reservation)
            if used_up != (stated and status is not None and status.phase is ReservationPhase.SUCCEEDED):
                yield f"reservation {name} was {'' if used_up else 'not '}used up, and its phase does not say so"

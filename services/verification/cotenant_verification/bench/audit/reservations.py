"""The independent check of reservations: what they hold is for their owners alone, is given once or often, and does not leak.

In: Reservations, their shares of nodes and their statuses, and the placements that use them, in LOG's order. Out: what of a
node is kept from a pod, and findings. After a placement the pods of its node, and what is left of each share, fit into the
node; a pod that uses a reservation takes from what is left of it first. A share that ends in the commit of a placement counts
for that placement.

Unsupported features (owners by name or controller, affinity, Restricted, expiry) are errors, not ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.objects.reservation import Reservation, decode_reservation
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY, POLICY_RESTRICTED
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant.model.names import RESOURCE_PODS


class _Ended(msgspec.Struct, frozen=True):
    """A share that has ended, and the commit in which it did."""

    uid: str
    commit: int


class ReservationCheck:
    """The shares of nodes and who uses them."""

    def __init__(self) -> None:
        self._declared: dict[str, Reservation] = {}
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
        if spec.allocate_policy == POLICY_RESTRICTED or any(rule.object or rule.controller for rule in spec.owners):
            raise ValueError(f"the check does not support reservations like {name}")
        self._declared[name] = reservation
        ending = self._ending.get(name)
        if ending is not None and ending.uid == reservation.metadata.uid and spec.template is not None:
            held = pod_requests(Pod(spec=spec.template.spec))
            self._shares.setdefault(ending.node, {})[name] = msgspec.structs.replace(ending, allocatable=held)

    def shared(self, data: ReservationShare, tombstone: bool, commit: int) -> None:
        """Take a share of a node, or its end. `commit`: the number of the scheduler's commit."""
        there = self._shares.setdefault(data.node, {})
        if not tombstone:
            there[data.name] = data
        elif there.pop(data.name, None) is not None:
            self._ended[data.node, data.name] = _Ended(data.uid, commit)

    def stated(self, data: ReservationStatus, tombstone: bool) -> None:
        """Take a status, or its end."""
        if tombstone:
            self._statuses.pop(data.name, None)
        else:
            self._statuses[data.name] = data

    def kept_from(self, node: str, requests: Mapping[str, int], uid: str = "") -> Counter[str]:
        """Return what the shares of a node keep from a pod. `uid`: of the reservation that it uses."""
        kept: Counter[str] = Counter()
        for share in self._shares.get(node, {}).values():
            used = self._used(share.uid)
            mine = share.uid == uid
            for name, held in share.allocatable.items():
                kept[name] += max(0, held - used[name] - (requests.get(name, 0) if mine else 0))
            kept[RESOURCE_PODS] += not mine
        return kept

    def _used(self, uid: str) -> Counter[str]:
        used: Counter[str] = Counter()
        for requests in self._users.get(uid, {}).values():
            used.update(requests)
        return used

    def submitted(self, pod: Pod) -> None:
        """Take a pod; raises ValueError for one that the check does not support."""
        if ANNOTATION_AFFINITY in pod.metadata.annotations:
            raise ValueError(f"the check does not support pods with reservation affinity: {pod.metadata.name}")

    def usable(self, node: str, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield the uids of the reservations of a node that a waiting pod with these labels may use."""
        for share in self._shares.get(node, {}).values():
            reservation = self._declared.get(share.name)
            if reservation is not None and _is_for(reservation, labels) and not self._used_up(reservation):
                yield share.uid

    def placed(
        self, data: Placement, labels: Mapping[str, str], requests: Mapping[str, int], commit: int
    ) -> Iterator[str]:
        """Take a placement of a pod with these labels; yield what is wrong with the reservation that it uses."""
        used = data.allocation.reservation if data.allocation is not None else None
        if used is None:
            return
        share = self._shares.get(data.node, {}).get(used.name)
        ended = self._ended.get((data.node, used.name))
        there = share is not None and share.uid == used.uid
        if not there and (ended is None or (ended.uid, ended.commit) != (used.uid, commit)):
            yield f"uses reservation {used.name}, which holds nothing on {data.node}"
        reservation = self._declared.get(used.name)
        if reservation is None or reservation.metadata.uid != used.uid:
            yield f"uses reservation {used.name}, which does not exist"
        else:
            if not _is_for(reservation, labels):
                yield f"uses reservation {used.name}, whose owners do not match"
            if self._used_up(reservation, data.name):
                yield f"uses reservation {used.name}, which is allocated once and was used before"
        self._users.setdefault(used.uid, {})[data.name] = requests

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


def _is_for(reservation: Reservation, labels: Mapping[str, str]) -> bool:
    selectors = (rule.label_selector for rule in reservation.spec.owners)
    return any(
        selector is not None and all(labels.get(key) == value for key, value in selector.match_labels.items())
        for selector in selectors
    )

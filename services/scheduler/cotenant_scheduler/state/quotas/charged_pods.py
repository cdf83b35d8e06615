"""What quotas are charged for placed pods, and which pods a quota is charged for.

In: placements as they are charged and given back, the quotas that pods may have left. Out: the ledger charged, many equal pods
at once; the charges of a quota, and the pods of each. A pod is charged to the quota that its object belongs to by the quotas
there are (`QuotaIndex.member`), whichever quota its placement was decided in: a quota that is declared later gets its pods, and
one that ends loses them. Only the pods of quotas that some may have left are looked at.

A quota has few kinds of pods: a search for victims checks the kinds first. Pods are held by their charge from the first search
on: then they are read from the records once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant_scheduler.state.counting import PodKey, is_reserve
from cotenant_scheduler.state.pod_records import Charge, PlacementRecord, PodRecord
from cotenant_scheduler.state.reading.pod_traits import PodTraits
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape

CHARGES_CACHED = 4096
"""Different charges that pods share; beyond, the cache is cleared."""


class ChargedPods:
    """The pods with a placement that a quota is charged for."""

    def __init__(self, records: Mapping[PodKey, PodRecord], quotas: QuotaLedger) -> None:
        self._records = records
        self._quotas = quotas
        self._shared: dict[tuple[Shape, Membership | None, bool], Charge] = {}
        self._due: dict[Charge, int] = {}
        """Placements that the ledger is not charged for yet, by charge; negative: those to be given back."""
        self._kept = False
        """Whether there was a first search."""
        self._pods: dict[Charge, set[PodKey]] = {}
        self._charges: dict[Membership, dict[Charge, None]] = {}

    # -- charging ------------------------------------------------------------------------------------------------

    def of(self, record: PodRecord, placed: PlacementRecord) -> Charge | None:
        """Return what a pod's placement is charged with while it holds anything. Its quota follows from the pod's object, and
        from the placement once that is gone. None: the placement cannot be read."""
        facts = placed.facts
        if facts is None or facts.shape is None:
            return None
        traits = _traits(record, facts)
        membership = self._quotas.member(record.key[0], traits.quota_label)
        key = (facts.shape, membership, traits.preemptible)
        charge = self._shared.get(key)
        if charge is None:
            if len(self._shared) >= CHARGES_CACHED:
                self._shared.clear()
            charge = self._shared[key] = Charge(facts.shape, membership, traits.preemptible)
        return charge

    def is_in(self, membership: Membership | None, record: PodRecord, facts: ParsedPod) -> bool:
        """Return whether a pod, placed with these facts, belongs to this quota."""
        return self._quotas.member(record.key[0], _traits(record, facts).quota_label) == membership

    def charge(self, charge: Charge, key: PodKey) -> None:
        """Charge the ledger for a placement of the pod, when it is next settled."""
        if charge.membership is not None:
            self._due[charge] = self._due.get(charge, 0) + 1
            self.hold(charge, key)

    def give_back(self, charge: Charge, record: PodRecord) -> None:
        """Give back a placement of the pod that was charged so and is not any more, when the ledger is next settled."""
        if charge.membership is not None:
            self._due[charge] = self._due.get(charge, 0) - 1
            if all(other.charge != charge for other in record.placements.values()):
                self._let_go(charge, record.key)

    def move(self, record: PodRecord) -> None:
        """Charge a pod's placements to the quota that it belongs to now; their nodes have the same share of it as before."""
        if not record.placements or is_reserve(record.key):
            return
        for placed in record.placements.values():
            charge = placed.charge
            if charge is None:
                continue
            due = self.of(record, placed)
            if due is not None and due != charge and due.shape == charge.shape:
                placed.charge = due
                self.give_back(charge, record)
                self.charge(due, record.key)

    def move_from(self, left: Collection[Membership | None]) -> None:
        """Charge the pods of these quotas (None: those of no quota) to the quotas that they belong to now."""
        if None in left:
            for record in self._records.values():
                self.move(record)
            return
        for membership in left:
            for charge in list(self.charges_of(membership)):
                for key in list(self.held_with(charge)):
                    self.move(self._records[key])

    def settle(self) -> None:
        """Charge the ledger with what changed since, many pods at once; call it before quotas are read."""
        if not self._due:
            return
        for charge, times in self._due.items():
            if times and charge.membership is not None:
                requests = {name: amount * times for name, amount in charge.shape.requests.items()}
                self._quotas.charge(charge.membership, requests, preemptible=charge.preemptible)
        self._due.clear()

    # -- the pods of a quota -------------------------------------------------------------------------------------

    def hold(self, charge: Charge, key: PodKey) -> None:
        """Note that a placement of the pod is charged so."""
        if self._kept:
            self._hold(charge, key)

    def _hold(self, charge: Charge, key: PodKey) -> None:
        keys = self._pods.get(charge)
        if keys is None:
            keys = self._pods[charge] = set()
            assert charge.membership is not None
            self._charges.setdefault(charge.membership, {})[charge] = None
        keys.add(key)

    def _let_go(self, charge: Charge, key: PodKey) -> None:
        """No placement of the pod is charged so any more."""
        keys = self._pods.get(charge)
        if keys is None:
            return
        keys.discard(key)
        if not keys:
            del self._pods[charge]
            assert charge.membership is not None
            of_quota = self._charges[charge.membership]
            del of_quota[charge]
            if not of_quota:
                del self._charges[charge.membership]

    def charges_of(self, membership: Membership | None) -> Iterable[Charge]:
        """Return what placements of a quota are charged with, each once, in no stated order."""
        if membership is None:
            return ()
        if not self._kept:
            self._kept = True
            for key, record in self._records.items():
                for placed in record.placements.values():
                    if placed.charge is not None and placed.charge.membership is not None:
                        self._hold(placed.charge, key)
        return self._charges.get(membership, ())

    def held_with(self, charge: Charge) -> Iterable[PodKey]:
        """Return the pods that have a placement which is charged so, one of `charges_of`, in no stated order."""
        return self._pods.get(charge, ())


def _traits(record: PodRecord, placed: ParsedPod) -> PodTraits:
    known = record.facts
    return known.traits if known is not None and known.uid == placed.uid else placed.traits

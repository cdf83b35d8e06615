"""Which pods a quota is charged for, by what each is charged with.

In: a placement's charge, when it is charged and when it is given back. Out: the charges of a quota, and the pods of each. A
quota has few kinds of pods: a search for victims checks the kinds first. Nothing is held before the first
search: then it is read from the records once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cotenant.domain.quota.membership import Membership
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.pod_records import Charge, PodRecord


class ChargedPods:
    """The pods with a placement that a quota is charged for."""

    def __init__(self, records: Mapping[PodKey, PodRecord]) -> None:
        self._records = records
        self._kept = False
        """Whether there was a first search."""
        self._pods: dict[Charge, set[PodKey]] = {}
        self._charges: dict[Membership, dict[Charge, None]] = {}

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

    def let_go(self, charge: Charge, key: PodKey) -> None:
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

"""The figures of an offer, over a part of the run.

In: a load, an offer, the steps from and to. Out: `OfferFigures`.

    offered      what batch pods may request, published: core-hours, and percent of the capacity
    used         the part that batch work gets: the offer, or what services and the system leave of the machine; there is
                 always enough work
    taken back   how often a machine's offer was made smaller, for each hour of a machine, and by how much each time, in percent
                 of its capacity
    withheld     offered and not usable at that moment, because services used it: core-hours that suppression holds back
    broken       node-hours in which services and the system used at any moment (15 s) more than the offer left of the machine,
                 of all node-hours; a node-hour is one machine in one full hour
    starved      node-hours in which services got less than their demand within the request. Services precede batch and mid, so
                 with suppression within a second it is 0
"""

from __future__ import annotations

import msgspec
import numpy as np

from cotenant_verification.simulate.usage.load import MachineLoads
from cotenant_verification.simulate.usage.offers import MachineOffers
from cotenant_verification.simulate.usage.rates import STEP_SECONDS, Floats

HOUR_STEPS = 3600 // STEP_SECONDS


class OfferFigures(msgspec.Struct, frozen=True):
    """See the module."""

    lent_core_hours: float
    lent_percent: float
    used_core_hours: float
    withheld_core_hours: float
    taken_back_an_hour: float
    taken_back_percent: float
    node_hours: int
    broken_node_hours: int
    starved_node_hours: int

    @property
    def broken_percent(self) -> float:
        """Of node-hours."""
        return 100 * self.broken_node_hours / self.node_hours if self.node_hours else 0.0


def figures_of(load: MachineLoads, offer: MachineOffers, first: int, end: int) -> OfferFigures:
    """The figures of the steps from `first` on, before `end`."""
    capacity = load.capacities[:, np.newaxis].astype(np.float64)
    offered = offer.offered[:, first:end]
    wanted = load.real[:, first:end]
    left = capacity - load.system[:, np.newaxis]
    granted = np.minimum(wanted, left)
    used = np.minimum(offered, np.maximum(left - granted, 0.0))
    smaller = np.maximum(-np.diff(offered, axis=1), 0.0)
    times = int((smaller > 0).sum())
    hours = (end - first) * STEP_SECONDS / 3600 * len(load.capacities)
    room = float(capacity.sum()) * (end - first)
    requested = np.minimum(load.request[:, first:end], left)
    broken = _node_hours(wanted + load.system[:, np.newaxis] > capacity - offered)
    return OfferFigures(
        lent_core_hours=_core_hours(offered),
        lent_percent=100 * float(offered.sum()) / room if room else 0.0,
        used_core_hours=_core_hours(used),
        withheld_core_hours=_core_hours(offered - used),
        taken_back_an_hour=times / hours if hours else 0.0,
        taken_back_percent=100 * float((smaller / capacity).sum()) / times if times else 0.0,
        node_hours=broken.size,
        broken_node_hours=int(broken.sum()),
        starved_node_hours=int(_node_hours(granted < np.minimum(wanted, requested)).sum()),
    )


def _core_hours(milli: Floats) -> float:
    return float(milli.sum()) * STEP_SECONDS / 3600 / 1000


def _node_hours(moments: np.typing.NDArray[np.bool_]) -> np.typing.NDArray[np.bool_]:
    """Whether anything happened, for each machine and full hour."""
    hours = moments.shape[1] // HOUR_STEPS
    return np.asarray(moments[:, : hours * HOUR_STEPS].reshape(len(moments), hours, HOUR_STEPS).any(axis=2))

"""A tenant's share of its quota, and the resulting place of its jobs among those of other tenants.

In: the ledger with the present charges of quotas. Out: a tenant's dominant share: the highest used / runtime of any resource
of its quota's max, in millionths. The runtime is what the tenant's weight gives it of its tree, so the share is weighted by it.
The job of the tenant with the smallest share is tried next, and what is placed counts for the one after it.

Sources: dominant resource fairness (Ghodsi et al., NSDI 2011, algorithm 1); the share of a queue by what it deserves is that of
Volcano's proportion plugin.
"""

from __future__ import annotations

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant_scheduler.cycle.queue import QueueKey
from cotenant_scheduler.state.pod_records import Charge

MILLION = 1_000_000
MOST_SHARE = 1 << 40
"""The share of a tenant that uses a resource of which its runtime is 0, and the largest distinct share."""
_PRIORITIES = 1 << 32


class Shares:
    """Shares of tenants, from the present charges of their quotas."""

    def __init__(self, ledger: QuotaLedger) -> None:
        self._ledger = ledger

    def share(self, membership: Membership | None, charge: Charge | None = None, times: int = 0) -> int:
        """Return a tenant's dominant share in millionths, with so many pods more of a charge; 0 where there is no quota."""
        chain = self._ledger.chain(membership) if membership is not None else ()
        if not chain:
            return 0
        used, runtime = chain[0].used, chain[0].runtime
        more = charge.shape.requests if charge is not None else {}
        share = 0
        for name in chain[0].max:
            amount = used.get(name, 0) + times * more.get(name, 0)
            if amount > 0:
                most = runtime.get(name, 0)
                share = max(share, min(MOST_SHARE, amount * MILLION // most) if most > 0 else MOST_SHARE)
        return share

    def place(self, order: QueueKey, charge: Charge, times: int = 0) -> QueueKey:
        """Return the place of an entry among those of all tenants: its tenant's share counts first. `times`: behind so many
        entries of the same charge."""
        share = self.share(charge.membership, charge, times)
        return (share * _PRIORITIES + order[0], *order[1:])

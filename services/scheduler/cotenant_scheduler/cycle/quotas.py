"""Quotas as published, and the messages that decisions name as their causes.

In: QuotaRuntime messages. Out: the ledger with them, and `regroup` when a pod may belong to another quota from now on.
"""

from __future__ import annotations

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.events.quotas import QuotaRuntime


class Quotas:
    """The ledger, with the sequences of the messages about each quota."""

    def __init__(self) -> None:
        self.ledger = QuotaLedger()
        self.regroup = False
        """Whether any pod may have moved to another quota. Whoever has reclassified all pods clears the flag."""
        self._sequences: dict[tuple[str, str], int] = {}
        self._causes: dict[Membership, tuple[str, ...]] = {}
        """By quota, the messages about it and its ancestors."""

    def fold(self, quota: Membership, data: QuotaRuntime | None, sequence: int) -> None:
        """Take over the published state of a quota; None: it has ended."""
        self._causes.clear()
        if data is None:
            self.ledger.end(quota.tree, quota.quota)
            self._sequences.pop((quota.tree, quota.quota), None)
            self.regroup = True
            return
        before = self.ledger.published(Membership(data.quota, data.tree))
        if before is None or (before.namespace, before.namespaces) != (data.namespace, data.namespaces):
            self.regroup = True
        self.ledger.publish(data)
        self._sequences[(data.tree, data.quota)] = sequence

    def causes(self, membership: Membership) -> tuple[str, ...]:
        """Return the messages that a decision about a pod of the quota rests on."""
        known = self._causes.get(membership)
        if known is None:
            known = self._causes[membership] = tuple(
                f"LOG:{self._sequences[(membership.tree, level.name)]}"
                for level in self.ledger.chain(membership)
                if (membership.tree, level.name) in self._sequences
            )
        return known

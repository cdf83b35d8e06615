"""Quotas as declared, and the messages that decisions name as their causes.

In: ElasticQuota objects. Out: the ledger with them, and `regroup` when a pod may belong to another quota from now on.
"""

from __future__ import annotations

import msgspec

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.trees.declared import DeclaredQuotas
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.view import decode_quota
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored


class Quotas:
    """The ledger, with the sequences of the quotas' objects."""

    def __init__(self, rules: QuotaRules) -> None:
        self.ledger = QuotaLedger(rules)
        self.regroup = False
        """Whether any pod may have moved to another quota. The caller that reclassifies all pods clears the flag."""
        self._declared = DeclaredQuotas()
        self._declared.changed = False
        self._causes: dict[Membership, tuple[str, ...]] = {}
        """By quota, the messages about it and its ancestors."""

    def fold(self, namespace: str, name: str, event: Event) -> None:
        """Take a quota's object, or its end. Raises DecodeError or QuantityError; the quota then counts as absent."""
        self._causes.clear()
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self._declared.drop(namespace, name)
            return
        try:
            view = decode_quota(event.data.object)
        except Exception:
            self._declared.drop(namespace, name)
            raise
        self._declared.store(msgspec.structs.replace(view, namespace=namespace, name=name), event.sequence)

    def settle(self) -> set[Membership | None]:
        """Finish folding: other quotas make other trees. Return the quotas that pods may leave (`QuotaLedger.declare`)."""
        if not self._declared.changed:
            return set()
        self._declared.changed = False
        self.regroup = True
        return self.ledger.declare(self._declared.quotas())

    def causes(self, membership: Membership) -> tuple[str, ...]:
        """Return the messages on which a decision about a pod of the quota depends."""
        known = self._causes.get(membership)
        if known is None:
            sequences = (self._declared.sequence(level.name) for level in self.ledger.chain(membership))
            known = self._causes[membership] = tuple(f"LOG:{sequence}" for sequence in sequences if sequence)
        return known

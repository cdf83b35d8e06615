"""The sum of what the nodes offer to the quotas.

In: the sources of each node. Out: the cluster's total by resource. A node counts with its allocatable by
`cotenant.domain.node`, the amounts that pods are placed on. Cordoned and not-ready nodes count, as in Koordinator. A
terminating node does not count, whatever is written to it afterwards; this depends on the last message of its object only, so
the total is the same after a restart.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.objects.node import Node, decode_node
from cotenant.domain.node import NodeSources
from cotenant.model.amounts import minus, plus, without_zeros
from cotenant.model.quantities import QuantityError


class _Marks(View, frozen=True, kw_only=True):
    deletion_timestamp: object = None


class _Marked(View, frozen=True, kw_only=True):
    metadata: _Marks = _Marks()


_MARKED = msgspec.json.Decoder(_Marked)


def is_terminating(document: bytes | msgspec.Raw) -> bool:
    """Return whether a stored node is (with any form of the timestamp). Raises msgspec.DecodeError."""
    return _MARKED.decode(document).metadata.deletion_timestamp is not None


def counted_node(document: bytes | msgspec.Raw) -> Node | None:
    """Return the typed view of a stored Node; None if it is terminating. Raises msgspec.DecodeError."""
    return None if is_terminating(document) else decode_node(document)


class NodeTotals:
    """A mutable fold."""

    def __init__(self) -> None:
        self.counted: dict[str, dict[str, int]] = {}
        """By node that offers anything."""
        self.total: dict[str, int] = {}
        """The sum, updated by adding and subtracting whole nodes; a new dictionary on every change. Resources that no node
        offers are missing."""

    def change(self, name: str, sources: NodeSources) -> QuantityError | None:
        """Take over the sources of a node; without its object it offers nothing. Returns why it cannot be read; such a node
        does not count."""
        error: QuantityError | None = None
        try:
            after = sources.allocatable()
        except QuantityError as unreadable:
            error, after = unreadable, {}
        self.offer(name, after)
        return error

    def offer(self, name: str, amounts: dict[str, int]) -> None:
        """Take over what a node offers; nothing if it does not count."""
        before = self.counted.pop(name, {})
        if amounts:
            self.counted[name] = amounts
        if amounts != before:
            self.total = without_zeros(minus(plus(self.total, amounts), before))

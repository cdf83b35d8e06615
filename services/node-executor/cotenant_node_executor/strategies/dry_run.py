"""Dry runs: a strategy whose section says `dryRun: true` decides as ever and does nothing.

In: the section of the NodeSLO, a decision. Out: the decision without values and orders, and what it would have done, in words.
The node publishes the words on EXECUTION when they change. The strategy's memory goes on as if the decision had been carried
out nowhere, so that turning the dry run off starts from the present files.
"""

from __future__ import annotations

from cotenant.events.resources import NodeSLORendered
from cotenant_node_executor.strategies.slo_sections import raw_section
from cotenant_node_executor.strategies.strategy import Decision, Evict, Reclaim
from cotenant_node_executor.targets.address import place_text

FIELD = "dryrun"
MAX_SAID = 10
"""Things named in one text; more are counted."""


def is_dry_run(slo: NodeSLORendered | None, section: str) -> bool:
    """Return whether a section of the NodeSLO asks for a dry run. Raises ValueError where it is no object."""
    return bool(section) and raw_section(slo, section).get(FIELD) is True


def said(decision: Decision) -> tuple[str, ...]:
    """Return what a decision would do, in a stated order."""
    found = [
        f"{place_text(place) or '/'} {desired.attribute.value} = {desired.value}: {desired.why}"
        for place, values in sorted(decision.values.items(), key=lambda item: place_text(item[0]))
        for desired in values
    ]
    for order in decision.orders:
        if isinstance(order, Evict):
            found.append(f"evict pod {order.uid}: {order.why}")
        elif isinstance(order, Reclaim):
            found.append(f"reclaim from {order.group}: {order.memory_bytes} bytes: {order.why}")
        else:
            found.append(f"reset {place_text(order.place) or '/'} {order.attribute.value}: {order.why}")
    more = len(found) - MAX_SAID
    return (*found[:MAX_SAID], f"and {more} more") if more > 0 else tuple(found)


def withheld(decision: Decision) -> Decision:
    """Return the decision that is carried out in a dry run: nothing, with the words of what would have been done."""
    return Decision(memory=decision.memory, would=said(decision))

"""Feature gates: which features of strategies are on, by Koordinator's names.

In: text such as `BEMemoryEvict=true,MemoryEvict=false`. Out: the names of the gates that are on. A feature that acts only where
the NodeSLO states its configuration is on by default; off, as upstream, are BEMemoryEvict, whose threshold has a default, and
TCNetworkQoS and TerwayQoS, which act outside of control groups.
"""

from __future__ import annotations

NODE_GATES: dict[str, bool] = {
    "BEMemoryEvict": False,
    "MemoryEvict": True,
    "MemoryAllocatableEvict": True,
    "TCNetworkQoS": False,
    "TerwayQoS": False,
}
"""By name: whether it is on by default."""

DEFAULT_GATES = frozenset(name for name, on in NODE_GATES.items() if on)


def parse_gates(text: str) -> frozenset[str]:
    """Return the gates that are on. Raises ValueError that names what is wrong."""
    on = set(DEFAULT_GATES)
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        if name not in NODE_GATES:
            raise ValueError(f"feature gate {name!r} is unknown: expected one of {', '.join(sorted(NODE_GATES))}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"feature gate {part!r}: expected {name}=true or {name}=false")
        if value.lower() == "true":
            on.add(name)
        else:
            on.discard(name)
    return frozenset(on)

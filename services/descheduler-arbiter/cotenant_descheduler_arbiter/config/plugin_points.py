"""Where each plugin may be enabled, and the type of its arguments.

Source: kubernetes-sigs descheduler (deschedule and balance plugins).
"""

from __future__ import annotations

import msgspec

from cotenant_descheduler_arbiter.config import plugin_args as args

DESCHEDULE = "deschedule"
BALANCE = "balance"

POINTS: dict[str, tuple[str, type[args.PluginArgs]]] = {
    "PodLifeTime": (DESCHEDULE, args.PodLifeTimeArgs),
    "RemoveFailedPods": (DESCHEDULE, args.RemoveFailedPodsArgs),
    "RemovePodsHavingTooManyRestarts": (DESCHEDULE, args.TooManyRestartsArgs),
    "RemovePodsViolatingInterPodAntiAffinity": (DESCHEDULE, args.InterPodAntiAffinityArgs),
    "RemovePodsViolatingNodeAffinity": (DESCHEDULE, args.NodeAffinityArgs),
    "RemovePodsViolatingNodeTaints": (DESCHEDULE, args.NodeTaintsArgs),
    "RemoveDuplicates": (BALANCE, args.RemoveDuplicatesArgs),
    "RemovePodsViolatingTopologySpreadConstraint": (BALANCE, args.TopologySpreadArgs),
    "LowNodeUtilization": (BALANCE, args.LowNodeUtilizationArgs),
    "HighNodeUtilization": (BALANCE, args.HighNodeUtilizationArgs),
}
"""Extension point and arguments, by name."""


def decode_args(name: str, document: msgspec.Raw) -> args.PluginArgs:
    """Return a plugin's arguments with their defaults. Raises ValueError, with the field's name, if they are invalid."""
    _, cls = POINTS[name]
    decoded = msgspec.json.decode(document, type=cls)
    decoded.check()
    if isinstance(decoded, args.RemoveFailedPodsArgs) and decoded.min_pod_lifetime_seconds is None:
        return msgspec.structs.replace(decoded, min_pod_lifetime_seconds=args.DEFAULT_MIN_LIFETIME_SECONDS)
    return decoded

"""What pods ask of their nodes and of one another, as users of Kubernetes write it.

In: a pod's spec as a document, an entry's arguments. Out: the spec with constraints. Arguments, any of them together:

| argument | constraint |
|---|---|
| `zones` | node affinity: one of these zones (`zone-0|zone-1`) |
| `tolerates` | a toleration of the taint `dedicated` with this value |
| `port` | a host port |
| `apart`, `near` | required anti-affinity, affinity: to pods of an application, within this topology (`host`, `zone`) |
| `of` | which application that is |
| `where` | in which namespaces: `own`, `listed` (both teams), `selected` (those whose tier is gold) |
| `spread` | hard spread of the application's own pods over this topology, `skew` at most |
| `gated` | a scheduling gate; `open-gate` takes it away |
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant_console.api.client import Document, Json

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
TOPOLOGIES = {"host": HOST, "zone": ZONE}
DEDICATED = "dedicated"
GATE = "chaos.cotenant.io/wait"
TEAMS = ("team-a", "team-b")
"""Namespaces beside `default`."""
TIER = "tier"
CONSTRAINTS = frozenset({"zones", "tolerates", "port", "apart", "near", "spread", "gated", "priority"})
"""Arguments of pods by which the verdict counts them."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def constrain(spec: Document, args: Mapping[str, int | str]) -> None:
    """Write the constraints into a pod's spec."""
    affinity = spec.setdefault("affinity", {})
    assert isinstance(affinity, dict)
    if "zones" in args:
        zones: list[Json] = [*str(args["zones"]).split("|")]
        terms: list[Json] = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}]
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    for side, name in (("apart", "podAntiAffinity"), ("near", "podAffinity")):
        if side in args:
            affinity[name] = {REQUIRED: [_term(str(args[side]), args)]}
    if not affinity:
        del spec["affinity"]
    if "spread" in args:
        constraint: Document = {
            "maxSkew": int(args.get("skew", 1)),
            "topologyKey": TOPOLOGIES[str(args["spread"])],
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": str(args["app"])}},
        }
        spec["topologySpreadConstraints"] = [constraint]
    if "tolerates" in args:
        toleration: Document = {"key": DEDICATED, "operator": "Equal", "value": str(args["tolerates"])}
        spec["tolerations"] = [toleration]
    if "port" in args:
        containers = spec["containers"]
        assert isinstance(containers, list)
        assert isinstance(containers[0], dict)
        port = int(args["port"])
        containers[0]["ports"] = [{"containerPort": port, "hostPort": port, "protocol": "TCP"}]
    if "gated" in args:
        spec["schedulingGates"] = [{"name": GATE}]


def _term(topology: str, args: Mapping[str, int | str]) -> Document:
    term: Document = {"topologyKey": TOPOLOGIES[topology], "labelSelector": {"matchLabels": {"app": str(args["of"])}}}
    where = args.get("where", "own")
    if where == "listed":
        term["namespaces"] = [*TEAMS]
    elif where == "selected":
        term["namespaceSelector"] = {"matchLabels": {TIER: "gold"}}
    return term

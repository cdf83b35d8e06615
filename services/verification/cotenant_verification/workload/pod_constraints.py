"""Constraints of pods on their nodes and on one another, as users of Kubernetes write them.

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
| `domains` | of the spread: `minDomains` |
| `revision` | a label of the pod that the spread names in `matchLabelKeys`: each revision is spread by itself |
| `loose` | soft spread of the application's own pods over this topology |
| `prefers` | preferred node affinity: this zone |
| `likes`, `shuns` | preferred affinity, anti-affinity, as `near` and `apart` |
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
REVISION_LABEL = "pod-template-hash"
CONSTRAINTS = frozenset(
    {"zones", "tolerates", "port", "apart", "near", "spread", "loose", "prefers", "likes", "shuns", "gated", "priority"}
)
"""Arguments of pods by which the verdict counts them."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEIGHT = 50


def constrain(spec: Document, args: Mapping[str, int | str]) -> None:
    """Write the constraints into a pod's spec."""
    affinity = spec.setdefault("affinity", {})
    assert isinstance(affinity, dict)
    if "zones" in args:
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [_in_zones(str(args["zones"]))]}}
    if "prefers" in args:
        affinity["nodeAffinity"] = {PREFERRED: [{"weight": WEIGHT, "preference": _in_zones(str(args["prefers"]))}]}
    for side, preference, name in (("apart", "shuns", "podAntiAffinity"), ("near", "likes", "podAffinity")):
        if side in args:
            affinity[name] = {REQUIRED: [_term(str(args[side]), args)]}
        if preference in args:
            affinity[name] = {PREFERRED: [{"weight": WEIGHT, "podAffinityTerm": _term(str(args[preference]), args)}]}
    if not affinity:
        del spec["affinity"]
    for name, unsatisfiable in (("spread", "DoNotSchedule"), ("loose", "ScheduleAnyway")):
        if name in args:
            spec["topologySpreadConstraints"] = [_spread(str(args[name]), unsatisfiable, args)]
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


def _in_zones(zones: str) -> Document:
    values: list[Json] = [*zones.split("|")]
    return {"matchExpressions": [{"key": ZONE, "operator": "In", "values": values}]}


def _spread(topology: str, unsatisfiable: str, args: Mapping[str, int | str]) -> Document:
    constraint: Document = {
        "maxSkew": int(args.get("skew", 1)),
        "topologyKey": TOPOLOGIES[topology],
        "whenUnsatisfiable": unsatisfiable,
        "labelSelector": {"matchLabels": {"app": str(args["app"])}},
    }
    if "domains" in args:
        constraint["minDomains"] = int(args["domains"])
    if "revision" in args:
        constraint["matchLabelKeys"] = [REVISION_LABEL]
    return constraint


def _term(topology: str, args: Mapping[str, int | str]) -> Document:
    term: Document = {"topologyKey": TOPOLOGIES[topology], "labelSelector": {"matchLabels": {"app": str(args["of"])}}}
    where = args.get("where", "own")
    if where == "listed":
        term["namespaces"] = [*TEAMS]
    elif where == "selected":
        term["namespaceSelector"] = {"matchLabels": {TIER: "gold"}}
    return term

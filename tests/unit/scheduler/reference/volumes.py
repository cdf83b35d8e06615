"""Where a pod with claims may go, by plain loops over documents: one node, one claim, one volume at a time.

It reads the last messages and shares no code with the scheduler's volumes, columns or plugins. Nodes have the labels
`kubernetes.io/hostname` and, some, `topology.kubernetes.io/zone`; affinities of volumes are `In` expressions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import tokens

GIB = {"1Gi": 1, "5Gi": 5, "9Gi": 9}
Document = dict[str, Any]


class StorageWorld:
    """What the last messages say of storage, and of the pods that are placed."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.objects: dict[str, dict[str, Document]] = {}
        self.placed: list[tuple[str, Document, dict[str, str]]] = []
        """Node, pod, volume by claim."""
        for event in events:
            if isinstance(event.data, ObjectStored) and not event.tombstone:
                parts = tokens(event.subject)
                self.objects.setdefault(parts[2], {})[parts[4]] = json.loads(bytes(event.data.object))
            elif isinstance(event.data, Placement) and event.data.phase is not PlacementPhase.GONE:
                shares = event.data.allocation.volumes if event.data.allocation else ()
                given = {share.claim: share.volume for share in shares}
                self.placed.append((event.data.node, json.loads(bytes(event.data.pod)), given))

    def of(self, plural: str) -> dict[str, Document]:
        return self.objects.get(plural, {})

    def volume_of(self, claim: str) -> str:
        found = self.of("persistentvolumeclaims").get(claim, {"spec": {}})["spec"].get("volumeName")
        return found or next((given[claim] for _, _, given in self.placed if given.get(claim)), "")

    def allowed(self, pod: Document) -> set[str]:
        return {node for node in self.of("nodes") if self._allows(node, claims_of(pod))}

    def _allows(self, node: str, claims: list[str]) -> bool:
        known = self.of("persistentvolumeclaims")
        if any(claim not in known for claim in claims):
            return False
        for claim in claims:
            once = "ReadWriteOncePod" in known[claim]["spec"]["accessModes"]
            if once and any(claim in claims_of(pod) for _, pod, _ in self.placed):
                return False
        unbound = [claim for claim in claims if not self.volume_of(claim)]
        bound = [self.volume_of(claim) for claim in claims if self.volume_of(claim)]
        if not all(name in self.of("persistentvolumes") and self._reaches(name, node) for name in bound):
            return False
        if any(self._mode(claim) != "WaitForFirstConsumer" for claim in unbound):
            return False
        return self._within_limits(node, claims) and self._served(node, unbound)

    def _mode(self, claim: str) -> str:
        name = self.of("persistentvolumeclaims")[claim]["spec"].get("storageClassName")
        return str(self.of("storageclasses").get(name, {}).get("volumeBindingMode", ""))

    def _reaches(self, name: str, node: str) -> bool:
        volume, labels = self.of("persistentvolumes")[name], self.of("nodes")[node]["metadata"]["labels"]
        zone, here = volume["metadata"]["labels"].get("topology.kubernetes.io/zone"), labels.get("topology.kubernetes.io/zone")
        if zone is not None and here is not None and here not in zone.split("__"):
            return False
        affinity = volume["spec"].get("nodeAffinity")
        if affinity is None:
            return True
        (term,) = affinity["required"]["nodeSelectorTerms"]
        return all(labels.get(e["key"]) in e["values"] for e in term["matchExpressions"])

    def _served(self, node: str, unbound: list[str]) -> bool:
        """Whether the claims get a volume each, the smallest claim first, the smallest volume first; or one is made."""
        taken = {volume for _, _, given in self.placed for volume in given.values() if volume}
        claims = self.of("persistentvolumeclaims")
        for claim in sorted(unbound, key=lambda c: (GIB[claims[c]["spec"]["resources"]["requests"]["storage"]], c)):
            spec = claims[claim]["spec"]
            fitting = [
                (GIB[volume["spec"]["capacity"]["storage"]], name)
                for name, volume in self.of("persistentvolumes").items()
                if name not in taken
                and volume["spec"]["storageClassName"] == spec.get("storageClassName")
                and set(spec["accessModes"]) <= set(volume["spec"]["accessModes"])
                and GIB[volume["spec"]["capacity"]["storage"]] >= GIB[spec["resources"]["requests"]["storage"]]
                and self._affine(name, node)
            ]
            if fitting:
                taken.add(min(fitting)[1])
            elif self.of("storageclasses")[spec["storageClassName"]]["provisioner"].endswith("no-provisioner"):
                return False
        return True

    def _affine(self, name: str, node: str) -> bool:
        volume, labels = self.of("persistentvolumes")[name], self.of("nodes")[node]["metadata"]["labels"]
        affinity = volume["spec"].get("nodeAffinity")
        terms = affinity["required"]["nodeSelectorTerms"] if affinity else [{"matchExpressions": []}]
        return any(all(labels.get(e["key"]) in e["values"] for e in term["matchExpressions"]) for term in terms)

    def _driver(self, claim: str) -> str:
        name = self.volume_of(claim)
        if name and name in self.of("persistentvolumes"):
            return str(self.of("persistentvolumes")[name]["spec"].get("csi", {}).get("driver", ""))
        found = self.of("persistentvolumeclaims").get(claim, {"spec": {}})
        name = found["spec"].get("storageClassName")
        return str(self.of("storageclasses").get(name, {}).get("provisioner", ""))

    def _within_limits(self, node: str, claims: list[str]) -> bool:
        for driver in self.of("csinodes").get(node, {"spec": {"drivers": []}})["spec"]["drivers"]:
            there = {claim for where, pod, _ in self.placed if where == node for claim in claims_of(pod)}
            used = {claim for claim in there if self._driver(claim) == driver["name"]}
            new = {claim for claim in claims if self._driver(claim) == driver["name"]} - there
            if new and len(used | new) > driver["allocatable"]["count"]:
                return False
        return True


def claims_of(pod: Document) -> list[str]:
    volumes = pod["spec"].get("volumes", [])
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]

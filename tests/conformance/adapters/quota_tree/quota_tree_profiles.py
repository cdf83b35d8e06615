"""quota-tree vectors of quota profiles, and of over-use taken back."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.objects.policies import ElasticQuotaProfile
from cotenant.domain.quota.membership import is_preemptible
from cotenant.domain.quota.names import ANNOTATION_TOTAL, ANNOTATION_UNSCHEDULABLE
from cotenant.domain.quota.profile import profile_view, times_ratio, tree_id
from cotenant.domain.quota.trees.node_totals import counted_node
from cotenant.model.amounts import Amounts, parse_amount, parse_amounts, total
from cotenant.model.quantities import format_amount
from cotenant_gateway.planning.profiled_quotas import profiled_document
from cotenant_quota_tree.nodes import NodeOffers, declared_ready
from cotenant_quota_tree.profiles import QuotaProfiles
from cotenant_quota_tree.revocation import HeldPod, victims_of

Json = dict[str, Any]


def quota_tree_id(given: Json) -> object:
    namespace, name = given["namespacedName"].split("/")
    return {"treeID": tree_id(namespace, name)}


def quota_profile_ratio(given: Json) -> object:
    resource = given["resource"]
    scaled = times_ratio({resource: parse_amount(resource, given["value"])}, float(given["ratio"]))
    return {"value": format_amount(resource, scaled[resource])}


def quota_profile(given: Json) -> object:
    profile = profile_view(msgspec.convert(given["profile"], ElasticQuotaProfile))
    nodes = NodeOffers()
    for node in given["nodes"]:
        document = json.dumps(node).encode()
        nodes.declare(node["metadata"]["name"], counted_node(document), declared_ready(document))
    profiles = QuotaProfiles(nodes.offers)
    profiles.declare((profile.namespace, profile.name), profile, 1)
    (wanted,) = profiles.desired().values()
    existing = given.get("existingQuota")
    made = json.loads(bytes(profiled_document(wanted, msgspec.Raw(json.dumps(existing).encode()) if existing else None)))
    annotations = made["metadata"]["annotations"]
    return {
        "min": made["spec"]["min"],
        "max": made["spec"]["max"],
        "totalResource": json.loads(annotations[ANNOTATION_TOTAL]),
        "unschedulableResource": json.loads(annotations[ANNOTATION_UNSCHEDULABLE]),
        "labels": made["metadata"]["labels"],
    }


def quota_revoke(given: Json) -> object:
    pods = [_held(msgspec.convert(document, Pod)) for document in given["assignedPods"]]
    used: Amounts = total(pod.request for pod in pods)
    return {"evict": [pod.name for pod in victims_of(parse_amounts(given["runtime"]), used, pods)]}


def _held(pod: Pod) -> HeldPod:
    return HeldPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        priority=pod.spec.priority or 0,
        request=pod_requests(pod),
        preemptible=is_preemptible(pod.metadata.labels),
    )

"""Pods of a quota tree are kept on the tree's nodes: the node affinity that an ElasticQuotaProfile requires.

In: a new pod, the ElasticQuotas and the ElasticQuotaProfiles. Out: the pod with the profile's node selector in every required
node selector term (in a term of its own where there is none). The profile is the first, in order of namespace and name, that
has a node selector and the label `quota.scheduling.koordinator.sh/tree-id` of the tree of the pod's quota. Where one of them
is missing, nothing is done. Source: Koordinator's pod webhook (gate MultiQuotaTree; here the profile's existence is the
switch).
"""

from __future__ import annotations

import msgspec

from cotenant.api.edits import with_metadata
from cotenant.api.objects.metadata import LabelSelector, ObjectMeta, View
from cotenant.api.splices import elements, is_array, member_object, members, raw
from cotenant.domain.quota.names import LABEL_TREE
from cotenant.domain.quota.profile import tree_id
from cotenant.kinds.koordinator.elastic_quota_profiles import QUOTA_PROFILES
from cotenant_gateway.admission.quotas.of_pods import quota_of
from cotenant_gateway.admission.review import Mutation, ObjectSource, Review

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _ProfileSpec(View, frozen=True, kw_only=True):
    node_selector: LabelSelector | None = None


class _Profile(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _ProfileSpec = _ProfileSpec()


class _TreeNodes(msgspec.Struct, frozen=True):
    profile: str
    cause: str
    expressions: tuple[msgspec.Raw, ...]


_PROFILE = msgspec.json.Decoder(_Profile)


def keep_on_nodes_of_tree(review: Review) -> Mutation | None:
    """Add the node affinity of the pod's quota tree."""
    nodes_of_trees = review.objects.derived(QUOTA_PROFILES, _nodes_of_trees)
    if not nodes_of_trees:
        return None
    quota = quota_of(review.objects, review.view.metadata)
    tree = quota.labels.get(LABEL_TREE, "") if quota is not None else ""
    nodes = nodes_of_trees.get(tree)
    if nodes is None:
        return None
    note = f"node affinity of quota tree {tree} from ElasticQuotaProfile {nodes.profile}"
    return Mutation(_with_affinity(review.document, nodes.expressions), (note,), (nodes.cause,))


def name_tree(review: Review) -> Mutation | None:
    """A profile without a tree id gets the one that follows from its name: pods find the profile by that label."""
    meta = review.view.metadata
    if meta.labels.get(LABEL_TREE):
        return None
    tree = tree_id(meta.namespace, meta.name)
    return Mutation(with_metadata(review.document, {"labels": {**meta.labels, LABEL_TREE: tree}}), (f"quota tree {tree}",))


def _nodes_of_trees(objects: ObjectSource) -> dict[str, _TreeNodes]:
    found: dict[str, _TreeNodes] = {}
    for snapshot in objects.objects(QUOTA_PROFILES):
        tree = snapshot.labels.get(LABEL_TREE, "")
        if not tree or tree in found or snapshot.stored is None:
            continue
        try:
            selector = _PROFILE.decode(snapshot.stored.raw).spec.node_selector
        except msgspec.ValidationError:
            # Stored by another writer than a gateway, and not a valid profile.
            continue
        expressions = _expressions(selector or LabelSelector())
        if expressions:
            name = f"{snapshot.address.namespace}/{snapshot.address.name}"
            found[tree] = _TreeNodes(name, f"LOG:{snapshot.stored.sequence}", expressions)
    return found


def _expressions(selector: LabelSelector) -> tuple[msgspec.Raw, ...]:
    labels = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(selector.match_labels.items())]
    return (*map(raw, labels), *map(raw, selector.match_expressions))


def _with_affinity(document: msgspec.Raw, expressions: tuple[msgspec.Raw, ...]) -> msgspec.Raw:
    top = members(document)
    spec = member_object(top, "spec")
    affinity = member_object(spec, "affinity")
    node_affinity = member_object(affinity, "nodeAffinity")
    required = member_object(node_affinity, _REQUIRED)
    given = required.get("nodeSelectorTerms")
    terms = [members(term) for term in elements(given)] if given is not None and is_array(given) else []
    terms = terms or [{}]
    for term in terms:
        present = term.get("matchExpressions")
        kept = elements(present) if present is not None and is_array(present) else []
        term["matchExpressions"] = raw([*kept, *expressions])
    required["nodeSelectorTerms"] = raw(terms)
    node_affinity[_REQUIRED] = raw(required)
    affinity["nodeAffinity"] = raw(node_affinity)
    spec["affinity"] = raw(affinity)
    top["spec"] = raw(spec)
    return raw(top)

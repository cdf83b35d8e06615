"""quota-tree vectors of pod admission, answered by the rules that the gateway runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from cotenant.api.kinds import Kind
from cotenant.domain.quota.gates import QUOTA_GATES, quota_gates
from cotenant.domain.quota.names import ANNOTATION_CHILD_REQUEST
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.koordinator.elastic_quota_profiles import QUOTA_PROFILES
from cotenant.kinds.pods import PODS
from cotenant.model.subjects import object_subject
from cotenant_gateway.admission.quotas.affinity import keep_on_nodes_of_tree
from cotenant_gateway.admission.quotas.charging import charge_quota
from cotenant_gateway.admission.review import open_review
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError

Json = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def quota_affinity(given: Json, *, name: str) -> object:
    if not (given.get("features") or {}).get("MultiQuotaTree"):
        # The switch is whether there is a profile.
        given = {**given, "profiles": []}
    core = GatewayCore()
    for kind, documents in ((ELASTIC_QUOTAS, given["quotas"]), (QUOTA_PROFILES, given["profiles"])):
        for document in documents:
            _fold(core, kind, document)
    change = keep_on_nodes_of_tree(open_review(core.kinds.of(PODS), msgspec.Raw(json.dumps(given["pod"]).encode()), None, core))
    if change is None:
        return {"nodeSelectorTerms": None}
    affinity = json.loads(bytes(change.document))["spec"]["affinity"]["nodeAffinity"]
    return {"nodeSelectorTerms": affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]}


def quota_webhook_admission(given: Json, *, name: str) -> object:
    features = {gate: on for gate, on in (given.get("features") or {}).items() if gate in QUOTA_GATES}
    core = GatewayCore(quota_gates=quota_gates(",".join(f"{gate}={str(on).lower()}" for gate, on in features.items())))
    for quota in given["quotas"]:
        _fold(core, ELASTIC_QUOTAS, quota)
    old = None
    if given.get("oldPod"):
        _fold(core, PODS, given["oldPod"])
        old = core.get(PODS, given["oldPod"]["metadata"]["namespace"], given["oldPod"]["metadata"]["name"])
    review = open_review(core.kinds.of(PODS), msgspec.Raw(json.dumps(given["pod"]).encode()), old, core)
    try:
        charge = charge_quota(review)
    except ApiError as error:
        return {"allowed": False, "reason": str(error).split(" is forbidden: ", 1)[1]}
    if charge is None:
        return {"allowed": True, "reason": ""}
    assert isinstance(charge.payload, ObjectStored)
    annotations = json.loads(bytes(charge.payload.object))["metadata"]["annotations"]
    return {"allowed": True, "reason": "", "childRequest": json.loads(annotations[ANNOTATION_CHILD_REQUEST])}


def _fold(core: GatewayCore, kind: Kind, document: Json) -> None:
    meta = document["metadata"]
    subject = object_subject(kind.group, kind.plural, meta["namespace"], meta["name"])
    stored = ObjectStored(object=msgspec.Raw(json.dumps(document).encode()))
    core.apply(Event(subject=subject, data=stored, time=NOW, sequence=core.folded + 1))

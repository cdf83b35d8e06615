"""Which quota a pod belongs to at admission, and what that forbids."""

from __future__ import annotations

import json

import pytest

from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.pods import PODS
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, as_json, manifest

PREFIX = "quota.scheduling.koordinator.sh"


def world_with_quota(name: str, namespaces: list[str], *, is_parent: bool) -> World:
    world = World()
    metadata = {
        "name": name,
        "labels": {f"{PREFIX}/is-parent": str(is_parent).lower()},
        "annotations": {f"{PREFIX}/namespaces": json.dumps(namespaces)},
    }
    quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata}
    world.create("elasticquotas", {**quota, "spec": {"max": {"cpu": "4"}}}, namespace="koordinator-system")
    return world


def pod_of(quota: str) -> dict[str, object]:
    document = manifest()
    document["metadata"] = {"name": "web", "labels": {f"{PREFIX}/name": quota} if quota else {}}
    return document


@pytest.mark.parametrize(
    ("name", "namespaces", "label"),
    [("team", [], "team"), ("default", [], ""), ("team", ["default"], ""), ("team", ["default"], "gone")],
)
def test_a_pod_of_a_parent_quota_is_refused(name: str, namespaces: list[str], label: str) -> None:
    world = world_with_quota(name, namespaces, is_parent=True)
    with pytest.raises(ApiError, match=f"pod can not be linked to a parentQuotaGroup,quota:{name}, pod:web"):
        world.create("pods", pod_of(label))


@pytest.mark.parametrize(("namespaces", "label"), [(["default"], ""), ([], "team"), ([], "")])
def test_a_pod_of_a_leaf_or_of_no_quota_is_taken(namespaces: list[str], label: str) -> None:
    world = world_with_quota("team", namespaces, is_parent=False)
    world.create("pods", pod_of(label))


def test_a_quota_that_becomes_one_for_pods_counts_for_the_next_pod() -> None:
    world = world_with_quota("team", ["default"], is_parent=True)
    with pytest.raises(ApiError):
        world.create("pods", pod_of(""))
    leaf = as_json({"metadata": {"labels": {f"{PREFIX}/is-parent": "false"}}})
    world.store(plan_patch(world.core, ELASTIC_QUOTAS, "koordinator-system", "team", "application/merge-patch+json", leaf).plan)
    world.create("pods", pod_of(""))


def test_a_live_pod_stays_preemptible_or_not() -> None:
    world = World()
    world.create("pods", pod_of(""))
    change = as_json({"metadata": {"labels": {f"{PREFIX}/preemptible": "false"}}})
    with pytest.raises(ApiError, match="Preemptible label is forbidden modify now"):
        plan_patch(world.core, PODS, "default", "web", "application/merge-patch+json", change)

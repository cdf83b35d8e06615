"""The gateway keeps the root quotas that profiles make."""

from __future__ import annotations

import json
from datetime import timedelta

from cotenant.events.quotas import ProfiledQuota
from cotenant.log.plans import Plan
from cotenant.model.subjects import profiled_quota_subject
from cotenant_gateway.loop.duties import PROFILED_EVERY, Cadence, Duties
from cotenant_gateway.planning.profiled_quotas import QuotaRefused, profiled_quotas
from tests.unit.gateway.builders_gateway import World

PREFIX = "quota.scheduling.koordinator.sh"


def world(*, labels: dict[str, str] | None = None) -> World:
    made = World()
    spec = {"quotaName": "root-a", "nodeSelector": {"matchLabels": {"zone": "a"}}}
    head = {"apiVersion": "quota.koordinator.sh/v1alpha1", "kind": "ElasticQuotaProfile"}
    made.create("elasticquotaprofiles", {**head, "metadata": {"name": "zone-a", "labels": labels or {}}, "spec": spec})
    return made


def publish(made: World, cpu_milli: int) -> None:
    tree = made.show("elasticquotaprofiles", "zone-a")["metadata"]["labels"][f"{PREFIX}/tree-id"]
    data = ProfiledQuota(
        tree=tree,
        quota="root-a",
        namespace="default",
        profile="zone-a",
        labels={f"{PREFIX}/tree-id": tree, f"{PREFIX}/is-root": "true"},
        min={"cpu": cpu_milli},
        max={"cpu": 10**9},
        total={"cpu": cpu_milli, "pods": 10},
    )
    made.put(profiled_quota_subject(tree, "root-a"), data)


def keep(made: World, duties: Duties) -> int:
    """Let a second pass and the duty be done; returns how many plans it had."""
    made.pass_seconds(PROFILED_EVERY.total_seconds())
    plans = [plan for found in duties.profiled_quotas(made.now) for plan in found]
    for plan in plans:
        made.store(plan)
    return len(plans)


def duties_of(made: World) -> Duties:
    return Duties(lambda: made.core, lambda: "uid-of-duty", Cadence(timedelta(seconds=1)))


def test_a_profile_gets_a_tree_id_that_follows_from_its_name() -> None:
    assert world().show("elasticquotaprofiles", "zone-a")["metadata"]["labels"][f"{PREFIX}/tree-id"].isdigit()
    labelled = world(labels={f"{PREFIX}/tree-id": "mine"})
    assert labelled.show("elasticquotaprofiles", "zone-a")["metadata"]["labels"] == {f"{PREFIX}/tree-id": "mine"}


def test_the_quota_is_created_then_kept_and_what_users_add_stays() -> None:
    made = world()
    duties = duties_of(made)
    assert keep(made, duties) == 0
    publish(made, 5000)
    assert keep(made, duties) == 1
    quota = made.show("elasticquotas", "root-a")
    assert quota["spec"] == {"min": {"cpu": "5"}, "max": {"cpu": "1M"}}
    assert json.loads(quota["metadata"]["annotations"][f"{PREFIX}/total-resource"]) == {"cpu": "5", "pods": "10"}
    assert quota["metadata"]["uid"] == "uid-of-duty"
    assert keep(made, duties) == 0
    publish(made, 6000)
    assert keep(made, duties) == 1
    quota = made.show("elasticquotas", "root-a")
    assert quota["spec"]["min"] == {"cpu": "6"}
    assert quota["metadata"]["generation"] == 2
    assert quota["metadata"]["labels"][f"{PREFIX}/is-root"] == "true"


def test_a_quota_that_admission_refuses_is_said_and_tried_again() -> None:
    made = world()
    publish(made, 5000)
    taken = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "root-a"}}
    made.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    made.create("elasticquotas", {**taken, "spec": {"max": {"cpu": "1"}}}, namespace="other")
    [refused] = profiled_quotas(made.core)
    assert isinstance(refused, QuotaRefused)
    assert refused.profile == "default/zone-a"
    assert refused.message.startswith("failed to create quota, err: ")
    assert "AddQuota quota already exist:root-a" in refused.message
    duties = duties_of(made)
    assert keep(made, duties) == 0
    assert not [plan for plan in profiled_quotas(made.core) if isinstance(plan, Plan)]

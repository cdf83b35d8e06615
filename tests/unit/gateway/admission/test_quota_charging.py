"""Quota admission of pods: a creation charges its quota in the same batch, or is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from cotenant.domain.quota.gates import GateError, QuotaGates, quota_gates
from cotenant.engine.commit import Identity
from cotenant.events.quotas import QuotaRuntime
from cotenant.log.memory import MemoryLog
from cotenant.model.subjects import quota_subject
from cotenant_gateway.planning.updates import plan_patch
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import ApiError
from tests.builders import container
from tests.unit.gateway.builders_gateway import World, as_json, kind, manifest

PREFIX = "quota.scheduling.koordinator.sh"
ON = QuotaGates(admission=True)


def world(gates: QuotaGates = ON, **spec: Any) -> World:
    made = World(gates=gates)
    metadata = {"name": "team", "labels": {f"{PREFIX}/is-parent": "false"}}
    quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata}
    made.create("elasticquotas", {**quota, "spec": {"max": {"cpu": "4"}, **spec}})
    return made


def pod(name: str, cpu: str = "1", quota: str = "team") -> dict[str, object]:
    containers = [container(image="app:1", requests={"cpu": cpu}, limits={"cpu": cpu})]
    return manifest(name, labels={f"{PREFIX}/name": quota} if quota else {}, containers=containers)


def charged(made: World) -> dict[str, str]:
    shown: dict[str, str] = json.loads(made.show("elasticquotas", "team")["metadata"]["annotations"][f"{PREFIX}/child-request"])
    return shown


def publish(made: World, cpu_milli: int, charged_at: int) -> None:
    state = QuotaRuntime(
        tree="", quota="team", namespace="default", child_request={"cpu": cpu_milli}, charged_at=charged_at
    )
    made.put(quota_subject("", "team"), state)


def sequence(made: World) -> int:
    snapshot = made.core.get(kind("elasticquotas"), "default", "team")
    assert snapshot is not None
    assert snapshot.stored is not None
    return snapshot.stored.sequence


def test_pods_are_taken_while_the_quota_has_room() -> None:
    made = world()
    for index in range(4):
        made.create("pods", pod(f"p{index}"))
    assert charged(made) == {"cpu": "4"}
    with pytest.raises(ApiError, match="exceeded quota: default/team, requested: cpu=1, used: cpu=4, limited: cpu=4") as why:
        made.create("pods", pod("p4"))
    assert why.value.code == 403


def test_without_the_gate_nothing_is_charged_or_refused() -> None:
    made = world(QuotaGates())
    made.create("pods", pod("p", cpu="9"))
    assert f"{PREFIX}/child-request" not in made.show("elasticquotas", "team")["metadata"]["annotations"]


def test_the_charge_is_stored_with_the_pod_and_expects_the_quota_as_it_was_read() -> None:
    made = world()
    planned = made.create("pods", pod("p"))
    assert planned.plan is not None
    first, charge = planned.plan.writes
    assert first.subject.startswith("objects.core.pods.")
    assert charge.expected is not None
    assert charge.expected < sequence(made)
    with pytest.raises(AssertionError, match="expected"):
        made.store(planned.plan)


def test_what_ended_is_given_back_once_quota_tree_counts_the_last_charge() -> None:
    made = world()
    for index in range(4):
        made.create("pods", pod(f"p{index}"))
    publish(made, 2000, charged_at=sequence(made) - 1)
    with pytest.raises(ApiError):
        made.create("pods", pod("early"))
    publish(made, 2000, charged_at=sequence(made))
    made.create("pods", pod("later"))
    assert charged(made) == {"cpu": "2"}  # what quota-tree published stands in front of what is stored
    publish(made, 3000, charged_at=sequence(made))
    made.create("pods", pod("last"))
    with pytest.raises(ApiError):
        made.create("pods", pod("one too many"[:3]))


def test_a_pod_that_changes_its_quota_is_looked_at_only_with_that_gate() -> None:
    patch = as_json({"metadata": {"labels": {f"{PREFIX}/name": "team"}}})
    for gates, refused in ((ON, False), (QuotaGates(admission=True, admission_on_update=True), True)):
        made = world(gates)
        made.create("pods", pod("p", cpu="9", quota=""))
        if refused:
            with pytest.raises(ApiError, match="exceeded quota"):
                plan_patch(made.core, kind("pods"), "default", "p", "application/merge-patch+json", patch)
        else:
            planned = plan_patch(made.core, kind("pods"), "default", "p", "application/merge-patch+json", patch)
            assert planned.plan is not None
            assert len(planned.plan.writes) == 1


def test_gates_are_named_as_koordinator_names_them() -> None:
    assert quota_gates("EnableQuotaAdmission=true, SupportParentQuotaSubmitPod=false") == ON
    assert quota_gates("") == QuotaGates()
    with pytest.raises(GateError, match="no feature gate 'Enable'"):
        quota_gates("Enable=true")
    with pytest.raises(GateError, match="it is true or false"):
        quota_gates("EnableQuotaAdmission=maybe")


def test_a_burst_at_two_gateways_takes_exactly_what_the_quota_has_room_for() -> None:
    async def burst() -> list[str]:
        log = MemoryLog()
        gateways = [
            Gateway(log, Identity(service="gateway", replica=replica), quota_gates=ON) for replica in ("a", "b")
        ]
        running = [asyncio.ensure_future(gateway.run()) for gateway in gateways]
        try:
            async with asyncio.timeout(60):
                for gateway in gateways:
                    await gateway.ready.wait()
                metadata = {"name": "team"}
                quota = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata}
                made = as_json({**quota, "spec": {"max": {"cpu": "7"}}})
                await gateways[0].create(kind("elasticquotas"), "default", made, "user")
                await gateways[1].follower.folded(gateways[0].core.folded)
                return list(await asyncio.gather(*(one(gateways[index % 2], index) for index in range(20))))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def one(gateway: Gateway, index: int) -> str:
        try:
            await gateway.create(kind("pods"), "default", as_json(pod(f"p{index}")), "user")
        except ApiError as error:
            return str(error)
        return ""

    outcomes = asyncio.run(burst())
    assert outcomes.count("") == 7
    assert all("exceeded quota: default/team" in outcome for outcome in outcomes if outcome)

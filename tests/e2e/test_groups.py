"""Pods that belong together on a running stack: gangs, reservations, migrations that reserve first, quotas, the queue, hooks.

The manifests are as a user of Koordinator writes them; the scheduler runs with a quota hook from a package that is installed
beside it for the time of the test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders import pod_document
from tests.e2e.stack import Stack, wait_for

pytestmark = pytest.mark.timeout(1200)
SCHEDULING = "apis/scheduling.koordinator.sh/v1alpha1"
QUOTA = "quota.scheduling.koordinator.sh"
HOOK = '''
class KeepFree:
    def __init__(self, args):
        self.most = args["mostMilli"]

    def check_pod(self, pod):
        own = pod.levels[0]
        used = own.used.get("cpu", 0) + pod.request.get("cpu", 0)
        return f"{own.name} may use {self.most}m here" if own.name == "hooked" and used > self.most else ""
'''
SCHEDULER = {"hookPlugins": [{"key": "keep-free", "factoryKey": "keep-free", "factoryArgs": {"mostMilli": 500}}]}


def installed(folder: Path) -> None:
    """A package with a hook, as an installer leaves it: its module, and its entry points beside it."""
    (folder / "acme_quotas.py").write_text(HOOK)
    metadata = folder / "acme_quotas-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-quotas\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[cotenant.quota_hooks]\nkeep-free = acme_quotas:KeepFree\n")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("groups")
    installed(folder)
    config = folder / "scheduler.json"
    config.write_text(json.dumps(SCHEDULER))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
    running = Stack("--nodes", "3", "--config", f"scheduler={config}")
    try:
        running.until_ready()
        wait_for("all nodes", lambda: len(running.items("api/v1/nodes")) == 4)
        yield running
    finally:
        running.close()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def simulated(name: str, cpu: str = "100m", **more: Any) -> dict[str, Any]:
    """A pod of any image, which a simulated node of 8 CPUs runs."""
    requests = {"cpu": cpu, "memory": "64Mi"}
    return pod_document(name, namespace="", uid="", image="app", requests=requests, terminationGracePeriodSeconds=1, **more)


def rows(table: str) -> list[list[str]]:
    """The cells of a table, of which none has a blank."""
    return [line.split() for line in table.splitlines()]


def status_of(stack: Stack, path: str) -> dict[str, Any]:
    found: dict[str, Any] = (stack.get(path) or {}).get("status", {})
    return found


def reason(stack: Stack, name: str) -> str:
    """Why a pod waits, by its condition."""
    conditions = (stack.pod(name) or {}).get("status", {}).get("conditions", [])
    return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def test_a_gang_waits_whole_says_why_and_runs_whole(stack: Stack) -> None:
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 3},
    }
    members = [simulated(f"train-{i}", labels={"pod-group.scheduling.sigs.k8s.io": "train"}) for i in range(3)]
    stack.apply(group, *members[:2])
    wait_for("the reason", lambda: "child pod not collect enough" in reason(stack, "train-0"))
    assert "default/train" in stack.run("explain", "pod", "train-0")
    queue = stack.run("get", "queue")
    assert ["1", "default/train", "2/3"] in [row[:3] for row in rows(queue)]
    stack.apply(members[2])
    for i in range(3):
        wait_for(f"train-{i} to run", partial(stack.runs, f"train-{i}"))
    path = "apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups/train"
    wait_for("its status", lambda: status_of(stack, path).get("running") == 3)
    head, row = rows(stack.run("get", "podgroups"))
    assert head == ["NAME", "PHASE", "MINMEMBER", "SCHEDULED", "RUNNING", "SUCCEEDED", "FAILED", "AGE"]
    assert row[:5] == ["train", "Running", "3", "3", "3"]


def test_a_gang_that_does_not_fit_names_its_members_and_what_nodes_lack(stack: Stack) -> None:
    annotations = {"gang.scheduling.koordinator.sh/name": "wide", "gang.scheduling.koordinator.sh/min-available": "5"}
    stack.apply(*[simulated(f"wide-{i}", cpu="5", annotations=annotations) for i in range(5)])
    wait_for("the reason", lambda: "Insufficient cpu" in reason(stack, "wide-0"))
    assert [pod["metadata"]["name"] for pod in stack.pods() if pod["spec"].get("nodeName", "")].count("wide-0") == 0
    explained = stack.run("explain", "pod", "wide-0")
    assert "default/wide-3, default/wide-4 do not fit: 0/" in explained, explained
    assert "what can change that: " in explained
    stack.run("delete", "pod", *[f"wide-{i}" for i in range(5)])


def reservation(name: str, app: str, cpu: str = "2", **spec: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": "128Mi"}
    containers = [{"name": "main", "image": "app", "resources": {"requests": requests}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"containers": containers}},
            "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
            **spec,
        },
    }


def test_a_reservation_is_available_used_up_or_expired_as_upstream_prints_it(stack: Stack) -> None:
    stack.apply(reservation("shop", "shop", ttl="1h"), reservation("brief", "nobody", ttl="2s"))
    wait_for("it to be available", lambda: status_of(stack, f"{SCHEDULING}/reservations/shop").get("phase") == "Available")
    node = status_of(stack, f"{SCHEDULING}/reservations/shop")["nodeName"]
    head, *found = rows(stack.run("get", "reservations"))
    assert head == ["NAME", "PHASE", "AGE", "NODE", "TTL", "EXPIRES"]
    assert [*next(row for row in found if row[0] == "shop")][:2] == ["shop", "Available"]
    shown = json.loads(stack.ask("GET", f"debug/apis/v1/plugins/Reservation/nodeReservations/{node}")[1])
    assert [item["name"] for item in shown["items"] if item["name"] == "shop"] == ["shop"]
    stack.apply(simulated("shop-0", cpu="1", labels={"app": "shop"}))
    wait_for("its owner to run", lambda: stack.runs("shop-0"))
    pod = stack.pod("shop-0")
    assert pod is not None
    assert pod["spec"]["nodeName"] == node
    assert json.loads(pod["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-allocated"])["name"] == "shop"
    assert status_of(stack, f"{SCHEDULING}/reservations/shop")["phase"] == "Succeeded"
    wait_for("the other to expire", lambda: status_of(stack, f"{SCHEDULING}/reservations/brief").get("phase") == "Failed")
    conditions = {c["type"]: c["reason"] for c in status_of(stack, f"{SCHEDULING}/reservations/brief")["conditions"]}
    assert conditions["Ready"] == "Expired"


def job(name: str, pod: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name},
        "spec": {"mode": "ReservationFirst", "podRef": {"namespace": "default", "name": pod}, "ttl": "5m", **spec},
    }


def test_a_pod_leaves_only_after_its_next_place_is_held(stack: Stack) -> None:
    stack.apply(*[simulated(f"mover-{i}", cpu="500m", owner="mover") for i in range(3)])
    wait_for("them to run", lambda: all(stack.runs(f"mover-{i}") for i in range(3)))
    before = (stack.pod("mover-0") or {})["spec"]["nodeName"]
    stack.apply(job("move", "mover-0"))
    wait_for("it to be gone", lambda: stack.pod("mover-0") is None)
    held = status_of(stack, f"{SCHEDULING}/podmigrationjobs/move")
    assert held["nodeName"] not in ("", before)
    stack.apply(simulated("mover-3", cpu="500m", owner="mover"))
    wait_for("its end", lambda: status_of(stack, f"{SCHEDULING}/podmigrationjobs/move").get("phase") == "Succeeded")
    done = status_of(stack, f"{SCHEDULING}/podmigrationjobs/move")
    assert (done["podRef"]["name"], (stack.pod("mover-3") or {})["spec"]["nodeName"]) == ("mover-3", held["nodeName"])
    head, *found = rows(stack.run("get", "pmj"))
    assert head == ["NAME", "PHASE", "STATUS", "AGE", "NODE", "RESERVATION", "PODNAMESPACE", "POD", "NEWPOD", "TTL"]
    assert found[0][:3] == ["move", "Succeeded", "Complete"]


def reservations(stack: Stack) -> set[str]:
    return {each["metadata"]["name"] for each in stack.items(f"{SCHEDULING}/reservations")}


def test_a_pod_stays_where_the_place_that_was_to_be_held_expires_or_none_is_found(stack: Stack) -> None:
    before = reservations(stack)
    stack.apply(*[simulated(f"stays-{i}", owner="stays") for i in range(3)])
    wait_for("them to run", lambda: all(stack.runs(f"stays-{i}") for i in range(3)))
    larger = {"template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "20"}}}]}}}
    expiring = {"reservationOptions": {"template": {"spec": {"ttl": "3s", **larger}}}}
    stack.apply(job("expires", "stays-0", **expiring))
    wait_for("its end", lambda: status_of(stack, f"{SCHEDULING}/podmigrationjobs/expires").get("phase") == "Failed")
    assert status_of(stack, f"{SCHEDULING}/podmigrationjobs/expires")["reason"] == "ReservationExpired"
    stack.apply(job("late", "stays-0", ttl="3s", reservationOptions={"template": {"spec": larger}}))
    wait_for("its end", lambda: status_of(stack, f"{SCHEDULING}/podmigrationjobs/late").get("phase") == "Failed")
    assert status_of(stack, f"{SCHEDULING}/podmigrationjobs/late")["reason"] == "Timeout"
    assert stack.runs("stays-0")
    wait_for("their reservations to be gone", lambda: reservations(stack) <= before)


def quota(name: str, *, minimum: str, maximum: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": {f"{QUOTA}/{key.replace('_', '-')}": value for key, value in labels.items()}},
        "spec": {"min": {"cpu": minimum}, "max": {"cpu": maximum}},
    }


def test_quotas_show_what_they_use_and_say_why_they_have_it(stack: Stack) -> None:
    stack.apply(quota("team", minimum="1", maximum="2"), simulated("of-team", cpu="1500m", labels={f"{QUOTA}/name": "team"}))
    wait_for("it to run", lambda: stack.runs("of-team"))
    wait_for("its use", lambda: "cpu=1500m" in stack.run("get", "eq", "team"))
    head, row = rows(stack.run("get", "eq", "team"))
    assert head == ["NAME", "PARENT", "MIN", "MAX", "USED", "RUNTIME", "REQUEST", "AGE"]
    assert row[:7] == ["team", "<none>", "cpu=1", "cpu=2", "cpu=1500m", "cpu=1500m", "cpu=1500m"]
    tree = stack.run("get", "quotas", "--tree")
    assert "team" in tree
    assert "####" in tree
    assert "cpu" in stack.run("explain", "quota", "team")


def test_a_profile_makes_the_root_quota_of_a_tree_from_its_nodes(stack: Stack) -> None:
    stack.patch("api/v1/nodes/simulated-0", {"metadata": {"labels": {"pool": "gold"}}})
    profile = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": "gold", "labels": {f"{QUOTA}/tree-id": "gold"}},
        "spec": {"quotaName": "gold-root", "nodeSelector": {"matchLabels": {"pool": "gold"}}},
    }
    stack.apply(profile)
    path = "apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas/gold-root"
    made = wait_for("its quota", lambda: stack.get(path))
    assert made["metadata"]["labels"][f"{QUOTA}/is-root"] == "true"
    assert json.loads(made["metadata"]["annotations"][f"{QUOTA}/total-resource"])["cpu"] == "8"
    assert "tree gold" in stack.run("get", "quotas", "--tree")


def test_a_hook_from_an_installed_package_refuses_a_pod_with_its_reason(stack: Stack) -> None:
    labels = {f"{QUOTA}/name": "hooked"}
    stack.apply(quota("hooked", minimum="1", maximum="4"), simulated("within", cpu="400m", labels=labels))
    wait_for("the first to run", lambda: stack.runs("within"))
    stack.apply(simulated("beyond", cpu="400m", labels=labels))
    said = "CheckPod failed for hook plugin keep-free, err: hooked may use 500m here"
    wait_for("the hook's reason", lambda: said in reason(stack, "beyond"))
    assert said in stack.run("explain", "pod", "beyond")
    stack.run("delete", "pod", "within")
    wait_for("the other to run", lambda: stack.runs("beyond"))


def test_every_decision_can_be_computed_again_with_the_hook(stack: Stack) -> None:
    found = json.loads(stack.run("replay", "--verify", "-o", "json"))
    assert (found["differing"], found["verified"] > 0) == (0, True), found

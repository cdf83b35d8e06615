"""`cotenant simulate`: the services' own cores under a virtual clock give the same bytes twice, and do the right thing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotenant_console.commands.simulate import command
from cotenant_verification.simulate.openb import OpenbTrace, TraceNode, TracePod
from cotenant_verification.simulate.openb_run import run_trace
from cotenant_verification.simulate.report import trace_document, trace_lines

CLUSTER = """\
apiVersion: simulation.cotenant.io/v1alpha1
kind: Cluster
nodes: [{name: node, count: 2, cpu: "8", memory: 32Gi, labels: {rack: a}}]
objects:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: slo-controller-config, namespace: koordinator-system}
  data: {colocation-config: '{"enable": true}'}
workloads:
- name: web
  replicas: 2
  labels: {koordinator.sh/qosClass: LS}
  priorityClassName: koord-prod
  requests: {cpu: "2", memory: 1Gi}
  load: {night: 200m, noon: 1500m, day: 2m}
- name: job
  labels: {koordinator.sh/qosClass: BE}
  priorityClassName: koord-batch
  requests: {kubernetes.io/batch-cpu: "1000", kubernetes.io/batch-memory: 1Gi}
  limits: {kubernetes.io/batch-cpu: "1000", kubernetes.io/batch-memory: 1Gi}
  arrivals: {every: 10s, lastsFrom: 10s, lastsTo: 20s, atMost: 3}
"""


def simulated(path: Path, seed: int) -> str:
    result = CliRunner().invoke(command, ["-f", str(path), "--for", "3m", "--seed", str(seed), "-o", "json"])
    assert result.exit_code == 0, result.output
    return result.output


def test_one_seed_gives_the_same_bytes_twice_and_another_gives_others(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    first = simulated(path, 7)
    assert simulated(path, 7) == first
    assert json.loads(simulated(path, 8))["digest"] != json.loads(first)["digest"]


def test_services_are_placed_and_jobs_run_on_the_loan_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    found = json.loads(simulated(path, 7))
    assert found["refused"] == []
    assert found["pods"] == {"Running": 2, "Succeeded": 3}
    assert all(node["batchCpuMilli"] > 0 for node in found["nodes"])


def test_a_wrong_file_is_an_error_with_its_field(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace('cpu: "8"', 'cpu: "eight"'))
    result = CliRunner().invoke(command, ["-f", str(path)])
    assert result.exit_code == 1
    assert "nodes[0].cpu" in result.output


TOGETHER = """\
apiVersion: simulation.cotenant.io/v1alpha1
kind: Cluster
nodes: [{name: node, count: 3, cpu: "4", memory: 16Gi}]
objects:
- apiVersion: scheduling.sigs.k8s.io/v1alpha1
  kind: ElasticQuota
  metadata: {name: team, namespace: default}
  spec: {min: {cpu: "2"}, max: {cpu: "6"}}
- apiVersion: scheduling.koordinator.sh/v1alpha1
  kind: Reservation
  metadata: {name: kept}
  spec:
    template: {spec: {containers: [{name: main, resources: {requests: {cpu: "1", memory: 1Gi}}}]}}
    owners: [{labelSelector: {matchLabels: {app: web}}}]
    allocateOnce: false
    ttl: 1h
workloads:
- {name: web, replicas: 1, labels: {app: web}, requests: {cpu: 500m, memory: 256Mi}}
- {name: train, replicas: 6, gang: 3, labels: {quota.scheduling.koordinator.sh/name: team}, requests: {cpu: "1", memory: 1Gi}}
- {name: large, replicas: 4, gang: 4, requests: {cpu: "3", memory: 1Gi}}
"""
"""Two gangs that fit their quota, and one of four pods of which three nodes have room for three at most."""


def test_gangs_start_whole_or_wait_whole_and_reservations_and_quotas_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(TOGETHER)
    found = json.loads(simulated(path, 7))
    assert found["refused"] == []
    assert found["gangs"] == {"placed": 2, "waiting": 1}
    assert sorted(waiting["pod"] for waiting in found["waiting"]) == [f"default/large-{index}" for index in range(4)]
    (kept,) = found["reservations"]
    assert (kept["phase"], kept["allocatable"], kept["allocated"]) == (
        "Available",
        "cpu:1,memory:1Gi",
        "cpu:500m,memory:256Mi",
    )
    (team,) = found["quotas"]
    assert (team["name"], team["used"], team["runtime"], team["request"]) == ("team", "cpu:6", "cpu:6", "cpu:6")
    text = CliRunner().invoke(command, ["-f", str(path), "--for", "1m"]).output
    assert "gangs: 2 placed, 1 waiting" in text
    assert f"reservation kept: Available on {kept['node']}, cpu:500m,memory:256Mi of cpu:1,memory:1Gi given" in text
    assert "quota team: used cpu:6, runtime cpu:6, requested cpu:6" in text


def test_gangs_that_arrive_come_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        """\
apiVersion: simulation.cotenant.io/v1alpha1
kind: Cluster
nodes: [{name: node, count: 2, cpu: "4", memory: 16Gi}]
workloads:
- name: job
  gang: 4
  requests: {cpu: "1", memory: 1Gi}
  arrivals: {every: 20s, lastsFrom: 10s, lastsTo: 10s, atMost: 3}
"""
    )
    found = json.loads(simulated(path, 1))
    assert found["gangs"] == {"placed": 3}
    assert found["pods"] == {"Succeeded": 12}


FAULTS = """\
faults:
- {at: 20s, kind: crash, target: scheduler, lasts: 5s}
- {at: 30s, kind: stall, lasts: 4s}
- {at: 40s, kind: partition, target: node-0, lasts: 10s}
- {at: 40s, kind: partition, target: quota-tree, lasts: 10s}
- {at: 60s, kind: node-death, target: node-1, lasts: 30s}
- {at: 70s, kind: node-death, target: node-1, lasts: 30s}
"""


def test_faults_of_the_file_happen_and_a_node_comes_back_without_its_pods(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    undisturbed = json.loads(simulated(path, 7))
    assert undisturbed["faults"] == {}
    path.write_text(CLUSTER + FAULTS)
    first = simulated(path, 7)
    found = json.loads(first)
    # A node that has failed does not fail again.
    assert found["faults"] == {"crash": 1, "node-death": 1, "partition": 2, "stall": 1}
    assert found["eventsByType"]["cotenant.service.started.v1"] > undisturbed["eventsByType"]["cotenant.service.started.v1"]
    assert found["pods"]["Running"] == 2, "services run again after all of it"
    assert all(node["batchCpuMilli"] > 0 for node in found["nodes"])
    assert simulated(path, 7) == first


@pytest.mark.parametrize("name", ["cluster.yaml", "jobs.yaml"])
def test_the_examples_run(name: str) -> None:
    found = json.loads(simulated(Path(__file__).parents[3] / "examples" / name, 7))
    assert found["refused"] == []
    assert found["placed"] > 10


def trace() -> OpenbTrace:
    nodes = (TraceNode("n-0", 4000, 8192, 1, "T4"), TraceNode("n-1", 4000, 8192, 0, ""))
    return OpenbTrace(
        nodes,
        (
            TracePod("first", 3000, 1024, 0, 0, (), "LS", 0, 100),
            TracePod("gpu", 1000, 1024, 1, 600, ("T4",), "LS", 1, 50),
            TracePod("second-gpu", 1000, 1024, 1, 600, ("T4",), "BE", 2, 200),
            TracePod("too-large", 9000, 1024, 0, 0, (), "BE", 3, 60),
            TracePod("other-model", 100, 100, 1, 500, ("V100",), "LS", 4, 60),
        ),
    )


def test_a_trace_places_what_fits_wakes_who_waits_and_names_why_the_others_never_were() -> None:
    heard: list[float] = []
    result = run_trace(trace(), heard.append)
    assert result.tally.placed == 3
    assert result.tally.never_placed == 2
    assert (result.tally.running, result.tally.waiting, result.refused) == (0, 0, 0)
    assert heard[-1] == 1.0
    document = trace_document(result)
    assert document["placed"] == 3
    text = "\n".join(trace_lines(result, 80))
    assert "2 pods were never placed" in text
    assert "GPU requested" in text


def test_utilisation_follows_from_placements() -> None:
    result = run_trace(trace(), lambda _: None)
    peak = max(percent for _, percent in result.tally.series["cpu"])
    assert peak == 100.0 * 4000 / 8000
    assert result.tally.series["cpu"][-1][1] == 0.0

"""The CPU manager policy of a kubelet on this host: what its state says, else its configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant_node_executor.host_facts import host_facts
from cotenant_node_executor.sampling.given import given_machine
from cotenant_node_executor.sampling.kubelet import cpu_policy_in_force
from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies

STATIC_CONFIG = "kind: KubeletConfiguration\ncpuManagerPolicy: static\n"


@pytest.mark.parametrize(
    ("config", "state", "policy"),
    [
        (None, None, ""),
        ("", None, "none"),
        (STATIC_CONFIG, None, "static"),
        (STATIC_CONFIG, json.dumps({"policyName": "none"}), "none"),
        (None, json.dumps({"policyName": "static", "defaultCpuSet": "0-3"}), "static"),
        (STATIC_CONFIG, "{", "static"),
        (STATIC_CONFIG, json.dumps({"policyName": 7}), "static"),
        (STATIC_CONFIG, json.dumps([]), "static"),
    ],
)
def test_the_state_counts_before_the_configuration(config: str | None, state: str | None, policy: str) -> None:
    assert cpu_policy_in_force(config, state) == policy


def test_the_facts_of_a_host_have_the_policy_of_its_kubelet(tmp_path: Path) -> None:
    given = given_machine(Hierarchies({}, None, (), {}), {}, frozenset({0}), frozenset({0}), 1 << 30)
    assert host_facts("n", given, kubelet=tmp_path).kubelet_cpu_policy == ""
    (tmp_path / "config.yaml").write_text(STATIC_CONFIG)
    assert host_facts("n", given, kubelet=tmp_path).kubelet_cpu_policy == "static"
    assert host_facts("n", given).kubelet_cpu_policy == ""

"""Bandwidth by QoS class: HTB classes, and the files of terway-qos."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.network import tc, terway
from cotenant_node_executor.strategies.network.bandwidth import bandwidth
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Input, NodePolicy, StrategyDecision
from cotenant_node_executor.targets.address import EgressClass, Place, TcTree
from cotenant_node_executor.targets.other.traffic_tree import parsed
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import batch, capabilities, pod, service, situation, slo

GATES = frozenset(("TCNetworkQoS", "TerwayQoS"))
ON = {"enable": True}


def network(
    total: str = "1G", policy: str = "", ls: dict[str, Any] | None = None, be: dict[str, Any] | None = None
) -> NodeSLORendered:
    strategy: dict[str, Any] = {"policies": {"netQOSPolicy": policy}} if policy else {}
    for name, stated in (("lsClass", ls), ("beClass", be)):
        if stated is not None:
            strategy[name] = {"networkQOS": {**ON, **stated}}
    spec = {"systemStrategy": {"totalNetworkBandwidth": total}, "resourceQOSStrategy": strategy}
    return slo(spec=encoded(spec))


def seen(*pods: Pod, node_slo: NodeSLORendered | None = None, device: str = "eth9") -> Situation:
    made = situation(pods, node_slo=node_slo or network())
    return replace(made, node=replace(made.node, network_device=device))


def limited(name: str, egress: str, ingress: str = "0", qos: str = "LS") -> Pod:
    annotations = {"koordinator.sh/networkQOS": json.dumps({"ingressLimit": ingress, "egressLimit": egress})}
    return pod(name, qos, requests={"cpu": "1"}, annotations=annotations)


def decide(situation: Situation, memory: Struct | None = None) -> tuple[dict[Place, str], StrategyDecision]:
    decision = tc.strategy(GATES).decide
    assert decision is not None
    found = decision(situation, memory)
    return {place: own[0].value for place, own in found.values.items()}, found


def test_classes_have_upstreams_parts_of_the_total_unless_others_are_stated() -> None:
    values, _ = decide(seen(service("web"), batch("job")))
    assert values == {
        TcTree("eth9"): "1:1 0 1000000000 1000000000;1:2 1 400000000 1000000000;"
        "1:3 2 300000000 1000000000;1:4 3 300000000 1000000000",
        EgressClass("burstable/poduid-web"): "1:3",
        EgressClass("besteffort/poduid-job"): "1:4",
    }


def test_numbers_are_percentages_and_texts_are_bits_a_second() -> None:
    stated = network(ls={"egressRequest": 50, "egressLimit": 90}, be={"egressRequest": "50M", "egressLimit": "100M"})
    values, _ = decide(seen(node_slo=stated))
    assert parsed(values[TcTree("eth9")]) == {
        "1:1": (0, 10**9, 10**9),
        "1:2": (1, 400_000_000, 10**9),
        "1:3": (2, 500_000_000, 900_000_000),
        "1:4": (3, 50_000_000, 100_000_000),
    }


@pytest.mark.parametrize("ls", [{"egressRequest": 100}, {"egressRequest": "9G", "egressLimit": "1k"}, {"egressRequest": 0}])
@pytest.mark.parametrize("be", [{"egressRequest": 100, "egressLimit": 1}, {"egressLimit": "3"}])
@pytest.mark.parametrize("total", ["8", "1k", "100G"])
def test_whatever_is_stated_the_classes_are_ones_that_tc_takes(total: str, ls: dict[str, Any], be: dict[str, Any]) -> None:
    values, _ = decide(seen(node_slo=network(total, ls=ls, be=be)))
    classes = parsed(values[TcTree("eth9")])
    assert all(ceiling <= max(classes["1:1"][2], 8) for _, _, ceiling in classes.values())


def test_a_pod_with_a_limit_has_a_class_of_its_own_which_it_keeps() -> None:
    values, first = decide(seen(limited("a", "10M"), limited("b", "20M", qos="BE")))
    classes = parsed(values[TcTree("eth9")])
    assert classes["1:10"] == (2, 10_000_000, 10_000_000)
    assert classes["1:11"] == (3, 20_000_000, 20_000_000)
    assert values[EgressClass("burstable/poduid-b")] == "1:11"
    values, _ = decide(seen(limited("b", "20M", qos="BE"), limited("c", "1M")), first.memory)
    assert values[EgressClass("burstable/poduid-b")] == "1:11"
    assert values[EgressClass("burstable/poduid-c")] == "1:10"


def test_what_cannot_be_done_is_said() -> None:
    _, found = decide(seen(limited("a", "10M", "5M"), limited("b", "many")))
    assert found.problems[0] == "pod default/a: ingressLimit: tc shapes what is sent only"
    assert found.problems[1].startswith("pod default/b: annotation koordinator.sh/networkQOS: egressLimit")
    _, found = decide(seen(device=""))
    assert found.problems == ("no device has the default route: nothing to shape",)


@pytest.mark.parametrize("node_slo", [network("0"), network(policy="terway-qos"), slo()])
def test_nothing_is_shaped_without_a_total_or_by_another_policy(node_slo: NodeSLORendered) -> None:
    values, found = decide(seen(service("web"), node_slo=node_slo))
    assert (values, found.problems) == ({}, ())


def test_without_its_gate_a_strategy_does_nothing() -> None:
    for module, stated in ((tc, network()), (terway, network(policy="terway-qos"))):
        policy = NodePolicy(capabilities(), stated)
        off, on = module.strategy(frozenset()), module.strategy(GATES)
        assert off.inputs(policy) == frozenset()
        assert on.inputs(policy) == {Input.PODS}
        assert off.decide is not None
        assert off.decide(seen(service("web"), node_slo=stated), None).values == {}


@pytest.mark.parametrize(("total", "said"), [("much", "totalNetworkBandwidth"), ("-1", "not between"), ("1e18", "not between")])
def test_a_bandwidth_that_is_none_is_an_error_that_names_it(total: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bandwidth(network(total))


# -- terway-qos ------------------------------------------------------------------------------------------------------------


def files(situation: Situation) -> dict[str, str]:
    decision = terway.strategy(GATES).decide
    assert decision is not None
    return {getattr(place, "name", ""): own[0].value for place, own in decision(situation, None).values.items()}


def test_terway_gets_bytes_a_second_of_the_node_and_of_both_classes() -> None:
    stated = network("8k", "terway-qos", ls={"egressRequest": 50, "ingressLimit": "800"}, be={"egressLimit": "80"})
    assert files(seen(node_slo=stated))["global_bps_config"] == (
        "hw_tx_bps_max 1000\nhw_rx_bps_max 1000\n"
        "offline_l1_tx_bps_min 500\noffline_l1_tx_bps_max 0\noffline_l1_rx_bps_min 0\noffline_l1_rx_bps_max 100\n"
        "offline_l2_tx_bps_min 0\noffline_l2_tx_bps_max 10\noffline_l2_rx_bps_min 0\noffline_l2_rx_bps_max 0\n"
    )


def test_terway_gets_every_pod_with_its_priority_and_limits() -> None:
    stated = network(policy="terway-qos")
    text = files(seen(limited("a", "80", "160"), batch("job"), pod("sys", "SYSTEM"), node_slo=stated))["pod.json"]
    pods = json.loads(text)
    assert {uid: each["prio"] for uid, each in pods.items()} == {"uid-a": 1, "uid-job": 2, "uid-sys": 0}
    assert pods["uid-a"] == {
        "podName": "a",
        "podNamespace": "default",
        "podUID": "uid-a",
        "prio": 1,
        "cgroupDir": "/sys/fs/cgroup/net_cls/cotenant/node-1/burstable/poduid-a",
        "qosConfig": {"ingressBandwidth": 20, "egressBandwidth": 10},
    }


def test_without_the_policy_there_are_no_files() -> None:
    assert files(seen(service("web"))) == {}

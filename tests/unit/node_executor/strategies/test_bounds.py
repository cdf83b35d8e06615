"""Bounds of the strategies for page cache, CPU identity and network, whatever the NodeSLO and the annotations ask for: every
value is one that its target accepts and stays below what is above it; it is the same in whatever order pods come, and again
while nothing changes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import CpuIdentity, NodeSLORendered
from cotenant_node_executor.sampling.snapshot import PodSample, UsageSnapshot
from cotenant_node_executor.strategies.cpu.identity import idle
from cotenant_node_executor.strategies.cpu.identity import strategy as identity
from cotenant_node_executor.strategies.memory import page_cache
from cotenant_node_executor.strategies.network import tc, terway
from cotenant_node_executor.strategies.network.bandwidth import MOST_BITS
from cotenant_node_executor.strategies.pods.pod_values import group_shares
from cotenant_node_executor.strategies.readings import MIN_CACHE_BYTES
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import NodePolicy, Reclaim, StrategyDecision
from cotenant_node_executor.targets.address import EgressClass, NonCgroup, TcTree, TerwayAttribute, TerwayFile
from cotenant_node_executor.targets.cgroup.files import INT64_MAX, check_value
from cotenant_node_executor.targets.interface import RECLAIM, Knob, KnobSupport
from cotenant_node_executor.targets.other.terway import TerwayAccessor
from cotenant_node_executor.targets.other.traffic_tree import parsed
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import (
    GIB,
    NODE,
    batch,
    capabilities,
    pod,
    service,
    situation,
    slo,
    snapshot,
    usage,
)

MIB = 1 << 20
GATES = frozenset(("TCNetworkQoS", "TerwayQoS"))
VENDOR = capabilities(also=(*page_cache.KNOBS, Knob.CPU_BVT))
MAINLINE = replace(capabilities(), knobs={**capabilities().knobs, RECLAIM: KnobSupport(True)})
NUMBERS = st.one_of(st.integers(-3, 300), st.integers(-(2**70), 2**70))
QUANTITIES = st.one_of(st.integers(0, 120), st.sampled_from(["0", "8", "1k", "800", "50M", "3G", "90T", "1Ki"]))
TOTALS = st.sampled_from(["1", "8", "1k", "100M", "1G", "80T"])


def document(**sections: Any) -> NodeSLORendered:
    return slo(spec=encoded(sections))


def values_of(decision: StrategyDecision) -> dict[Any, dict[Any, str]]:
    return {place: {each.attribute: each.value for each in own} for place, own in decision.values.items()}


# -- network ---------------------------------------------------------------------------------------------------------------

CLASS = st.fixed_dictionaries(
    {"enable": st.booleans()},
    optional=dict.fromkeys(("ingressRequest", "ingressLimit", "egressRequest", "egressLimit"), QUANTITIES),
)
NAMES = st.sampled_from([f"p{number}" for number in range(6)])
POD_LIMITS = st.dictionaries(NAMES, st.sampled_from(["", "0", "8", "1M", "900T"]))


def network(total: str, policy: str, ls: dict[str, Any], be: dict[str, Any]) -> NodeSLORendered:
    qos = {"policies": {"netQOSPolicy": policy}, "lsClass": {"networkQOS": ls}, "beClass": {"networkQOS": be}}
    return document(systemStrategy={"totalNetworkBandwidth": total}, resourceQOSStrategy=qos)


def sending(limits: dict[str, str]) -> list[Pod]:
    """Pods with an egress limit, every second one best-effort; none where it is empty."""
    found = []
    for name, limit in limits.items():
        annotations = {"koordinator.sh/networkQOS": json.dumps({"egressLimit": limit})} if limit else {}
        found.append(pod(name, "BE" if int(name[1:]) % 2 else "LS", requests={"cpu": "1"}, annotations=annotations))
    return found


def on_device(pods: list[Pod], node_slo: NodeSLORendered) -> Situation:
    found = situation(pods, node_slo=node_slo)
    return replace(found, node=replace(found.node, network_device="eth9"))


def shaped(pods: list[Pod], node_slo: NodeSLORendered, memory: Struct | None = None) -> StrategyDecision:
    decide = tc.strategy(GATES).decide
    assert decide is not None
    return decide(on_device(pods, node_slo), memory)


@settings(max_examples=100, deadline=None)
@given(TOTALS, CLASS, CLASS, POD_LIMITS, POD_LIMITS)
def test_traffic_classes_are_within_the_total_and_every_pod_has_one_that_it_keeps(
    total: str, ls: dict[str, Any], be: dict[str, Any], first: dict[str, str], then: dict[str, str]
) -> None:
    node_slo = network(total, "tc", ls, be)
    memory: Struct | None = None
    before: dict[str, str] = {}
    for limits in (first, then):
        decision = shaped(sending(limits), node_slo, memory)
        values = values_of(decision)
        memory = decision.memory
        if not values:
            assert total == "1", "less than the kernel's least rate"
            return
        (text,) = values[TcTree("eth9")].values()
        classes = parsed(text)
        most = max(classes["1:1"][2], tc.LEAST_BITS)
        assert all(rate <= ceiling <= most for _, rate, ceiling in classes.values())
        own = {place.group: one for place, each in values.items() if isinstance(place, EgressClass) for one in each.values()}
        assert len(own) == len(limits)
        assert set(own.values()) <= classes.keys()
        alone = [one for one in own.values() if one not in (tc.LS, tc.BE)]
        assert sorted(alone) == sorted(classes.keys() - {tc.ROOT, tc.SYSTEM, tc.LS, tc.BE})
        assert len({*alone}) == len(alone)
        numbered = {group: one for group, one in own.items() if one not in (tc.LS, tc.BE)}
        both = before.keys() & numbered.keys()
        assert {group: numbered[group] for group in both} == {group: before[group] for group in both}
        before = numbered
    again = shaped(sending(then), node_slo, memory)
    assert again.values == decision.values


def test_more_pods_than_there_are_classes_share_those_of_their_class_and_it_is_said() -> None:
    pods = sending({f"p{number}": "1M" for number in range(tc.MOST_OF_PODS + 3)})
    decision = shaped(pods, network("1G", "tc", {}, {}))
    (text,) = values_of(decision)[TcTree("eth9")].values()
    assert len(parsed(text)) == 4 + tc.MOST_OF_PODS
    assert len(decision.problems) == 3


def written(pods: list[Pod], node_slo: NodeSLORendered) -> dict[Any, dict[Any, str]]:
    decide = terway.strategy(GATES).decide
    assert decide is not None
    return values_of(decide(situation(pods, node_slo=node_slo), None))


@settings(max_examples=60, deadline=None)
@given(TOTALS, CLASS, CLASS, POD_LIMITS, st.randoms(use_true_random=False))
def test_terways_files_name_every_pod_once_and_are_written_once(
    total: str, ls: dict[str, Any], be: dict[str, Any], limits: dict[str, str], order: Any
) -> None:
    pods, node_slo = sending(limits), network(total, "terway-qos", ls, be)
    found = written(pods, node_slo)
    rows = dict(line.split() for line in found[terway.NODE_FILE][TerwayAttribute.TEXT].splitlines())
    assert all(0 <= int(value) <= MOST_BITS // 8 for value in rows.values())
    named = json.loads(found[terway.POD_FILE][TerwayAttribute.TEXT])
    readable = {f"uid-{name}" for name, limit in limits.items() if limit != "900T"}
    assert named.keys() == readable
    assert all(0 <= each["qosConfig"]["egressBandwidth"] <= MOST_BITS // 8 for each in named.values())
    order.shuffle(pods)
    assert written(pods, node_slo) == found
    with tempfile.TemporaryDirectory() as folder:
        writer = OtherWriter({TerwayFile: TerwayAccessor(Path(folder))})
        wanted: dict[NonCgroup, Any] = {**found}
        assert [len(writer.apply(wanted).written) for _ in range(2)] == [2, 0]
        assert len(writer.apply({}).written) == 2
        assert not [*Path(folder).iterdir()]


# -- CPU identity ----------------------------------------------------------------------------------------------------------

IDENTITY = st.builds(CpuIdentity, enable=st.booleans(), group_identity=st.integers(-1, 2))
IDENTITIES = st.fixed_dictionaries({"lsr_identity": IDENTITY, "ls_identity": IDENTITY, "be_identity": IDENTITY})
ASKED = st.one_of(
    st.none(), st.builds(lambda on, value: json.dumps({"enable": on, "groupIdentity": value}), st.booleans(), NUMBERS)
)
CPUS = st.lists(st.integers(1, 64_000), min_size=1, max_size=4)


def mixed(asked: str | None, milli: list[int]) -> list[Pod]:
    """Services with these requests, one of them with an annotation, a guaranteed pod and batch pods."""
    annotations = {"koordinator.sh/cpuQOS": asked} if asked is not None else {}
    services = [service(f"web{place}", f"{each}m", annotations=annotations) for place, each in enumerate(milli)]
    amounts = {"cpu": f"{milli[0]}m", "memory": "1Gi"}
    return [*services, pod("db", "LSR", requests=amounts, limits=amounts), batch("job"), pod("none")]


@settings(max_examples=100, deadline=None)
@given(IDENTITIES, ASKED, CPUS, st.sampled_from([None, 0, 1]), st.randoms(use_true_random=False))
def test_an_identity_is_one_of_the_kernels_and_a_container_has_its_pods(
    fields: dict[str, CpuIdentity], asked: str | None, milli: list[int], sysctl: int | None, order: Any
) -> None:
    pods = mixed(asked, milli)

    def decided() -> dict[Any, dict[Any, str]]:
        found = values_of(identity.decide(situation(pods, node_slo=slo(**fields), kernel=VENDOR, sysctl=sysctl), None))
        return {group: own for group, own in found.items() if isinstance(group, str)}

    found = decided()
    for own in found.values():
        check_value(Knob.CPU_BVT, own[Knob.CPU_BVT])
    off = not any(each.enable for each in fields.values())
    assert bool(found) is not (off and sysctl == 0)
    if found:
        assert found[""] == {Knob.CPU_BVT: "0"}, "the kernel requires it of the directory of guaranteed pods"
    pods_of = {group: own for group, own in found.items() if group.endswith("/main")}
    assert all(own == found[group.removesuffix("/main")] for group, own in pods_of.items())
    order.shuffle(pods)
    assert decided() == found


@settings(max_examples=100, deadline=None)
@given(IDENTITIES, ASKED, CPUS)
def test_only_pods_become_idle_and_raised_shares_keep_their_ratios(
    fields: dict[str, CpuIdentity], asked: str | None, milli: list[int]
) -> None:
    node_slo = slo(**fields)
    there = situation(mixed(asked, milli), node_slo=node_slo)
    policy = NodePolicy(there.capabilities, node_slo)
    idles = {}
    for group, view in there.pods.items():
        of_pod = idle.of_pod(view.shape, policy)
        (own,) = of_pod.pod
        assert not of_pod.containers
        check_value(Knob.CPU_IDLE, own.value)
        idles[group] = own.value
    before, raised = group_shares(there), values_of(idle.decide(there, None))
    for group, attributes in raised.items():
        check_value(Knob.CPU_SHARES, attributes[Knob.CPU_SHARES])
        assert int(attributes[Knob.CPU_SHARES]) >= before[group]
        assert idles.get(group) != "1", "the kernel refuses shares of an idle group"
    for level in (True, False):
        siblings = [group for group in raised if group.startswith("burstable/") is level]
        assert len({int(raised[each][Knob.CPU_SHARES]) / before[each] for each in siblings}) <= 1


# -- page cache ------------------------------------------------------------------------------------------------------------

LIMIT = st.fixed_dictionaries(
    {"enable": st.booleans()},
    optional=dict.fromkeys(("pageCacheLimitEnable", "pageCacheLimitSize", "pageCacheLimitSync"), NUMBERS),
)


def stated(sync: int | None = None, size: int = GIB) -> dict[str, Any]:
    own = {} if sync is None else {"pageCacheLimitSync": sync}
    return {"enable": True, "pageCacheLimitEnable": 1, "pageCacheLimitSize": size, **own}


def refused(of_class: dict[str, Any]) -> list[str]:
    """The fields of an enabled class that are out of range."""
    ranges = {"pageCacheLimitEnable": (0, 1), "pageCacheLimitSize": (-1, INT64_MAX), "pageCacheLimitSync": (0, 1)}
    return [name for name, (low, high) in ranges.items() if of_class["enable"] and not low <= of_class.get(name, 0) <= high]


@settings(max_examples=150, deadline=None)
@example(stated(sync=-1), None, None)
@example(stated(size=2**63), None, None)
@example(stated(), stated(sync=-1), "16Mi")
@example(stated(sync=1), stated(size=2**63), None)
@given(LIMIT, st.one_of(st.none(), LIMIT), st.sampled_from([None, "16Mi", "1Gi"]))
def test_a_page_cache_limit_is_one_that_the_kernel_takes_and_within_the_memory_limit(
    of_class: dict[str, Any], annotation: dict[str, Any] | None, memory: str | None
) -> None:
    annotations = {"koordinator.sh/memoryQOS": json.dumps(annotation)} if annotation is not None else {}
    limits = {"limits": {"memory": memory}} if memory is not None else {}
    web = pod("web", "LS", requests={"cpu": "1"}, annotations=annotations, **limits)
    there = situation([web], node_slo=document(resourceQOSStrategy={"lsClass": {"memoryQOS": of_class}}), kernel=VENDOR)
    if names := refused(of_class):
        with pytest.raises(ValueError, match=rf"memoryQOS\.({'|'.join(names)}) is|Expected `int") as error:
            page_cache.decide(there, None)
        assert "lsclass.memoryqos" in str(error.value).lower()
        return
    decision = page_cache.decide(there, None)
    most = {"16Mi": 16 * MIB, "1Gi": GIB}.get(memory or "", 2**63)
    for own in values_of(decision).values():
        assert [*own] == [knob for knob in page_cache.KNOBS if knob in own], "the size is there before the limit is on"
        for knob, text in own.items():
            check_value(knob, text)
        assert int(own.get(page_cache.KNOBS[0], "0")) <= most
    assert page_cache.decide(there, decision.memory).values == {
        place: own for place, own in decision.values.items() if values_of(decision)[place].get(page_cache.KNOBS[2]) == "1"
    }


def cached(amounts: list[int]) -> UsageSnapshot:
    pods = {}
    for place, own in enumerate(amounts):
        group = f"besteffort/poduid-job{place}"
        held = replace(usage(group, 0), memory_bytes=GIB, memory_with_page_cache_bytes=GIB + own)
        pods[f"uid-job{place}"] = PodSample(f"uid-job{place}", "besteffort", held)
    return replace(snapshot(0), pods=pods)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4 * GIB), min_size=1, max_size=5), st.integers(1, 2 * GIB), st.floats(0.1, 1.0))
def test_reclaim_takes_what_is_above_the_limit_and_then_rests(amounts: list[int], limit: int, freed: float) -> None:
    """`freed`: the share of each order that the kernel frees."""
    fields = {"enable": True, "pageCacheLimitEnable": 1, "pageCacheLimitSize": limit}
    node_slo = NodeSLORendered(
        node=NODE, spec=encoded({"resourceQOSStrategy": {"beClass": {"memoryQOS": fields}}})
    )
    pods = [batch(f"job{place}") for place in range(len(amounts))]
    held, memory = [*amounts], None
    for _ in range(500):
        decision = page_cache.decide(situation(pods, node_slo=node_slo, kernel=MAINLINE, reading=cached(held)), memory)
        memory = decision.memory
        if not decision.orders:
            break
        (order,) = decision.orders
        assert isinstance(order, Reclaim)
        place = int(order.group.removeprefix("besteffort/poduid-job"))
        assert order.memory_bytes == held[place] - limit == max(held) - limit
        held[place] -= int(order.memory_bytes * freed)
    assert all(each - limit < MIN_CACHE_BYTES for each in held)
    kept = [min(before, limit) for before in amounts]
    assert all(after >= least for after, least in zip(held, kept, strict=True)), "nothing within the limit goes"

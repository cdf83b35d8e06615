"""Cache and memory bandwidth: masks, groups of classes and pods, and a tree that refuses as the kernel does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.host_facts import resctrl_facts
from cotenant_node_executor.strategies.cache.pod_groups import pod_schemata
from cotenant_node_executor.strategies.cache.resctrl import STRATEGY, decide
from cotenant_node_executor.strategies.cache.schemata import ResctrlQOS, cache_ids, class_l3, class_mb, l3_mask, mba_value
from cotenant_node_executor.strategies.situation import ResctrlFacts, Situation
from cotenant_node_executor.strategies.strategy import Input, NodePolicy, StrategyDecision
from cotenant_node_executor.targets.address import Attribute, NonCgroup, ResctrlAttribute, ResctrlGroup
from cotenant_node_executor.targets.interface import KnobSupport
from cotenant_node_executor.targets.other.held import HeldValues
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import NODE, batch, capabilities, pod, service, situation
from tests.unit.node_executor.imitated_resctrl import WHOLE, ImitatedResctrl

FACTS = ResctrlFacts(WHOLE, "7ff", "GenuineIntel")
ANNOTATION = "node.koordinator.sh/resctrl"
SCHEMATA, THREADS = ResctrlAttribute.SCHEMATA, ResctrlAttribute.CONTROL_GROUPS
BE_ON = {"beClass": {"resctrlQOS": {"enable": True, "catRangeEndPercent": 30, "MBAPercent": 45}}}


def slo(strategy: dict[str, Any]) -> NodeSLORendered:
    return NodeSLORendered(node=NODE, spec=encoded({"resourceQOSStrategy": strategy}))


def there(strategy: dict[str, Any], *pods: Any, facts: ResctrlFacts | None = FACTS) -> Situation:
    found = situation(pods, node_slo=slo(strategy))
    return replace(found, node=replace(found.node, resctrl=facts))


def values(decision: StrategyDecision) -> dict[NonCgroup, Mapping[Attribute, str]]:
    others = ((place, own) for place, own in decision.values.items() if not isinstance(place, str))
    return {place: {each.attribute: each.value for each in own} for place, own in others}


@given(st.integers(1, 32), st.integers(0, 100), st.integers(0, 100))
def test_a_mask_is_contiguous_within_the_machines_and_ranges_that_meet_share_no_way(ways: int, start: int, end: int) -> None:
    cbm = f"{(1 << ways) - 1:x}"
    if end <= start:
        with pytest.raises(ValueError, match="cache range"):
            l3_mask(cbm, start, end)
        return
    mask = int(l3_mask(cbm, start, end), 16)
    assert mask <= int(cbm, 16)
    assert (mask & -mask) + mask & mask == 0
    if start > 0:
        assert int(l3_mask(cbm, 0, start), 16) & mask == 0
        assert int(l3_mask(cbm, 0, start), 16) | mask == int(l3_mask(cbm, 0, end), 16)


@given(st.integers(-10, 110))
@example(1)
@example(0)
@example(101)
def test_bandwidth_is_left_alone_out_of_range_and_never_below_what_is_asked(percent: int) -> None:
    intel, amd = mba_value("GenuineIntel", percent), mba_value("AuthenticAMD", percent)
    if not 0 < percent <= 100:
        assert (intel, amd) == (None, None)
    else:
        assert percent <= int(intel or 0) < percent + 10
        assert amd == ("2048" if percent == 100 else str(160 * percent // 100))


def test_cache_ids_may_have_gaps_and_other_lines_may_be_there() -> None:
    assert cache_ids("MB:0=100;8=100\n  L3:8=f;0=f\nL2:0=f", "L3") == [0, 8]


def test_code_and_data_get_the_same_mask() -> None:
    facts = ResctrlFacts("L3CODE:0=7ff\nL3DATA:0=7ff\nMB:0=100", "7ff", "GenuineIntel")
    decision = decide(there(BE_ON, facts=facts), None)
    assert values(decision)[ResctrlGroup("BE")][SCHEMATA] == "L3CODE:0=f;\nL3DATA:0=f;\nMB:0=50;\n"


def test_a_mount_in_megabytes_takes_megabytes_and_no_percentage() -> None:
    facts = replace(FACTS, in_mbps=True)
    assert class_mb(ResctrlQOS(mba_percent=50), facts) is None
    assert class_mb(ResctrlQOS(mba_mbps=800), facts) == "MB:0=800;1=800;\n"


def test_all_groups_exist_and_only_an_enabled_class_takes_its_pods_threads() -> None:
    found = values(decide(there(BE_ON, batch("a"), batch("b"), service("web")), None))
    assert found == {
        ResctrlGroup("LSR"): {SCHEMATA: "L3:0=7ff;1=7ff;\nMB:0=100;1=100;\n"},
        ResctrlGroup("LS"): {SCHEMATA: "L3:0=7ff;1=7ff;\nMB:0=100;1=100;\n"},
        ResctrlGroup("BE"): {
            SCHEMATA: "L3:0=f;1=f;\nMB:0=50;1=50;\n",
            THREADS: "besteffort/poduid-a,besteffort/poduid-b",
        },
    }


def test_nothing_stated_makes_no_group_and_a_machine_without_resctrl_none_either() -> None:
    assert values(decide(there({"beClass": {}}), None)) == {}
    assert values(decide(there(BE_ON, facts=None), None)) == {}


def test_one_groups_error_does_not_stop_the_others() -> None:
    strategy = {**BE_ON, "lsClass": {"resctrlQOS": {"enable": True, "catRangeStartPercent": 90, "catRangeEndPercent": 10}}}
    decision = decide(there(strategy), None)
    assert decision.problems == ("group LS: cache range 90..10%: expected a range within 0..100",)
    assert values(decision)[ResctrlGroup("LS")] == {SCHEMATA: "MB:0=100;1=100;\n"}
    assert ResctrlGroup("BE") in values(decision)


def test_a_range_that_holds_no_way_is_said_and_its_schemata_are_left_alone() -> None:
    # ceil(11 x 0.91) = ceil(11 x 1.00) = 11: the kernel refuses a mask without a bit.
    assert l3_mask("7ff", 91, 100) == "0"
    narrow = {"enable": True, "catRangeStartPercent": 91, "catRangeEndPercent": 100}
    decision = decide(there({**BE_ON, "lsClass": {"resctrlQOS": narrow}}), None)
    assert decision.problems == ("group LS: cache range 91..100% holds none of this machine's 11 ways: widen it",)
    assert values(decision)[ResctrlGroup("LS")] == {SCHEMATA: "MB:0=100;1=100;\n"}
    with pytest.raises(ValueError, match="holds none of this machine's 11 ways"):
        pod_schemata('{"llc": {"schemata": {"range": [91, 100]}}}', FACTS)


def test_a_pod_with_an_annotation_has_its_own_group_and_leaves_its_classes() -> None:
    cache = '{"schemata": {"range": [0, 50]}, "schemataPerCache": [{"cacheID": 1, "range": [50, 100]}]}'
    text = f'{{"llc": {cache}, "mb": {{"schemata": {{"percent": 20}}}}}}'
    found = values(decide(there(BE_ON, batch("a", annotations={ANNOTATION: text}), batch("b")), None))
    assert found[ResctrlGroup("koordlet-uid-a")] == {
        SCHEMATA: "L3:0=3f;1=7c0;\nMB:0=20;1=20;\n",
        THREADS: "besteffort/poduid-a",
    }
    assert found[ResctrlGroup("BE")][THREADS] == "besteffort/poduid-b"


def test_an_unreadable_annotation_is_said_and_the_pod_stays_in_its_class() -> None:
    decision = decide(there(BE_ON, batch("a", annotations={ANNOTATION: "{"})), None)
    assert decision.problems[0].startswith(f"pod default/a: annotation {ANNOTATION}: ")
    assert values(decision)[ResctrlGroup("BE")][THREADS] == "besteffort/poduid-a"


@pytest.mark.parametrize(
    ("cbm", "start", "end", "mask"),
    [
        ("7ff", 0, 100, "7ff"),
        ("7ff", 0, 30, "f"),
        ("7ff", 30, 100, "7f0"),
        ("7ff", 9, 10, "2"),
        ("7ff", 0, 91, "7ff"),
        ("ffff", 44, 100, "ff00"),
        ("fffff", 0, 30, "3f"),
        ("fffff", 50, 55, "400"),
        ("1", 0, 1, "1"),
        ("3", 50, 51, "2"),
    ],
)
def test_ways_are_rounded_up_at_both_ends(cbm: str, start: int, end: int, mask: str) -> None:
    assert l3_mask(cbm, start, end) == mask


@pytest.mark.parametrize("cbm", ["0", "-1", "6", "5", "7fe", "", "x"])
def test_a_mask_of_the_machine_has_all_bits_from_bit_0_on(cbm: str) -> None:
    with pytest.raises(ValueError, match="cbm_mask"):
        l3_mask(cbm, 0, 100)


@pytest.mark.parametrize(("start", "end"), [(-1, 50), (0, 101), (50, 50), (51, 50)])
def test_a_range_is_not_empty_and_within_0_and_100(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="cache range"):
        l3_mask("7ff", start, end)


@pytest.mark.parametrize("megabytes", [None, 0, -5])
def test_without_megabytes_a_mount_in_megabytes_is_left_alone(megabytes: int | None) -> None:
    assert class_mb(ResctrlQOS(mba_mbps=megabytes), replace(FACTS, in_mbps=True)) is None
    assert class_mb(ResctrlQOS(mba_mbps=1), replace(FACTS, in_mbps=True)) == "MB:0=1;1=1;\n"


@pytest.mark.parametrize(("start", "end"), [(None, 50), (0, None), (None, None)])
def test_a_class_that_states_half_a_range_has_none(start: int | None, end: int | None) -> None:
    assert class_l3(ResctrlQOS(cat_range_start_percent=start, cat_range_end_percent=end), FACTS) is None
    assert class_l3(None, FACTS) is None
    assert class_mb(None, FACTS) is None


def test_a_machine_without_the_lines_says_so() -> None:
    bare = ResctrlFacts("L2:0=f", "7ff", "GenuineIntel")
    decision = decide(there(BE_ON, facts=bare), None)
    lines = [
        f"group {name}: this machine's schemata have no line {line}" for name in ("LSR", "LS", "BE") for line in ("L3", "MB")
    ]
    assert list(decision.problems) == lines
    assert decision.values == {}


ALL_ON = {name: {"resctrlQOS": {"enable": True, "catRangeEndPercent": 50}} for name in ("lsrClass", "lsClass", "beClass")}


def test_pods_are_in_the_group_of_their_class_and_without_a_label_in_that_of_their_kubernetes_class() -> None:
    same = {"cpu": "1", "memory": "1Gi"}
    pods = [
        pod("lse", "LSE", requests=same, limits=same),
        pod("lsr", "LSR", requests=same, limits=same),
        pod("ls", "LS", requests=same),
        pod("be", "BE"),
        pod("system", "SYSTEM"),
        pod("guaranteed", requests=same, limits=same),
        pod("burstable", requests=same),
        pod("effort"),
    ]
    decision = decide(there(ALL_ON, *pods), None)
    threads = {
        place.name: own[THREADS].split(",") for place, own in values(decision).items() if isinstance(place, ResctrlGroup)
    }
    assert {name: sorted(group.rpartition("uid-")[2] for group in groups) for name, groups in threads.items()} == {
        "LSR": ["guaranteed", "lse", "lsr"],
        "LS": ["burstable", "ls"],
        "BE": ["be", "effort"],
    }


def test_by_default_best_effort_has_three_tenths_of_the_cache_and_the_others_all_of_it() -> None:
    stated = {name: {"resctrlQOS": {"enable": True}} for name in ("lsrClass", "lsClass", "beClass")}
    found = values(decide(there(stated), None))
    assert {place.name: own[SCHEMATA] for place, own in found.items() if isinstance(place, ResctrlGroup)} == {
        "LSR": "L3:0=7ff;1=7ff;\nMB:0=100;1=100;\n",
        "LS": "L3:0=7ff;1=7ff;\nMB:0=100;1=100;\n",
        "BE": "L3:0=f;1=f;\nMB:0=100;1=100;\n",
    }
    wide = values(decide(there(stated, facts=replace(FACTS, cbm_mask="fffff")), None))
    assert wide[ResctrlGroup("BE")][SCHEMATA] == "L3:0=3f;1=3f;\nMB:0=100;1=100;\n"


def test_a_pods_group_has_what_its_annotation_leaves_out_whole() -> None:
    assert pod_schemata('{"llc": {}, "mb": {}}', FACTS) == "L3:0=7ff;1=7ff;\nMB:0=100;1=100;\n"
    assert pod_schemata('{"llc": {"schemata": {"range": [1]}}}', FACTS) == "L3:0=7ff;1=7ff;\n"
    assert pod_schemata('{"llc": {"schemata": {"range": [10, 20, 30]}}}', FACTS) == "L3:0=7ff;1=7ff;\n"
    assert pod_schemata('{"mb": {"schemataPerCache": [{"cacheID": 1, "percent": 40}]}}', FACTS) == "MB:0=100;1=40;\n"
    assert pod_schemata("{}", FACTS) == ""


def test_bandwidth_in_percent_that_cannot_be_is_an_error_of_the_annotation() -> None:
    with pytest.raises(ValueError, match=r"0% is outside 1\.\.100"):
        pod_schemata('{"mb": {"schemata": {"percent": 0}}}', FACTS)
    with pytest.raises(ValueError, match="is in MB/s"):
        pod_schemata('{"mb": {}}', replace(FACTS, in_mbps=True))


def test_of_an_annotation_64_caches_count() -> None:
    many = [{"cacheID": 5, "range": [0, 50]}] * 63 + [{"cacheID": 0, "range": [0, 10]}, {"cacheID": 1, "range": [0, 10]}]
    text = msgspec.json.encode({"llc": {"schemataPerCache": many}}).decode()
    assert pod_schemata(text, FACTS) == "L3:0=3;1=7ff;\n"
    shares = [{"cacheID": 5, "percent": 50}] * 63 + [{"cacheID": 0, "percent": 10}, {"cacheID": 1, "percent": 10}]
    text = msgspec.json.encode({"mb": {"schemataPerCache": shares}}).decode()
    assert pod_schemata(text, FACTS) == "MB:0=10;1=100;\n"


def test_on_the_imitated_kernel_groups_converge_threads_follow_and_everything_is_restored(tmp_path: Path) -> None:
    threads = {"besteffort/poduid-a": [11, 12]}
    kernel = ImitatedResctrl(tmp_path / "resctrl", lambda group: threads.get(group, ()))
    kernel.alive = {11}
    held = tmp_path / "initial.json"
    writer = OtherWriter({ResctrlGroup: kernel}, HeldValues(held))
    wanted = values(decide(there(BE_ON, batch("a")), None))
    report = writer.apply(wanted)
    assert [str(each.place.name) for each in report.written if isinstance(each.place, ResctrlGroup)]
    threads["besteffort/poduid-a"] = [11, 13]
    kernel.alive = {11, 13}
    writer.apply(wanted)
    assert (tmp_path / "resctrl/BE/tasks").read_text().split() == ["11", "13"]
    assert "L3:0=f;1=f" in (tmp_path / "resctrl/BE/schemata").read_text()
    assert writer.apply(wanted).written == (), "nothing flutters"
    # Killed here; the next start finds what was made and nobody asks for.
    restarted = OtherWriter({ResctrlGroup: kernel}, HeldValues(held))
    assert restarted.holding
    assert restarted.apply({}).refused == ()
    assert not [each for each in (tmp_path / "resctrl").iterdir() if each.is_dir() and each.name != "info"]
    assert (tmp_path / "resctrl/tasks").read_text().split() == ["11", "13"]
    assert not HeldValues(held)


def test_a_kernel_without_a_further_group_refuses_it_once_and_the_others_are_there(tmp_path: Path) -> None:
    kernel = ImitatedResctrl(tmp_path / "resctrl", lambda _group: (), groups=2)
    writer = OtherWriter({ResctrlGroup: kernel})
    wanted = values(decide(there(BE_ON), None))
    report = writer.apply(wanted)
    assert [(str(each.place), each.message) for each in report.refused] == [
        (str(ResctrlGroup("BE")), "No space left on device")
    ]
    assert writer.apply(wanted).still_refused == 1


def test_the_machines_facts_are_read_from_the_mount(tmp_path: Path) -> None:
    files = {
        "sys/fs/resctrl/schemata": WHOLE,
        "sys/fs/resctrl/info/L3/cbm_mask": "7ff",
        "proc/mounts": "resctrl /sys/fs/resctrl resctrl rw,mba_MBps 0 0",
        "proc/cpuinfo": "vendor_id\t: AuthenticAMD",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert resctrl_facts(tmp_path / "proc", tmp_path / "sys") == ResctrlFacts(WHOLE + "\n", "7ff", "AuthenticAMD", True)
    assert resctrl_facts(tmp_path / "proc", tmp_path) is None


def test_pods_without_a_group_of_their_own_do_not_hide_those_with_one() -> None:
    whole = '{"llc": {}}'
    pods = [
        batch("a"),
        batch("b", annotations={ANNOTATION: "{"}),
        batch("c", annotations={ANNOTATION: whole}),
        batch("d", annotations={ANNOTATION: whole}),
    ]
    found = values(decide(there({}, *pods), None))
    assert found == {
        ResctrlGroup(f"koordlet-uid-{name}"): {SCHEMATA: "L3:0=7ff;1=7ff;\n", THREADS: f"besteffort/poduid-{name}"}
        for name in "cd"
    }


def test_pods_matter_to_a_kernel_with_resctrl_only() -> None:
    kernel = capabilities()
    with_it = replace(kernel, knobs={**kernel.knobs, "resctrl": KnobSupport(True)})
    assert STRATEGY.inputs(NodePolicy(kernel, slo(BE_ON))) == frozenset()
    assert STRATEGY.inputs(NodePolicy(with_it, slo(BE_ON))) == {Input.PODS}

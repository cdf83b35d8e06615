"""Disks: which lines the files of a group get, on v1 and v2, and what is reset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.api.objects.pod import decode_pod
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.disk.blkio import STRATEGY, decide
from cotenant_node_executor.strategies.disk.blkio_plan import IOConfig, Level, blkio_plan, listed, v2_plan
from cotenant_node_executor.strategies.disk.pod_volumes import claims_of, volumes_of
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Input, NodePolicy, StrategyDecision
from cotenant_node_executor.targets.address import Knob
from cotenant_node_executor.targets.cgroup.files import check_value, holds
from cotenant_node_executor.targets.disks import Storage
from cotenant_node_executor.targets.interface import ROOT_GROUP, CgroupVersion, InvalidValueError
from cotenant_node_executor.targets.other.storage import read_storage
from tests.builders import encoded, pod_document
from tests.unit.node_executor.builders_node_executor import NODE, batch, capabilities, pod, situation

V1, V2 = CgroupVersion.V1, CgroupVersion.V2
THROTTLE = (Knob.BLKIO_READ_BPS, Knob.BLKIO_WRITE_BPS, Knob.BLKIO_READ_IOPS, Knob.BLKIO_WRITE_IOPS)
STORAGE = Storage({"/dev/sda": "8:0", "/dev/sdb": "8:16"}, {"/dev/sda1": "/dev/sda"}, {"data": "/dev/sdb"})
DISK = {"name": "/dev/sda1", "type": "device", "ioCfg": {"readBPS": 1048576, "ioWeightPercent": 40}}
ANNOTATION = "koordinator.sh/blkioQOS"

rates = st.one_of(st.none(), st.integers(0, 1 << 40))
configs = st.builds(
    IOConfig,
    read_iops=rates,
    write_iops=rates,
    read_bps=rates,
    write_bps=rates,
    io_weight_percent=st.one_of(st.none(), st.integers(1, 100)),
    read_latency=rates,
)


def slo(be: dict[str, Any] | None = None, **more: Any) -> NodeSLORendered:
    strategy = {"beClass": {"blkioQOS": be}, **more} if be is not None else more
    return NodeSLORendered(node=NODE, spec=encoded({"resourceQOSStrategy": strategy}))


def there(rendered: NodeSLORendered, *pods: Any, version: CgroupVersion = V1) -> Situation:
    knobs = THROTTLE if version is V1 else (Knob.IO_MAX, Knob.IO_WEIGHT, Knob.IO_LATENCY)
    kernel = replace(capabilities(also=knobs), version=version)
    return replace(situation(pods, node_slo=rendered, kernel=kernel), storage=STORAGE)


def texts(decision: StrategyDecision, group: str = "besteffort") -> dict[str, str]:
    return {str(each.attribute.value): each.value for each in decision.values.get(group, ())}


@given(st.dictionaries(st.sampled_from(["8:0", "8:16", "253:0"]), configs), st.sets(st.sampled_from(["8:0", "8:32"])))
def test_every_line_is_valid_and_of_one_disk_and_a_disk_is_either_set_or_reset(
    wanted: dict[str, IOConfig], present: set[str]
) -> None:
    for plan in (blkio_plan(Level.CLASS, wanted, present), v2_plan(wanted, present)):
        assert plan.set_lines.keys() == wanted.keys()
        assert plan.reset_lines.keys() == present - wanted.keys()
        for lines in (plan.set_lines, plan.reset_lines):
            for disk, files in lines.items():
                for knob, line in files.items():
                    check_value(knob, line)
                    assert line.startswith(f"{disk} ")


@given(st.dictionaries(st.sampled_from(["8:0", "8:16"]), configs, min_size=1))
def test_what_was_written_holds_and_a_reset_of_a_disk_without_a_line_needs_no_write(wanted: dict[str, IOConfig]) -> None:
    for lines in blkio_plan(Level.CLASS, wanted, set()).set_lines.values():
        for knob, line in lines.items():
            assert holds(V1, knob, line, line)
    for lines in v2_plan({}, set(wanted)).reset_lines.values():
        for knob, line in lines.items():
            assert holds(V2, knob, line, "default 100" if knob is Knob.IO_WEIGHT else "")


def test_the_kernel_shows_more_words_and_decimals_than_were_written() -> None:
    shown = "8:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=1.00 max=100.00"
    assert holds(V1, Knob.BLKIO_COST_QOS, "8:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000", shown)
    assert not holds(V1, Knob.BLKIO_COST_QOS, "8:0 enable=1 ctrl=user rpct=90 rlat=3000 wpct=95 wlat=3000", shown)
    bound = "8:0 rbps=5 wbps=max riops=max wiops=max"
    assert holds(V2, Knob.IO_MAX, f"{bound}\n8:16 rbps=max", bound)
    assert not holds(V2, Knob.IO_WEIGHT, "8:0 40", "default 100")


@pytest.mark.parametrize("text", ["8:0 40\n8:16", "8:0 0", "8:0 101", "8 40"])
def test_a_weight_is_checked_line_by_line(text: str) -> None:
    with pytest.raises(InvalidValueError):
        check_value(Knob.BLKIO_COST_WEIGHT, text)


def test_a_line_without_a_value_is_an_error() -> None:
    assert listed({"a": "8:0 1\n\ndefault 100\n8:16 2"}) == {"8:0", "8:16"}
    with pytest.raises(ValueError, match="has no value"):
        listed({"a": "8:0"})


def test_the_class_is_set_with_what_this_kernel_has() -> None:
    asked = slo({"enable": True, "blocks": [DISK]})
    found = texts(decide(there(asked), None))
    assert found["blkio.throttle.read_bps_device"].split("\n")[-1] == "8:0 1048576"
    assert "blkio.cost.weight" not in found
    on_v2 = texts(decide(there(asked, version=V2), None))
    assert on_v2["io.max"].split("\n")[-1] == "8:0 rbps=1048576 wbps=max riops=max wiops=max"
    assert on_v2["io.weight"].split("\n")[-1] == "8:0 40"


def test_a_disk_that_is_not_configured_any_more_is_reset_and_then_left_alone() -> None:
    first = decide(there(slo({"enable": True, "blocks": [DISK]})), None)
    off = decide(there(slo({"enable": False, "blocks": [DISK]})), first.memory)
    assert "8:0 0" in texts(off)["blkio.throttle.read_bps_device"].split("\n")
    gone = decide(there(slo()), off.memory)
    assert "8:0 0" in texts(gone)["blkio.throttle.read_bps_device"].split("\n")
    assert decide(there(slo()), gone.memory).values == {}


def test_after_a_start_what_an_earlier_executor_set_is_reset() -> None:
    found = texts(decide(there(slo()), None))
    assert found["blkio.throttle.write_iops_device"].split("\n") == ["8:0 0", "8:16 0"]


def test_a_block_that_names_no_disk_leaves_its_level_and_says_why() -> None:
    asked = slo({"enable": True, "blocks": [DISK, {"name": "/dev/nvme9", "type": "device", "ioCfg": {}}]})
    decision = decide(there(asked), None)
    assert texts(decision) == {}
    assert decision.problems == ("blkioQOS of BE: '/dev/nvme9' is no disk or partition of this machine",)


def test_a_pods_annotation_counts_for_its_group_alone() -> None:
    text = msgspec.json.encode({"blocks": [{"name": "data", "type": "volumegroup", "ioCfg": {"writeIOPS": 7}}]}).decode()
    decision = decide(there(slo(), batch("a", annotations={ANNOTATION: text}), batch("b")), decide(there(slo()), None).memory)
    assert list(decision.values) == ["besteffort/poduid-a"]
    assert texts(decision, "besteffort/poduid-a")["blkio.throttle.write_iops_device"] == "8:16 7"


def test_an_unreadable_annotation_is_said_and_changes_nothing() -> None:
    decision = decide(there(slo(), batch("a", annotations={ANNOTATION: "{"})), decide(there(slo()), None).memory)
    assert decision.values == {}
    assert decision.problems[0].startswith(f"pod default/a: annotation {ANNOTATION}: ")


def test_disks_partitions_volume_groups_and_mounts_are_found_in_the_kernels_tables(tmp_path: Path) -> None:
    files = {
        "sys/block/sda/dev": "8:0",
        "sys/block/sda/sda1/partition": "1",
        "sys/block/dm-0/dev": "253:0",
        "sys/block/dm-0/dm/uuid": "LVM-abc",
        "sys/block/dm-0/dm/name": "my--data-web",
        "sys/block/dm-0/slaves/sda1/dev": "8:1",
        "proc/self/mountinfo": "36 35 253:0 / /mnt rw - ext4 /dev/mapper/my--data-web rw\n1 2 0:1 / /proc rw - proc proc rw",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    found = read_storage(tmp_path / "proc", tmp_path / "sys")
    assert (found.of_device("/dev/sda1"), found.of_volume_group("my-data"), found.of_mount("/mnt")) == ("8:0", "8:0", "8:0")


FULL = IOConfig(read_iops=1, write_iops=2, read_bps=3, write_bps=4, io_weight_percent=5)


@pytest.mark.parametrize("level", [Level.CLASS, Level.POD])
def test_a_class_and_a_pod_have_rates_and_a_weight_and_without_them_none_and_100(level: Level) -> None:
    plan = blkio_plan(level, {"8:0": FULL, "8:16": IOConfig()}, {"8:0", "8:32"})
    assert {
        disk: [lines[knob].split()[1] for knob in (*THROTTLE, Knob.BLKIO_COST_WEIGHT)] for disk, lines in plan.set_lines.items()
    } == {
        "8:0": ["3", "4", "1", "2", "5"],
        "8:16": ["0", "0", "0", "0", "100"],
    }
    assert plan.reset_lines == {
        "8:32": {**dict.fromkeys(THROTTLE, "8:32 0"), Knob.BLKIO_COST_WEIGHT: "8:32 100"},
    }


def test_the_root_has_latencies_and_a_model_and_without_them_the_defaults() -> None:
    own = IOConfig(
        read_latency=0, write_latency=7, read_latency_percent=0, write_latency_percent=90, enable_user_model=True,
        model_read_bps=1, model_read_seq_iops=2, model_read_rand_iops=3, model_write_bps=4, model_write_seq_iops=5,
    )  # fmt: skip
    plan = blkio_plan(Level.ROOT, {"8:0": own, "8:16": IOConfig(model_read_bps=1)}, {"8:0", "8:32"})
    assert plan.set_lines == {
        "8:0": {
            Knob.BLKIO_COST_QOS: "8:0 enable=1 ctrl=user rpct=0 rlat=0 wpct=90 wlat=7",
            Knob.BLKIO_COST_MODEL: "8:0 ctrl=user rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=0",
        },
        "8:16": {
            Knob.BLKIO_COST_QOS: "8:16 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000",
            Knob.BLKIO_COST_MODEL: "8:16 ctrl=auto",
        },
    }
    assert plan.reset_lines == {"8:32": {Knob.BLKIO_COST_QOS: "8:32 enable=0"}}


def test_on_v2_the_smaller_of_two_latencies_is_the_target() -> None:
    both = replace(FULL, read_latency=500, write_latency=300)
    plan = v2_plan({"8:0": both, "8:16": IOConfig(write_latency=9, io_weight_percent=0)}, {"8:0", "8:32"})
    assert plan.set_lines == {
        "8:0": {
            Knob.IO_MAX: "8:0 rbps=3 wbps=4 riops=1 wiops=2",
            Knob.IO_WEIGHT: "8:0 5",
            Knob.IO_LATENCY: "8:0 target=300",
        },
        "8:16": {
            Knob.IO_MAX: "8:16 rbps=max wbps=max riops=max wiops=max",
            Knob.IO_WEIGHT: "8:16 0",
            Knob.IO_LATENCY: "8:16 target=9",
        },
    }
    assert plan.reset_lines["8:32"][Knob.IO_LATENCY] == "8:32 target=0"


def blocks(*names: str, **rates: int) -> list[dict[str, Any]]:
    return [{"name": name, "type": "device", "ioCfg": rates} for name in names]


def test_of_a_level_64_blocks_count_and_of_two_on_one_disk_the_last() -> None:
    many = [*blocks(*["/dev/sda"] * 63, readBPS=1), *blocks("/dev/sda", readBPS=2), *blocks("/dev/none")]
    known = decide(there(slo()), None).memory
    found = decide(there(slo({"enable": True, "blocks": many})), known)
    assert (texts(found)["blkio.throttle.read_bps_device"], found.problems) == ("8:0 2", ())
    text = msgspec.json.encode({"blocks": many}).decode()
    of_pod = decide(there(slo(), batch("a", annotations={ANNOTATION: text})), known)
    assert texts(of_pod, "besteffort/poduid-a")["blkio.throttle.read_bps_device"] == "8:0 2"
    assert of_pod.problems == ()


def test_the_root_is_configured_on_v1_only() -> None:
    root = {"cgroupRoot": {"blkioQOS": {"enable": True, "blocks": blocks("/dev/sda")}}}
    kernel = capabilities(also=(*THROTTLE, Knob.BLKIO_COST_QOS, Knob.BLKIO_COST_MODEL, Knob.IO_MAX, Knob.IO_LATENCY))
    for version, configured in ((V1, True), (V2, False)):
        there_now = replace(there(slo(**root)), capabilities=replace(kernel, version=version))
        decision = decide(there_now, decide(replace(there_now, slo=slo()), None).memory)
        assert (ROOT_GROUP in decision.values) is configured
        assert not decision.problems


def test_a_pod_without_a_qos_label_gets_nothing_and_an_empty_annotation_resets() -> None:
    text = msgspec.json.encode({"blocks": blocks("/dev/sda", readBPS=5)}).decode()
    known = decide(there(slo()), None).memory
    plain = decide(there(slo(), pod("a", "", annotations={ANNOTATION: text})), known)
    assert plain.values == {}
    first = decide(there(slo(), batch("a", annotations={ANNOTATION: text})), known)
    emptied = decide(there(slo(), batch("a", annotations={ANNOTATION: ""})), first.memory)
    assert texts(emptied, "besteffort/poduid-a")["blkio.throttle.read_bps_device"] == "8:0 0"


def test_volumes_are_those_of_claims_and_of_csi() -> None:
    raw = [
        {"name": "claimed", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "unbound", "persistentVolumeClaim": {"claimName": "other"}},
        {"name": "driver", "csi": {"driver": "d"}},
        {"name": 7},
        {"name": "empty", "emptyDir": {}},
        {"name": "behind", "csi": {}},
    ]
    document = pod_document("a", volumes=raw)
    found = volumes_of(decode_pod(msgspec.json.encode(document)), {"c": "pv-1"})
    assert found.folders == {"claimed": "pv-1", "driver": "driver", "behind": "behind"}


def test_without_a_policy_or_a_disk_nothing_is_decided() -> None:
    asked = slo({"enable": True, "blocks": [DISK]})
    memory = decide(there(asked), None).memory
    for less in (replace(there(asked), slo=None), replace(there(asked), storage=Storage({}, {}, {}))):
        decision = decide(less, memory)
        assert (decision.values, decision.memory) == ({}, memory)


def test_a_pods_csi_volume_is_found_by_where_it_is_mounted() -> None:
    mount = "/var/lib/kubelet/pods/uid-a/volumes/kubernetes.io~csi/fast/mount"
    storage = replace(STORAGE, mounts={mount: "/dev/sdb"})
    text = msgspec.json.encode({"blocks": [{"name": "fast", "type": "podvolume", "ioCfg": {"readIOPS": 9}}]}).decode()
    asked = batch("a", annotations={ANNOTATION: text}, volumes=[{"name": "fast", "csi": {"driver": "d"}}])
    decision = decide(replace(there(slo(), asked), storage=storage), decide(there(slo()), None).memory)
    assert decision.problems == ()
    assert texts(decision, "besteffort/poduid-a")["blkio.throttle.read_iops_device"] == "8:16 9"


CSI = "/var/lib/kubelet/pods/uid-a/volumes/kubernetes.io~csi/{}/mount"
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
INLINE = {"name": "fast", "csi": {"driver": "d"}}


def test_the_claim_of_a_pod_is_bounded_on_the_disk_of_its_persistent_volume() -> None:
    storage = replace(STORAGE, mounts={CSI.format("pv-1"): "/dev/sdb", CSI.format("fast"): "/dev/sda"})
    text = msgspec.json.encode({"blocks": [{"name": "data", "type": "podvolume", "ioCfg": {"readIOPS": 9}}]}).decode()
    asked = batch("a", annotations={ANNOTATION: text}, volumes=[CLAIM, INLINE])
    decision = decide(replace(there(slo(), asked), storage=storage), decide(there(slo()), None).memory)
    assert decision.problems == ()
    assert texts(decision, "besteffort/poduid-a")["blkio.throttle.read_iops_device"] == "8:16 9"


@pytest.mark.parametrize(
    ("volumes", "mounts", "found"),
    [
        ([CLAIM], [CSI.format("pv-1")], {"c": "pv-1"}),
        ([CLAIM, {**CLAIM, "name": "again"}], [CSI.format("pv-1")], {"c": "pv-1"}),
        ([CLAIM, INLINE], [CSI.format("fast"), CSI.format("pv-1"), "/mnt"], {"c": "pv-1"}),
        ([CLAIM], [], {}),
        ([CLAIM], [CSI.format("pv-1").replace("uid-a", "uid-b"), CSI.format("pv-1") + "/deeper", CSI.format("pv-1")[:-6]], {}),
        ([CLAIM], [CSI.format("pv-1"), CSI.format("pv-2")], {}),
        ([CLAIM, {"name": "b", "persistentVolumeClaim": {"claimName": "other"}}], [CSI.format("pv-1")], {}),
        ([CLAIM, {"name": "scratch", "ephemeral": {}}], [CSI.format("pv-1")], {}),
        ([INLINE], [CSI.format("fast")], {}),
    ],
)
def test_a_claim_is_known_by_its_folder_only_where_it_can_be_no_other(
    volumes: list[dict[str, object]], mounts: list[str], found: dict[str, str]
) -> None:
    pod = decode_pod(msgspec.json.encode(pod_document("a", uid="uid-a", volumes=volumes)))
    assert claims_of(pod, mounts) == found


def test_pods_matter_where_the_kernel_has_any_of_the_files() -> None:
    with_files = capabilities(also=THROTTLE)
    without = replace(with_files, knobs={})
    assert STRATEGY.inputs(NodePolicy(with_files, slo())) == {Input.PODS}
    assert STRATEGY.inputs(NodePolicy(without, slo())) == frozenset()

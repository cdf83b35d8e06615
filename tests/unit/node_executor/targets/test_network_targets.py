"""Traffic classes in a network namespace of our own, what groups send by the kernel's own BPF, files of terway-qos."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant_node_executor.targets.address import (
    Attribute,
    EgressAttribute,
    EgressClass,
    NonCgroup,
    TcTree,
    TcTreeAttribute,
    TerwayAttribute,
    TerwayFile,
)
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.interface import InvalidValueError
from cotenant_node_executor.targets.other.egress import EgressAccessor
from cotenant_node_executor.targets.other.terway import TerwayAccessor
from cotenant_node_executor.targets.other.traffic_tree import TrafficTreeAccessor, parsed
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.network_namespace import network_namespace

LO = TcTree("lo")
TREE = "1:1 0 100000000 100000000;1:2 1 40000000 100000000;1:3 2 30000000 100000000;1:4 3 30000000 50000000"
CLASSES = TcTreeAttribute.CLASSES
Within = tuple[str, ...]

SEND = (
    "import socket\n"
    "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:\n"
    "    for _ in range(10): sender.sendto(b'x' * 1000, ('127.0.0.1', 9))\n"
)


@pytest.fixture
def within() -> Iterator[Within]:
    if os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("ip") is None:
        pytest.skip("needs root, ip and tc (iproute2)")
    with network_namespace("tree") as found:
        words = ["tc", "qdisc", "add", "dev", "lo", "root", "htb"]
        tried = subprocess.run((*found, *words), capture_output=True, text=True, check=False)
        if tried.returncode:
            pytest.skip(f"this kernel has no HTB: {tried.stderr.strip()}")
        tc(found, "qdisc del dev lo root")
        yield found


@pytest.fixture
def group() -> Iterator[Path]:
    mount = read_hierarchies().v2
    if mount is None or os.geteuid() != 0:
        pytest.skip("needs root and a cgroup v2 tree")
    folder = mount / f"cotenant-test-egress-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()


def tc(within: Within, words: str) -> str:
    return subprocess.run((*within, "tc", *words.split()), capture_output=True, text=True, check=True).stdout


def sent(within: Within) -> dict[str, int]:
    """Bytes by class."""
    shown = tc(within, "-s class show dev lo")
    return {found[1]: int(found[2]) for found in re.finditer(r"class htb (\S+) .*?\n Sent (\d+) bytes", shown)}


def send(within: Within, group: Path) -> None:
    """Join the group, then the namespace, in which /sys is another one."""
    join = ("/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    subprocess.run((*join, *within, "/usr/bin/python3", "-c", SEND), check=True)


# -- classes ---------------------------------------------------------------------------------------------------------------


def test_a_hierarchy_is_made_read_back_changed_and_removed(within: Within) -> None:
    traffic = TrafficTreeAccessor(within)
    assert traffic.read(LO, CLASSES) == ""
    traffic.write(LO, CLASSES, TREE)
    assert traffic.read(LO, CLASSES) == TREE
    more = f"{TREE};1:10 2 7777777 7777777"
    traffic.write(LO, CLASSES, more)
    present = traffic.read(LO, CLASSES)
    assert present is not None
    assert traffic.holds(CLASSES, more, present)
    assert not traffic.holds(CLASSES, TREE, present)
    traffic.write(LO, CLASSES, TREE)
    assert traffic.read(LO, CLASSES) == TREE
    traffic.write(LO, CLASSES, "")
    assert traffic.read(LO, CLASSES) == ""
    assert "noqueue 0: root" in tc(within, "qdisc show dev lo")


def test_what_another_process_changed_is_repaired(within: Within) -> None:
    writer = OtherWriter({TcTree: TrafficTreeAccessor(within)})
    wanted: dict[NonCgroup, dict[Attribute, str]] = {LO: {CLASSES: TREE}}
    assert len(writer.apply(wanted).written) == 1
    assert writer.apply(wanted).unchanged == 1
    tc(within, "class change dev lo classid 1:4 htb rate 1mbit ceil 2mbit")
    assert len(writer.apply(wanted).written) == 1
    assert TrafficTreeAccessor(within).read(LO, CLASSES) == TREE


@pytest.mark.parametrize("words", ["pfifo limit 10", "handle 1: pfifo limit 10", "handle 7: htb"])
def test_a_discipline_of_somebody_else_is_kept(within: Within, words: str) -> None:
    tc(within, f"qdisc add dev lo root {words}")
    before = tc(within, "qdisc show dev lo")
    report = OtherWriter({TcTree: TrafficTreeAccessor(within)}).apply({LO: {CLASSES: TREE}})
    assert "somebody else" in report.refused[0].message
    assert tc(within, "qdisc show dev lo") == before


def test_a_device_that_is_not_there_is_skipped(within: Within) -> None:
    report = OtherWriter({TcTree: TrafficTreeAccessor(within)}).apply({TcTree("none0"): {CLASSES: TREE}})
    assert (report.skipped, report.refused) == (1, ())


@pytest.mark.parametrize(
    "value",
    [
        "1:2 0 8 8",
        "1:1 0 100 8",
        "1:1 0 7 8",
        "1:1 0 8 8;2:1 0 8 8",
        "1:1 9 8 8",
        "1:1 0 -1 8",
        "1:1 0 1000000000000000000 1000000000000000000",
        "1:1 0 NaN 8",
    ],
)
def test_classes_that_are_none_are_refused_before_any_command(value: str) -> None:
    with pytest.raises(InvalidValueError):
        TrafficTreeAccessor(("false",)).write(LO, CLASSES, value or ";")
    with pytest.raises(InvalidValueError):
        parsed(value)


def test_a_device_name_is_checked() -> None:
    with pytest.raises(InvalidValueError, match="not the name of a network device"):
        TrafficTreeAccessor(("false",)).read(TcTree("eth0; rm"), CLASSES)


# -- what groups send ------------------------------------------------------------------------------------------------------


def egress(group: Path) -> EgressAccessor:
    try:
        found = EgressAccessor(lambda _: group)
        found.read(EgressClass("g"), EgressAttribute.CLASS)
    except OSError as error:
        pytest.skip(f"this kernel takes no BPF programs on control groups: {error}")
    return found


def test_what_a_group_sends_is_counted_in_its_class_and_the_rest_in_the_default(within: Within, group: Path) -> None:
    TrafficTreeAccessor(within).write(LO, CLASSES, TREE)
    accessor = egress(group)
    send(within, group)
    before = sent(within)
    assert before["1:2"] >= 10_000
    assert before["1:4"] == 0
    accessor.write(EgressClass("g"), EgressAttribute.CLASS, "1:4")
    send(within, group)
    assert sent(within)["1:4"] >= 10_000
    assert sent(within)["1:2"] - before["1:2"] < 10_000, "only the kernel's own answers that nobody listens there"
    accessor.write(EgressClass("g"), EgressAttribute.CLASS, "1:3")
    send(within, group)
    assert sent(within)["1:3"] >= 10_000


def test_a_class_is_known_again_by_another_executor_and_taken_off(group: Path) -> None:
    egress(group).write(EgressClass("g"), EgressAttribute.CLASS, "1:1f")
    later = egress(group)
    assert later.read(EgressClass("g"), EgressAttribute.CLASS) == "1:1f"
    later.write(EgressClass("g"), EgressAttribute.CLASS, "")
    assert later.read(EgressClass("g"), EgressAttribute.CLASS) == ""


def test_without_a_cgroup_v2_tree_nothing_is_classified(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        accessor = EgressAccessor(lambda _, folder=folder: folder)  # type: ignore[misc]
        assert accessor.read(EgressClass("g"), EgressAttribute.CLASS) is None


@pytest.mark.parametrize("value", ["1:", "2:1", "1:10000", "1:4 ", "x"])
def test_a_class_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidValueError, match="traffic class"):
        EgressAccessor(lambda _: tmp_path).write(EgressClass("g"), EgressAttribute.CLASS, value)


# -- files of terway-qos ---------------------------------------------------------------------------------------------------


def test_terways_files_are_replaced_as_a_whole_and_removed(tmp_path: Path) -> None:
    writer, place = OtherWriter({TerwayFile: TerwayAccessor(tmp_path / "qos")}), TerwayFile("pod.json")
    assert len(writer.apply({place: {TerwayAttribute.TEXT: "{}"}}).written) == 1
    assert writer.apply({place: {TerwayAttribute.TEXT: "{}"}}).unchanged == 1
    assert [each.name for each in (tmp_path / "qos").iterdir()] == ["pod.json"]
    writer.apply({place: {TerwayAttribute.TEXT: ""}})
    assert [*(tmp_path / "qos").iterdir()] == []
    with pytest.raises(InvalidValueError):
        TerwayAccessor(tmp_path).write(TerwayFile("../x"), TerwayAttribute.TEXT, "y")

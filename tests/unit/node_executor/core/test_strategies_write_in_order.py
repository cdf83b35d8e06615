"""What the strategies decide together, written to a tree that refuses as the kernel does: v1 refuses a child that is wider than
its parent and a parent that is narrower than a child (CPU sets, quotas), both versions a burst above the quota, Anolis' kernel
a page-cache limit above the memory limit. Whatever changes, nothing is refused on the way, so parents are widened first and
narrowed last; and then nothing is left to write."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.events.node.resources import CpuIdentity, NodeResources
from cotenant.model.subjects import resources_subject
from cotenant_node_executor.kernel_machine import WATCHED
from cotenant_node_executor.strategies.sections import QOS, THRESHOLD
from cotenant_node_executor.targets.cgroup.knobs import probe
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.cgroup.writer import Writer
from cotenant_node_executor.targets.interface import CgroupVersion
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import NODE, Bench, pod, snapshot
from tests.unit.node_executor.imitated_anolis import AnolisTree

CPUS = tuple(range(8))
CYCLES = 6
"""Of each stretch; suppression moves by at most a tenth of the node in each."""
BOUND = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "6-7"})}
IDENTITIES = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}
MEMORY = {"memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 60, "throttlingPercent": 50}}

STRETCHES = st.fixed_dictionaries({
    "policy": st.sampled_from(["cfsQuota", "cpuset", ""]),
    "burst": st.sampled_from(["auto", "none", "cpuBurstOnly", "cfsQuotaBurstOnly"]),
    "identities": st.booleans(),
    "memory": st.booleans(),
    "ratio": st.sampled_from([1.0, 1.2, 2.0]),
    "bound": st.booleans(),
    "used": st.integers(0, 8000),
    "batch": st.integers(100, 4000),
    "limit": st.integers(2, 6),
    "throttled": st.sampled_from([0.0, 0.5]),
    "page_cache": st.sampled_from([None, 1 << 20, 2 << 30]),
    "batch_memory": st.sampled_from(["1Gi", "3Gi"]),
})


class Tree:
    """A node's core on an imitated tree."""

    def __init__(self, folder: Path, version: CgroupVersion, kernel: type[SandboxDriver]) -> None:
        self.driver = kernel(folder, "node-1", version=version, cpus=CPUS)
        found = probe(self.driver)
        self.writer = Writer(self.driver, found, clock_ns=lambda: 0)
        self.bench = Bench(kernel=found).load()
        self.second = 0

    def live(self, stretch: dict[str, Any]) -> None:
        """Some cycles under this policy, with these pods and this load; nothing may be refused."""
        bench = self.bench
        sections: dict[str, Any] = {"cpuBurstStrategy": {"policy": stretch["burst"]}}
        if stretch["policy"]:
            sections[THRESHOLD] = {"enable": True}
        if stretch["memory"]:
            sections[QOS] = {"lsClass": MEMORY, "beClass": MEMORY}
        if stretch["page_cache"]:
            limit = {"enable": True, "pageCacheLimitEnable": 1, "pageCacheLimitSize": stretch["page_cache"]}
            sections.setdefault(QOS, {})["beClass"] = {"memoryQOS": {**MEMORY["memoryQOS"], **limit}}
        fields = IDENTITIES if stretch["identities"] else {}
        spec = encoded(sections)
        bench.slo(enable=bool(stretch["policy"]), cpu_suppress_policy=stretch["policy"], spec=spec, **fields)
        bench.store(resources_subject(NODE), NodeResources(node=NODE, cpu_normalization_ratio=stretch["ratio"]))
        amounts = {"cpu": str(stretch["limit"]), "memory": "1Gi"}
        bench.place(pod("web", "LS", requests={"cpu": "1", "memory": "1Gi"}, limits=amounts))
        asked = {"kubernetes.io/batch-cpu": str(stretch["batch"]), "kubernetes.io/batch-memory": stretch["batch_memory"]}
        bench.place(pod("job", "BE", requests=asked, limits=asked))
        bench.place(pod("db", "LSR", requests=amounts, limits=amounts, annotations=BOUND if stretch["bound"] else {}))
        for _ in range(CYCLES):
            self.cycle(stretch)
        assert self.driver.exists("burstable/poduid-web/main")

    def cycle(self, stretch: dict[str, Any]) -> int:
        """One second; returns how many files were written."""
        bench, self.second = self.bench, self.second + 1
        found = snapshot(stretch["used"], {"uid-web": stretch["used"] // 2})
        web = found.pods["uid-web"]
        throttled = replace(web.usage, group="burstable/poduid-web", throttled_ratio=stretch["throttled"])
        pods = {"uid-web": replace(web, usage=throttled)}
        bench.reading = replace(found, monotonic_ns=self.second * 1_000_000_000, pods=pods)
        bench.groups = set(self.driver.groups()) | {"burstable", "besteffort"}
        bench.current = {key: text for key in WATCHED if (text := self.driver.read(*key)) is not None}
        plan = bench.look(1).core.plan(bench.now)
        for group in plan.groups:
            self.driver.create(group)
        texts = plan.targets.texts.items()
        report = self.writer.apply({(group, knob): text for group, own in texts for knob, text in own.items()})
        assert report.refused == ()
        assert report.still_refused == 0
        return len(report.written)


KERNELS = [(CgroupVersion.V1, SandboxDriver), (CgroupVersion.V2, SandboxDriver), (CgroupVersion.V1, AnolisTree)]


@pytest.mark.parametrize(("version", "kernel"), KERNELS, ids=["v1", "v2", "anolis"])
@settings(max_examples=15, deadline=None)
@given(st.lists(STRETCHES, min_size=2, max_size=4))
def test_nothing_is_refused_on_the_way_and_at_the_end_nothing_is_written(
    version: CgroupVersion, kernel: type[SandboxDriver], stretches: list[dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder), version, kernel)
        for stretch in stretches:
            tree.live(stretch)
        last = {**stretches[-1], "throttled": 0.0}
        written = [tree.cycle(last) for _ in range(60)]
        assert sum(written[-10:]) == 0, written

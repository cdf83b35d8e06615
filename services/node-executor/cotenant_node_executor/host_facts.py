"""Facts about this host (CPU topology, memory, kernel, address) and the executor's report at start.

In: /proc, /sys, the probed capabilities. Out: `NodeFacts` and `ExecutorStatus`. CPUs: those that this process may run on.
"""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

from cotenant.events.runs import ExecutorStatus
from cotenant.model.names import CPU, LABEL_HOSTNAME, MEMORY, PODS, RUNTIME_KEY, RUNTIME_PROCESS
from cotenant_node_executor.core.core import MAX_PODS
from cotenant_node_executor.sampling.proc import parse_node_meminfo
from cotenant_node_executor.strategies.situation import NodeFacts, Processor, ResctrlFacts
from cotenant_node_executor.targets.interface import Capabilities, CgroupVersion


def host_facts(node: str, *, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> NodeFacts:
    """Read the facts of this host. Nothing is reserved for the system: its consumption counts as system usage."""
    cpus = sorted(os.sched_getaffinity(0))
    memory = parse_node_meminfo((proc / "meminfo").read_text(encoding="ascii"))
    return NodeFacts(
        name=node,
        capacity_milli=len(cpus) * 1000,
        allocatable_milli=len(cpus) * 1000,
        memory_bytes=memory.total_bytes,
        processors=tuple(_processor(cpu, sys) for cpu in cpus),
        resctrl=resctrl_facts(proc, sys),
    )


def resctrl_facts(proc: Path, sys: Path) -> ResctrlFacts | None:
    """Read what the mounted resctrl file system offers; None where there is none."""
    root = sys / "fs/resctrl"
    try:
        schemata = (root / "schemata").read_text(encoding="ascii")
        # With code and data apart there are two folders instead of L3, with the same mask.
        masks = [root / f"info/{name}/cbm_mask" for name in ("L3", "L3CODE", "L3DATA")]
        mask = next((path.read_text(encoding="ascii").strip() for path in masks if path.exists()), "")
        mounts = (proc / "mounts").read_text(encoding="utf-8", errors="replace")
        cpus = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    options = [line.split()[3].split(",") for line in mounts.splitlines() if line.split()[2:3] == ["resctrl"]]
    vendor = next((line.partition(":")[2].strip() for line in cpus.splitlines() if line.startswith("vendor_id")), "")
    return ResctrlFacts(schemata, mask, vendor, in_mbps=any("mba_MBps" in each for each in options))


def _processor(cpu: int, sys: Path) -> Processor:
    folder = sys / f"devices/system/cpu/cpu{cpu}"
    nodes = [path.name.removeprefix("node") for path in folder.glob("node[0-9]*")]
    return Processor(
        cpu=cpu,
        core=_number(folder / "topology/core_id", cpu),
        socket=_number(folder / "topology/physical_package_id", 0),
        node=int(nodes[0]) if nodes and nodes[0].isdigit() else 0,
    )


def _number(path: Path, default: int) -> int:
    """Read a number from a file; the default where the file is missing or holds -1."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return default
    return int(text) if text.isdigit() else default


def executor_status(
    facts: NodeFacts, capabilities: Capabilities, boot: str, version: str, *, adopted: tuple[str, ...] = ()
) -> ExecutorStatus:
    """Build the report of a host that runs host processes only; its taint keeps other pods away."""
    amounts = {CPU: facts.capacity_milli, MEMORY: facts.memory_bytes, PODS: MAX_PODS}
    return ExecutorStatus(
        node=facts.name,
        boot=boot,
        version=version,
        adopted=adopted,
        capacity=amounts,
        allocatable={**amounts, CPU: facts.allocatable_milli},
        labels={
            LABEL_HOSTNAME: facts.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            RUNTIME_KEY: RUNTIME_PROCESS,
        },
        taints=((RUNTIME_KEY, RUNTIME_PROCESS, "NoSchedule"),),
        cgroup_version=1 if capabilities.version is CgroupVersion.V1 else 2,
        sandbox=capabilities.sandbox,
        capabilities={
            name: "supported" if support.supported else support.why
            for name, support in sorted(capabilities.knobs.items())
        },
        kernel=capabilities.kernel or platform.release(),
        operating_system=_operating_system(),
        addresses=(socket.gethostname(),),
        message=(
            f"sandbox: control groups are imitated and nothing is enforced ({capabilities.why_sandbox})"
            if capabilities.sandbox
            else f"control groups below {capabilities.root}"
        ),
    )


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"

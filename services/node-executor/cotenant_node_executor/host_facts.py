"""Facts about this host (CPU topology, memory, kernel, address) and the executor's report at start.

In: /proc, /sys, the control groups around the node, the probed capabilities. Out: `GivenMachine`, `LocalNode`,
`ExecutorStatus`.
"""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.names import CPU, LABEL_HOSTNAME, MEMORY, RESOURCE_PODS, RUNTIME_KEY, RUNTIME_PROCESS
from cotenant_node_executor.core.core import MAX_PODS
from cotenant_node_executor.sampling.given import GivenMachine, given_machine
from cotenant_node_executor.sampling.kubelet import cpu_policy_in_force
from cotenant_node_executor.sampling.machine import machine_cpus, processors_of
from cotenant_node_executor.sampling.proc import parse_busy_ticks_per_cpu, parse_node_meminfo
from cotenant_node_executor.strategies.kubelet_node import OFF
from cotenant_node_executor.strategies.situation import LocalNode, Processor, ResctrlFacts
from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies, read_hierarchies
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, NodeCapabilities

PODS_BY_EXECUTOR, PODS_BY_KUBELET = "executor", "kubelet"


def host_given(driver: CgroupDriver, *, proc: Path = Path("/proc")) -> GivenMachine:
    """Return the part of this host that a node below the driver's root may use. In a sandbox, that of this process."""
    memory = parse_node_meminfo((proc / "meminfo").read_text(encoding="ascii"))
    try:
        hierarchies = read_hierarchies(proc)
    except OSError:
        hierarchies = Hierarchies({}, None, (), {})  # hidden from this process: nothing is known of limits
    around = driver.root_group.rpartition("/")[0].rpartition("/")[0]
    groups = hierarchies.own if driver.sandbox else {"": around}
    ticks = parse_busy_ticks_per_cpu((proc / "stat").read_text(encoding="ascii"))
    affinity = frozenset(os.sched_getaffinity(0))
    return given_machine(hierarchies, groups, affinity, frozenset(ticks), memory.total_bytes)


def host_facts(
    node: str,
    given: GivenMachine,
    *,
    manages_batch_cpus: bool = False,
    kubelet_pods: bool = False,
    proc: Path = Path("/proc"),
    sys: Path = Path("/sys"),
    kubelet: Path | None = None,
) -> LocalNode:
    """Read the facts of this host. Nothing is reserved for the system: its consumption counts as system usage. `kubelet`: the
    folder of a kubelet that may be here; `kubelet_pods`: it runs the pods."""
    rows = processors_of(machine_cpus(sys), given.cpus)
    return LocalNode(
        name=node,
        capacity_milli=given.capacity_milli,
        allocatable_milli=given.capacity_milli,
        memory_bytes=given.memory_bytes,
        processors=tuple(Processor(cpu=row.cpu, core=row.core, socket=row.socket, node=row.node) for row in rows.values()),
        kubelet_pods=kubelet_pods,
        kubelet_cpu_policy=cpu_policy_in_force(*_kubelet_files(kubelet)) if kubelet is not None else "",
        manages_batch_cpus=manages_batch_cpus,
        resctrl=resctrl_facts(proc, sys),
        network_device=default_route_device(proc),
    )


def _kubelet_files(folder: Path) -> tuple[str | None, str | None]:
    """The texts of a kubelet's configuration and of its CPU manager's state; None for a file that cannot be read."""
    config, state = folder / "config.yaml", folder / "cpu_manager_state"
    found: list[str | None] = []
    for path in (config, state):
        try:
            found.append(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            found.append(None)
    return found[0], found[1]


def default_route_device(proc: Path) -> str:
    """Return the device of the IPv4 default route with the lowest metric; "" where there is none."""
    try:
        rows = [line.split() for line in (proc / "net/route").read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return ""
    routes = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]
    return min(routes)[1] if routes else ""


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


def executor_status(
    facts: LocalNode, capabilities: NodeCapabilities, boot: str, version: str, *, adopted: tuple[str, ...] = ()
) -> ExecutorStatus:
    """Build the report of a host that runs host processes only, whose taint keeps other pods away; or of one of kubelet's."""
    if facts.kubelet_pods:
        runtime = PODS_BY_KUBELET
        taints: tuple[tuple[str, str, str], ...] = ()
    else:
        runtime = RUNTIME_PROCESS
        taints = ((RUNTIME_KEY, RUNTIME_PROCESS, "NoSchedule"),)
    amounts = {CPU: facts.capacity_milli, MEMORY: facts.memory_bytes, RESOURCE_PODS: MAX_PODS}
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
            RUNTIME_KEY: runtime,
        },
        taints=taints,
        cgroup_version=1 if capabilities.version is CgroupVersion.V1 else 2,
        sandbox=capabilities.sandbox,
        capabilities={
            name: "supported" if support.supported else support.why
            for name, support in sorted(capabilities.knobs.items())
        },
        kernel=capabilities.kernel or platform.release(),
        operating_system=_operating_system(),
        addresses=(socket.gethostname(),),
        pods_by=PODS_BY_KUBELET if facts.kubelet_pods else PODS_BY_EXECUTOR,
        strategies_off=dict(OFF) if facts.kubelet_pods else {},
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

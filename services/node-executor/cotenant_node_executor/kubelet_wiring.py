"""The wiring of a node whose pods kubelet runs (`--pods kubelet`), and its flags."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from uuid import uuid4

import msgspec

from cotenant.runtime.process import VERSION
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.host_facts import PODS_BY_EXECUTOR, PODS_BY_KUBELET, executor_status, host_facts, host_given
from cotenant_node_executor.kubelet_machine import KubeletMachine, in_kubelets_tree
from cotenant_node_executor.sampling.machine import MachineReader
from cotenant_node_executor.sampling.slow.collectors import SlowCollectors
from cotenant_node_executor.sampling.slow.worker import SlowWorker
from cotenant_node_executor.strategies.cpu.cpuset_rule import STATIC
from cotenant_node_executor.strategies.kubelet_node import on_kubelet_node
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver
from cotenant_node_executor.targets.interface import CgroupDriver, NodeCapabilities
from cotenant_node_executor.targets.kubelet.binding import bind
from cotenant_node_executor.targets.kubelet.container_names import ContainerNames
from cotenant_node_executor.targets.kubelet.driver import KubeletDriver
from cotenant_node_executor.targets.kubelet.held import HeldFiles
from cotenant_node_executor.targets.kubelet.kubepods import Kubepods

logger = logging.getLogger("cotenant_node_executor")


def kubelet_node(
    arguments: argparse.Namespace, periods: Periods, own: CgroupDriver, capabilities: NodeCapabilities
) -> tuple[KubeletMachine, ExecutorNode]:
    """Build the node for this host whose pods kubelet runs. `own`: a group of the executor's own, which was probed."""
    if own.sandbox:
        raise SystemExit(f"cotenant-node-executor: --pods kubelet: control groups cannot be written: {own.why_sandbox}")
    folder: Path = arguments.data
    try:
        driver = KubeletDriver(
            read_hierarchies(), arguments.kubelet_cgroup_root.strip("/"), HeldFiles(folder / "kubelet-values.journal")
        )
        configured = None if arguments.cgroup_driver == "auto" else KubeletCgroupDriver(arguments.cgroup_driver)
        kubepods = Kubepods(driver.top, layout=configured)
    except (OSError, ValueError) as error:
        own.close()
        raise SystemExit(f"cotenant-node-executor: --pods kubelet: {error}") from error
    given = host_given(own)
    kubepods.look(time.monotonic_ns())
    driver.take(bind(kubepods.layout, (), {}, {}))
    found = in_kubelets_tree(capabilities, driver)
    facts = host_facts(
        arguments.node,
        given,
        manages_batch_cpus=arguments.manage_batch_cpus,
        kubelet_pods=True,
        kubelet=arguments.kubelet,
    )
    reader = MachineReader(
        arguments.node, given, proc=Path("/proc"), sys=Path("/sys"), kubelet=arguments.kubelet, kernel=found.kernel
    )
    slow = SlowWorker(SlowCollectors(driver, reader))
    machine = KubeletMachine(
        driver,
        own,
        found,
        folder / "pods",
        kubepods=kubepods,
        names=ContainerNames(arguments.container_logs),
        given=given,
        slow=slow,
        static_cpus=facts.kubelet_cpu_policy == STATIC,
    )
    boot = uuid4().hex[:12]
    core = ExecutorCore(
        facts, found, boot, plain_processes=False, strategies=on_kubelet_node(strategies_of(arguments.feature_gates))
    )
    status = msgspec.structs.replace(executor_status(facts, found, boot, VERSION), message=machine.where)
    logger.info("%s; strategies that are off here: %s", machine.where, ", ".join(status.strategies_off))
    slow.start()
    return machine, ExecutorNode(core, machine, status, periods)


def add_options(made: argparse.ArgumentParser) -> None:
    """The flags about what runs the pods."""
    made.add_argument(
        "--pods",
        choices=(PODS_BY_EXECUTOR, PODS_BY_KUBELET),
        default=PODS_BY_EXECUTOR,
        help="what runs the pods here; with kubelet no process is started, and strategies write to kubelet's control groups",
    )
    made.add_argument(
        "--cgroup-driver",
        choices=("auto", *(layout.value for layout in KubeletCgroupDriver)),
        default="auto",
        help="with --pods kubelet: layout of its control groups; detected by default",
    )
    made.add_argument(
        "--kubelet-cgroup-root",
        default="",
        metavar="GROUP",
        help="with --pods kubelet: the control group that holds kubepods.slice or kubepods, by default the mount itself",
    )
    made.add_argument(
        "--container-logs",
        type=Path,
        default=Path("/var/log/containers"),
        metavar="DIR",
        help="with --pods kubelet: its folder of links to containers' logs, which names the containers",
    )

"""cotenant-node-executor: wiring. One real node (`--node`), or several simulated ones in one process (`--simulate`)."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import os
import socket
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO
from uuid import uuid4

from cotenant.events.requests import adopt_subject, logs_subject
from cotenant.model.quantities import QuantityError, parse_milli, parse_value
from cotenant.runtime.process import VERSION, Host, run_program
from cotenant.runtime.settings import parser
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.figures import register
from cotenant_node_executor.host_facts import PODS_BY_KUBELET, executor_status, host_facts, host_given
from cotenant_node_executor.joint_stops import JointStops
from cotenant_node_executor.kernel_machine import KernelMachine
from cotenant_node_executor.known_log import KnownLog
from cotenant_node_executor.koordlet_metrics import registry as koordlet_metrics
from cotenant_node_executor.kubelet_evictions import KubeletEvictions
from cotenant_node_executor.kubelet_machine import KubeletMachine
from cotenant_node_executor.kubelet_wiring import add_options, kubelet_node
from cotenant_node_executor.log_endpoint import log_handler
from cotenant_node_executor.sampling.machine import MachineReader
from cotenant_node_executor.sampling.own_priority import hurry
from cotenant_node_executor.sampling.slow.collectors import SlowCollectors
from cotenant_node_executor.sampling.slow.worker import SlowWorker
from cotenant_node_executor.shell import ExecutorShell, adopt_handler
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.strategies.gates import DEFAULT_GATES, NODE_GATES, parse_gates
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.cgroup.knobs import probe
from cotenant_node_executor.targets.interface import ROOT_GROUP, CgroupDriver, Knob

logger = logging.getLogger("cotenant_node_executor")

ENDING_GRACE_SECONDS = 5
ENDING_SECONDS = 12.0
MAX_SIMULATED = 200


def seconds(text: str) -> float:
    """Parse a period in seconds. Raises ArgumentTypeError for anything but 0.05 to 3600."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from error
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: expected 0.05 to 3600 seconds")
    return value


def gates(text: str) -> frozenset[str]:
    """Parse feature gates. Raises ArgumentTypeError for an unknown name or value."""
    try:
        return parse_gates(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def default_folder() -> Path:
    """Return `$COTENANT_DATA/node`, or the folder below the user's home where the variable is not set."""
    return Path(os.environ.get("COTENANT_DATA") or Path.home() / ".local/share/cotenant") / "node"


def lock_folder(folder: Path) -> IO[str]:
    """Lock the folder for this process: two executors must not supervise the same processes."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise SystemExit(f"cotenant-node-executor: {folder} is in use by another executor: stop it first") from error
    return file


def lock_subtree(driver: CgroupDriver, node: str) -> int:
    """Lock the cgroup subtree for this process: a second executor would end the first one's pods as orphans."""
    own = driver.path(ROOT_GROUP, Knob.CPU_SHARES)
    assert own is not None, "every driver has shares"
    descriptor = os.open(own.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise SystemExit(
            f"cotenant-node-executor: {own.parent} belongs to another running executor: "
            f"stop it, or choose another name than --node {node}, or another --cgroup-base"
        ) from error
    return descriptor


def real_node(arguments: argparse.Namespace, periods: Periods) -> tuple[KernelMachine, ExecutorNode]:
    """Build the node for this host; the kernel is probed once."""
    folder: Path = arguments.data
    driver = open_driver(arguments.cgroup_base, arguments.node, sandbox_dir=folder / "sandbox")
    lock_subtree(driver, arguments.node)
    capabilities = probe(driver)
    if arguments.pods == PODS_BY_KUBELET:
        return kubelet_node(arguments, periods, driver, capabilities)
    given = host_given(driver)
    facts = host_facts(
        arguments.node, given, manages_batch_cpus=arguments.manage_batch_cpus, kubelet=arguments.kubelet
    )
    reader = MachineReader(
        arguments.node, given, proc=Path("/proc"), sys=Path("/sys"), kubelet=arguments.kubelet, kernel=capabilities.kernel
    )
    slow = SlowWorker(SlowCollectors(driver, reader))
    machine = KernelMachine(driver, capabilities, folder / "pods", given=given, slow=slow)
    boot = uuid4().hex[:12]
    core = ExecutorCore(
        facts,
        capabilities,
        boot,
        plain_processes=True,
        root_pods=arguments.allow_root_pods,
        strategies=strategies_of(arguments.feature_gates),
    )
    if capabilities.sandbox:
        logger.warning("node %s runs in a sandbox: %s", arguments.node, capabilities.why_sandbox)
    status = executor_status(facts, capabilities, boot, VERSION, adopted=machine.existing_pods())
    slow.start()
    return machine, ExecutorNode(core, machine, status, periods)


def simulated_nodes(arguments: argparse.Namespace, periods: Periods) -> list[ExecutorNode]:
    """Build the nodes for `--simulate`, a list of names or a number."""
    text: str = arguments.simulate
    names = [f"simulated-{index}" for index in range(int(text))] if text.isdigit() else text.split(",")
    names = [name.strip() for name in names]
    if not all(names) or len(set(names)) < len(names) or len(names) > MAX_SIMULATED:
        raise SystemExit(f"--simulate {text}: expected at most {MAX_SIMULATED} different names, or how many")
    try:
        size = NodeSize(parse_milli(arguments.simulated_cpu), parse_value(arguments.simulated_memory))
    except QuantityError as error:
        raise SystemExit(f"--simulated-cpu, --simulated-memory: {error}") from error
    return [
        simulated_node(
            name,
            size,
            seed=arguments.seed,
            boot=uuid4().hex[:12],
            version=VERSION,
            periods=periods,
            strategies=strategies_of(arguments.feature_gates),
        )
        for name in names
    ]


async def stop_everything(machine: KernelMachine) -> None:
    """Stop all pods and remove the cgroup subtree, within a bounded time."""
    ends = asyncio.get_running_loop().time() + ENDING_SECONDS
    while not machine.stop_everything(datetime.now(UTC), ENDING_GRACE_SECONDS):
        if asyncio.get_running_loop().time() > ends:
            logger.error("some processes did not end; their control groups remain")
            return
        await asyncio.sleep(0.05)


async def program(host: Host, arguments: argparse.Namespace) -> None:
    """Run the nodes until the process is stopped."""
    periods = Periods(sample_seconds=arguments.sample_period, report_seconds=arguments.report_period)
    machine: KernelMachine | None = None
    lock: IO[str] | None = None
    if arguments.simulate:
        nodes = simulated_nodes(arguments, periods)
    else:
        lock = lock_folder(arguments.data)
        hurry()
        machine, node = real_node(arguments, periods)
        nodes = [node]
    known_log = KnownLog(None)
    if machine is not None:
        known_log = KnownLog(arguments.data / "log.json", machine.existing_pods)
    stops = JointStops(host.log) if len(nodes) > 1 else None
    waiting = {node.name for node in nodes}

    def ready(name: str) -> None:
        waiting.discard(name)
        host.health.ready = not waiting
        host.health.detail = f"loading {', '.join(sorted(waiting))}" if waiting else "ok"

    shells = [
        ExecutorShell(
            host.log,
            node,
            cell=host.settings.cell,
            period_seconds=periods.sample_seconds,
            stopping=host.stopping,
            on_ready=partial(ready, node.name),
            known_log=known_log,
            tracing=host.telemetry.tracing,
            figures=host.telemetry.figures,
            stops=stops,
        )
        for node in nodes
    ]
    register(host.telemetry.meter, host.telemetry.figures, shells)
    if len(shells) == 1:
        koordlet_metrics.register(shells[0], host.telemetry.meter if host.telemetry.exports else None)
    for number, shell in enumerate(shells):
        await host.endpoint(f"logs-{number}", log_handler(shell), subject=logs_subject(shell.node.name))
        await host.endpoint(f"adopt-{number}", adopt_handler(shell), subject=adopt_subject(shell.node.name))
    try:
        async with asyncio.TaskGroup() as running:
            for shell in shells:
                running.create_task(shell.run())
            if isinstance(machine, KubeletMachine):
                running.create_task(KubeletEvictions(arguments.node, machine).run(host))
    finally:
        if machine is not None:
            await asyncio.to_thread(machine.close)
    if machine is not None and arguments.remove_on_exit:
        await stop_everything(machine)
    if lock is not None:
        lock.close()


def main() -> None:
    """The command."""
    made = parser("node-executor", "runs one node: samples usage, starts processes in control groups, enforces limits")
    made.add_argument("--node", default=socket.gethostname().lower(), help="node name of this host")
    made.add_argument(
        "--data", type=Path, default=default_folder(), metavar="DIR", help="folder for container logs and process state"
    )
    made.add_argument(
        "--cgroup-base",
        default=os.environ.get("COTENANT_CGROUP_BASE") or None,
        metavar="GROUP",
        help="cgroup below the mount that holds the executor's subtree",
    )
    made.add_argument(
        "--kubelet", type=Path, default=Path("/var/lib/kubelet"), metavar="DIR", help="folder of a kubelet on this host, if any"
    )
    add_options(made)
    made.add_argument("--allow-root-pods", action="store_true", help="run pods of user 0; the gateway needs the same flag")
    made.add_argument(
        "--manage-batch-cpus",
        action="store_true",
        help="bind batch pods to the CPUs of the NUMA nodes that they were given, instead of suppressing them all alike",
    )
    made.add_argument(
        "--feature-gates",
        type=gates,
        default=os.environ.get("COTENANT_FEATURE_GATES") or DEFAULT_GATES,
        metavar="NAME=BOOL,...",
        help=f"features of strategies, as koordlet's: {', '.join(f'{name} ({on})' for name, on in NODE_GATES.items())}",
    )
    made.add_argument("--sample-period", type=seconds, default=1.0, metavar="SECONDS", help="how often to sample the node")
    made.add_argument("--report-period", type=seconds, default=15.0, metavar="SECONDS", help="how often usage is published")
    made.add_argument(
        "--remove-on-exit",
        action="store_true",
        help="on a clean stop, end all pods and remove the subtree; by default pods keep running and are adopted later",
    )
    made.add_argument("--simulate", default="", metavar="NAMES", help="run simulated nodes: comma-separated names, or a number")
    made.add_argument("--simulated-cpu", default="8", metavar="QUANTITY")
    made.add_argument("--simulated-memory", default="32Gi", metavar="QUANTITY")
    made.add_argument("--seed", type=int, default=0, help="seed of the simulated usage")
    run_program("node-executor", made, program)


if __name__ == "__main__":
    main()

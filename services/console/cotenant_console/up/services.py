"""The services of the design as processes of `cotenant up`.

In: the addresses and folders of this run. Out: one `ProcessSpec` a service, with the port on which it serves whether
it is ready. kubernetes-bridge is not among them: there is no Kubernetes here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.model.subjects import encode_token
from cotenant_console.nats_access.roles import NODE, SIMULATED_NODES
from cotenant_console.up.nats_server import store_folder
from cotenant_console.up.supervisor import ProcessSpec

DECIDING = (
    "metrics-ingest",
    "batch-resource-calculator",
    "quota-tree",
    "scheduler",
    "descheduler-arbiter",
    "yarn-copilot",
)
SERVICES = ("gateway", *DECIDING, "node-executor")
SIMULATED = "node-executor-simulated"
GATED = ("gateway", "node-executor")
"""Services with feature gates."""


def module_of(service: str) -> str:
    """The Python module that runs a service."""
    return f"cotenant_{service.replace('-', '_')}"


@dataclass(frozen=True)
class UpRun:
    """The addresses and folders of one `cotenant up`."""

    folder: Path
    nats_url: str
    node: str
    simulated_nodes: int
    servers: int = 1
    """How many servers there are."""
    credentials: Callable[[str], Path] = lambda name: Path(f"{name}.creds")
    """Where the credentials on NATS of a user are."""
    nats_ca: Path | None = None
    """Of the servers' certificates, where they have one."""
    gateway_flags: tuple[str, ...] = ()
    """The gateway's certificate, and the accepted credentials."""
    root_pods: bool = False
    """Pods may run as root."""
    configs: Mapping[str, Path] = field(default_factory=dict)
    """The configuration files of services that have one."""
    gates: Mapping[str, str] = field(default_factory=dict)
    """The feature gates of services that have some, as `--feature-gates` takes them."""


def service_process(run: UpRun, name: str, status_port: int) -> ProcessSpec:
    """The process of one service."""
    service = "node-executor" if name == SIMULATED else name
    argv = (
        sys.executable,
        "-m",
        module_of(service),
        "--nats",
        run.nats_url,
        "--replica",
        name,
        "--http-port",
        str(status_port),
        "--nats-creds",
        str(run.credentials(user_of(run, name))),
        *(("--nats-ca", str(run.nats_ca)) if run.nats_ca is not None else ()),
        *(("--config", str(run.configs[name])) if name in run.configs else ()),
        *(("--feature-gates", run.gates[service]) if service in run.gates else ()),
        *_own_flags(run, name),
    )
    # The executor ends its pods before it exits, and pods have a grace period.
    stop_seconds = 20.0 if name == "node-executor" else 8.0
    return ProcessSpec(name, argv, environment(), stop_seconds, forked=True)


def user_of(run: UpRun, name: str) -> str:
    """The NATS user of a service."""
    return {"node-executor": f"{NODE}-{encode_token(run.node)}", SIMULATED: SIMULATED_NODES}.get(name, name)


def _own_flags(run: UpRun, name: str) -> tuple[str, ...]:
    root_pods = ("--allow-root-pods",) if run.root_pods else ()
    if name == "gateway":
        store = store_folder(run.folder, "nats-server" if run.servers == 1 else "nats-server-1")
        return ("--store-dir", str(store), *run.gateway_flags, *root_pods)
    if name == "node-executor":
        # Usage on a small machine changes fast: reports are more frequent than on a large fleet.
        own = ("--node", run.node, "--data", str(run.folder / "node"), "--remove-on-exit", "--report-period", "5")
        return (*own, *root_pods)
    if name == SIMULATED:
        return ("--simulate", str(run.simulated_nodes), "--sample-period", "5")
    if name == "metrics-ingest":
        # Prediction waits for two minutes instead of a day, so that mid resources can be seen.
        soon = ("report_interval_seconds=10", "aggregate_duration_seconds=60", "prediction_cold_start_seconds=120")
        return tuple(word for setting in soon for word in ("--set", setting))
    return ()


def environment() -> dict[str, str]:
    """The services' environment: the user's, without buffering, so that logs are complete when a process dies."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}

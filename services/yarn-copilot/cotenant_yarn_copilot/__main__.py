"""The yarn-copilot process.

Without a configured ResourceManager it is idle and reports that in its readiness, its status and its log.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import aiohttp
import msgspec

from cotenant.runtime.process import Host, run_program
from cotenant.runtime.settings import parser
from cotenant_yarn_copilot.cluster_clients import ClusterClients, YarnCluster
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.hadoop_conf import HadoopConfigError
from cotenant_yarn_copilot.rm_client import ResourceManagerClient, ResourceManagerError
from cotenant_yarn_copilot.syncing import SERVICE, PassReport, Syncing

logger = logging.getLogger(__name__)

ENVIRONMENT = "COTENANT_YARN_RESOURCE_MANAGER"
ENVIRONMENT_FOLDER = "COTENANT_YARN_HADOOP_CONF_DIR"
_HOW = f"--resource-manager or {ENVIRONMENT}, --hadoop-conf-dir or {ENVIRONMENT_FOLDER}"
IDLE = f"idle: no ResourceManager is configured ({_HOW})"


def _config(host: Host, arguments: argparse.Namespace) -> tuple[CopilotConfig, Mapping[str, Sequence[str]]]:
    """The configuration, and the addresses of each cluster that it knows."""
    try:
        config = msgspec.json.decode(host.settings.config, type=CopilotConfig)
        if arguments.resource_manager and not config.resource_manager:
            config = msgspec.structs.replace(config, resource_manager=arguments.resource_manager)
        if arguments.hadoop_conf_dir and not config.hadoop_conf_dir:
            config = msgspec.structs.replace(config, hadoop_conf_dir=arguments.hadoop_conf_dir)
        return config, config.urls()
    except ValueError as error:
        raise SystemExit(f"cotenant-{SERVICE}: configuration: {error}") from error


def _clients(
    session: aiohttp.ClientSession, config: CopilotConfig, urls: Mapping[str, Sequence[str]]
) -> ClusterClients[YarnCluster]:
    def client(found: Sequence[str]) -> YarnCluster:
        return ResourceManagerClient(session, found, user=config.user)

    def make(cluster: str) -> YarnCluster:
        try:
            return client(config.urls_in_folder(cluster))
        except HadoopConfigError as error:
            raise ResourceManagerError(f"no ResourceManager is configured for cluster {cluster}: {error}") from error

    return ClusterClients({cluster: client(found) for cluster, found in urls.items()}, make)


async def _program(host: Host, arguments: argparse.Namespace) -> None:
    config, urls = _config(host, arguments)
    latest = PassReport()

    def log_pass(report: PassReport) -> None:
        nonlocal latest
        if report.in_words != host.health.detail:
            logger.info("%s", report.in_words)
        latest = report
        host.health.ready = True
        host.health.detail = report.in_words

    async def status(_: bytes) -> bytes:
        return msgspec.json.encode({"detail": host.health.detail, "clusters": urls, "lastPass": latest})

    await host.endpoint("status", status)
    host.telemetry.figures.register(host.telemetry.meter)
    if not urls and not config.hadoop_conf_dir:
        host.health.ready = True
        host.health.detail = IDLE
        logger.info("%s", IDLE)
        await host.stopping.wait()
        return
    async with aiohttp.ClientSession() as session:
        clients = _clients(session, config, urls)
        syncing = Syncing(
            host.log,
            clients,
            config,
            now=lambda: datetime.now(UTC),
            cell=host.settings.cell,
            replica=host.settings.replica,
            figures=host.telemetry.figures,
        )
        await syncing.run(host.stopping, log_pass)


def main() -> None:
    """Run until stopped."""
    made = parser(SERVICE, "gives YARN the batch capacity of the nodes, and publishes YARN's usage")
    made.add_argument(
        "--resource-manager",
        metavar="URL",
        default=os.environ.get(ENVIRONMENT, ""),
        help="comma-separated base URLs of the ResourceManagers, such as http://rm:8088; without any the service is idle",
    )
    made.add_argument(
        "--hadoop-conf-dir",
        metavar="DIR",
        default=os.environ.get(ENVIRONMENT_FOLDER, ""),
        help="a folder with yarn-site.xml, and ID.yarn-site.xml of further clusters: where their ResourceManagers are",
    )
    run_program(SERVICE, made, _program)


if __name__ == "__main__":
    main()

"""The yarn-copilot process.

Without a configured ResourceManager it is idle and reports that in its readiness, its status and its log.
"""

from __future__ import annotations

import argparse
import logging
import os
from datetime import UTC, datetime

import aiohttp
import msgspec

from cotenant.runtime.process import Host, run_program
from cotenant.runtime.settings import parser
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.rm_client import ResourceManagerClient
from cotenant_yarn_copilot.syncing import SERVICE, PassReport, Syncing

logger = logging.getLogger(__name__)

ENVIRONMENT = "COTENANT_YARN_RESOURCE_MANAGER"
IDLE = f"idle: no ResourceManager is configured (--resource-manager URL, or {ENVIRONMENT})"


def _config(host: Host, arguments: argparse.Namespace) -> CopilotConfig:
    try:
        config = msgspec.json.decode(host.settings.config, type=CopilotConfig)
        if arguments.resource_manager and not config.resource_manager:
            config = msgspec.structs.replace(config, resource_manager=arguments.resource_manager)
        config.urls()
    except (msgspec.ValidationError, ValueError) as error:
        raise SystemExit(f"cotenant-{SERVICE}: configuration: {error}") from error
    return config


async def _program(host: Host, arguments: argparse.Namespace) -> None:
    config = _config(host, arguments)
    urls = config.urls()
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
    if not urls:
        host.health.ready = True
        host.health.detail = IDLE
        logger.info("%s", IDLE)
        await host.stopping.wait()
        return
    async with aiohttp.ClientSession() as session:
        clients = {cluster: ResourceManagerClient(session, found, user=config.user) for cluster, found in urls.items()}
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
    run_program(SERVICE, made, _program)


if __name__ == "__main__":
    main()

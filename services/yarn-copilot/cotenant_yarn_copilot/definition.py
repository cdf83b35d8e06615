"""The service definition for process, simulator and replay. The service measures, so replay does not recompute it."""

from __future__ import annotations

from cotenant.engine.definition import ServiceDefinition
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.core import FILTERS, YarnCopilot


def _make_core(config: CopilotConfig) -> YarnCopilot:
    return YarnCopilot(config.rounding)


DEFINITION = ServiceDefinition(
    name="yarn-copilot",
    core_version="1",
    filters=FILTERS,
    config_type=CopilotConfig,
    make_core=_make_core,
    recomputed=False,
    summary="gives YARN the batch capacity of the nodes, and publishes YARN's usage",
)

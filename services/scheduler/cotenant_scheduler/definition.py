"""What this service is, for its process, the simulator and replay."""

from __future__ import annotations

from cotenant.engine.definition import Definition
from cotenant_scheduler.core import FILTERS, VIEWS, SchedulerCore
from cotenant_scheduler.framework.policy import SchedulerConfig

DEFINITION = Definition(
    name="scheduler",
    core_version="1",
    filters=FILTERS,
    views=VIEWS,
    config_type=SchedulerConfig,
    make_core=SchedulerCore,
    summary="Places pods on nodes, in batches over arrays.",
)

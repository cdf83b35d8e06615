"""What this service is, for its process, the simulator and replay."""

from __future__ import annotations

from importlib.metadata import entry_points

from cotenant.domain.quota.hooks import GROUP, HookError, HookFactory, made_hooks
from cotenant.engine.definition import Question, ServiceDefinition
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.cycle.folding import FILTERS
from cotenant_scheduler.debugging import answer
from cotenant_scheduler.gauges import GAUGES
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.state.stored_placements import PlacementView


def installed_factory(name: str) -> HookFactory | None:
    """Return the factory of quota hooks that an installed package offers under a name."""
    for found in entry_points(group=GROUP, name=name):
        factory: HookFactory = found.load()
        return factory
    return None


def make_core(config: SchedulerConfig) -> SchedulerCore:
    """Return an empty core. Raises SystemExit where the configuration names a hook that cannot be used."""
    try:
        hooks = made_hooks(config.hook_plugins, installed_factory)
    except HookError as error:
        raise SystemExit(f"cotenant-scheduler: configuration: {error}") from error
    return SchedulerCore(config, quota_hooks=hooks)


DEFINITION = ServiceDefinition(
    name="scheduler",
    core_version="13",
    filters=FILTERS,
    views=(PlacementView,),
    config_type=SchedulerConfig,
    make_core=make_core,
    traced=("objects.core.pods.",),
    gauges=GAUGES,
    questions=(Question("debug", answer),),
    summary="Places pods on nodes, in batches over arrays.",
)

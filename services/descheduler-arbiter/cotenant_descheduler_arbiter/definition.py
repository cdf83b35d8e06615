"""The service definition for its process, the simulator and replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cotenant.engine.definition import GATHERED, Gauge, ServiceDefinition
from cotenant_descheduler_arbiter.config.configuration import DeschedulerConfiguration
from cotenant_descheduler_arbiter.config.resolution import resolve
from cotenant_descheduler_arbiter.core import CORE_VERSION, DeschedulerArbiterCore
from cotenant_descheduler_arbiter.node_lifecycle.zones import ZoneHealth, shown
from cotenant_descheduler_arbiter.state.fold import FILTERS

MAX_ZONES_SHOWN = 100
"""Of the metrics by zone: further zones, by name, are not shown."""


class CheckedConfiguration(DeschedulerConfiguration, frozen=True, kw_only=True):
    """The document, validated when it is decoded: an invalid value stops the process at start with the field's name."""

    def __post_init__(self) -> None:
        resolve(self)


def make_core(config: DeschedulerConfiguration) -> DeschedulerArbiterCore:
    """Return an empty core. Raises PolicyError for an invalid configuration."""
    return DeschedulerArbiterCore(resolve(config))


def _by_zone(
    figure: Callable[[ZoneHealth], float],
) -> Callable[[DeschedulerArbiterCore], Iterable[tuple[float, dict[str, str]]]]:
    def read(core: DeschedulerArbiterCore) -> Iterable[tuple[float, dict[str, str]]]:
        return [(figure(zone), {"zone": shown(zone.zone)}) for zone in core.zones()[:MAX_ZONES_SHOWN]]

    return read


GAUGES = (
    Gauge("cotenant_zone_nodes", "Nodes of a zone that were ever measured", _by_zone(lambda zone: zone.nodes)),
    Gauge("cotenant_zone_lost_nodes", "Nodes of a zone that are not ready", _by_zone(lambda zone: zone.lost)),
    Gauge(
        "cotenant_zone_eviction_nodes_per_second",
        "Lost nodes of a zone whose pods may begin to be evicted, a second; 0: none",
        _by_zone(lambda zone: zone.nodes_per_second),
    ),
)


DEFINITION = ServiceDefinition(
    name="descheduler-arbiter",
    core_version=CORE_VERSION,
    filters=FILTERS,
    config_type=CheckedConfiguration,
    make_core=make_core,
    gauges=GAUGES,
    gather=GATHERED,
    summary="decides which pods to move and which moves may run now, and taints nodes without samples",
)

"""The service definition for its process, the simulator and replay."""

from __future__ import annotations

from cotenant.engine.definition import Definition
from cotenant_descheduler_arbiter.config.configuration import DeschedulerConfiguration
from cotenant_descheduler_arbiter.config.resolution import resolve
from cotenant_descheduler_arbiter.core import CORE_VERSION, DeschedulerArbiterCore
from cotenant_descheduler_arbiter.state.fold import FILTERS


class CheckedConfiguration(DeschedulerConfiguration, frozen=True, kw_only=True):
    """The document, validated when it is decoded: an invalid value stops the process at start with the field's name."""

    def __post_init__(self) -> None:
        resolve(self)


def make_core(config: DeschedulerConfiguration) -> DeschedulerArbiterCore:
    """Return an empty core. Raises PolicyError for an invalid configuration."""
    return DeschedulerArbiterCore(resolve(config))


DEFINITION = Definition(
    name="descheduler-arbiter",
    core_version=CORE_VERSION,
    filters=FILTERS,
    config_type=CheckedConfiguration,
    make_core=make_core,
    summary="decides which pods to move and which moves may run now, and taints nodes without samples",
)

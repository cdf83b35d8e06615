"""How the service is run: by its process, by the simulator and by replay."""

from __future__ import annotations

from cotenant.engine.definition import Definition
from cotenant_descheduler_arbiter.config.configuration import DeschedulerConfiguration
from cotenant_descheduler_arbiter.config.resolution import resolve
from cotenant_descheduler_arbiter.core import CORE_VERSION, DeschedulerArbiterCore
from cotenant_descheduler_arbiter.state.fold import FILTERS


class CheckedConfiguration(DeschedulerConfiguration, frozen=True, kw_only=True):
    """The document, checked when it is read: what cannot be meant ends the process at its start with the field's name."""

    def __post_init__(self) -> None:
        resolve(self)


def make_core(config: DeschedulerConfiguration) -> DeschedulerArbiterCore:
    """Return a fresh core. Raises PolicyError where the configuration cannot be used."""
    return DeschedulerArbiterCore(resolve(config))


DEFINITION = Definition(
    name="descheduler-arbiter",
    core_version=CORE_VERSION,
    filters=FILTERS,
    config_type=CheckedConfiguration,
    make_core=make_core,
    summary="decides what to move and which moves may run now, and taints nodes that fell silent",
)

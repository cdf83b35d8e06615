"""The definitions of the deciding services, for commands that run their cores in this process.

In: service names. Out: their Definitions. Each is imported on request, and is the one that the service's own process runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from cotenant.engine.definition import ServiceDefinition
from cotenant_console.up.services import DECIDING, module_of


def definition(service: str) -> ServiceDefinition:
    """The Definition of a service."""
    found = importlib.import_module(f"{module_of(service)}.definition").DEFINITION
    assert isinstance(found, ServiceDefinition)
    return found


def definitions(services: Sequence[str] = DECIDING) -> dict[str, ServiceDefinition]:
    """Definitions by name."""
    return {service: definition(service) for service in services}

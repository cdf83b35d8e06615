"""For each deciding service a reference core that folds every message as it is stored, and never decides.

In: messages of LOG in order. Out: copies of a core that has folded the log from its start, for promise 10. Folding along costs
each service once what it costs its own process, instead of once per comparison, and the log need not be kept.
"""

from __future__ import annotations

from cotenant.engine.core import Core
from cotenant.events.envelope import Event
from cotenant.simulation import ServiceParticipant
from cotenant.simulation.routes import Routes
from cotenant_verification.checks.copying import copied


class ReferenceCores:
    """Cores by service."""

    def __init__(self) -> None:
        self._cores: dict[str, Core] = {}
        self._routes: Routes[Core] = Routes()

    def begin(self, participant: ServiceParticipant) -> None:
        """Start folding for a service; its replicas share one reference core."""
        definition = participant.definition
        if definition.name in self._cores:
            return
        core = self._cores[definition.name] = definition.make_core(participant.config)
        for wanted in definition.filters:
            self._routes.add(wanted, len(self._cores), core)

    def see(self, event: Event) -> None:
        """Fold a message of LOG."""
        for core in self._routes.readers(event.subject):
            core.apply(event)

    def of(self, service: str) -> Core:
        """Return a core that has folded everything that a service reads."""
        return copied(self._cores[service])

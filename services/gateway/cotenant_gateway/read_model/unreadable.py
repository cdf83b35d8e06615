"""Objects on LOG that are not valid objects of their kind: stored by another writer than a gateway, or by an older one.

They count as absent. In: the event, and why its document cannot be read. Out: findings, which the shell publishes as dead
letters.

Bound: MAX_FINDINGS wait to be published; further ones are left out until these are.
"""

from __future__ import annotations

from cotenant.api.kinds import Kind
from cotenant.engine.quarantine import Finding
from cotenant.events.envelope import Event

MAX_FINDINGS = 1000


class UnreadableObjects:
    """Those that were folded since the last `take`."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def note(self, event: Event, kind: Kind, error: Exception) -> None:
        """Remember one, with the reason."""
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(Finding(event, f"not a valid {kind.kind}: {error}"))

    def take(self) -> list[Finding]:
        """Return them, once."""
        findings, self._findings = self._findings, []
        return findings

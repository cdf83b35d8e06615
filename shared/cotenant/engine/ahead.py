"""The decision that was made behind a batch while that is being stored.

In: the decision, then the commit record of the batch before it. Out: the decision, once, while that record is the last one:
after another replica's commit its basis is invalid.

Bound: one decision.
"""

from __future__ import annotations

from cotenant.engine.commit import Decision


class DecidedAhead:
    """Holds at most one decision."""

    def __init__(self) -> None:
        self.decision: Decision | None = None
        self._prior = 0

    def keep(self, decision: Decision) -> None:
        """Keep a decision, replacing the present one."""
        self.decision = decision

    def follows(self, prior: int) -> None:
        """The batch before it is stored, with its commit record at this sequence of LOG."""
        self._prior = prior

    def take(self, prior: int) -> Decision | None:
        """Return the decision and hold it no longer; None where the last commit record, at `prior`, is another than its own."""
        decision, self.decision = self.decision, None
        return decision if prior == self._prior else None

    def drop(self) -> None:
        """The batch before it is not stored."""
        self.decision = None

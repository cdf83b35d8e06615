"""Who reads a subject: the filters of all participants in one tree by token, as a NATS server keeps its subscriptions.

In: filters with their readers, subjects. Out: the readers that a filter selects, in the order in which they came, so that
the history does not depend on filters. Bounds: KEPT subjects are remembered with their readers, and KEPT sets of filters.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

KEPT = 200_000


class _Branch(Generic[T]):
    def __init__(self) -> None:
        self.branches: dict[str, _Branch[T]] = {}
        self.here: dict[int, T] = {}
        """Readers by number whose filter ends here."""
        self.below: dict[int, T] = {}
        """Readers by number whose filter takes everything below."""


class Routes(Generic[T]):
    """The readers of one stream, each known by a number that says when it came."""

    def __init__(self) -> None:
        self._root: _Branch[T] = _Branch()
        self._known: dict[str, tuple[T, ...]] = {}
        self._together: dict[tuple[int, ...], tuple[T, ...]] = {}
        """Readers by the tables that they are taken from: subjects of one family share them."""

    def add(self, wanted: str, number: int, reader: T) -> None:
        """Let a reader have what a filter selects."""
        self._forget()
        branch = self._root
        for token in wanted.split("."):
            if token == ">":
                branch.below[number] = reader
                return
            branch = branch.branches.setdefault(token, _Branch())
        branch.here[number] = reader

    def remove(self, number: int) -> None:
        """Take a reader away from all its filters."""
        self._forget()
        waiting = [self._root]
        while waiting:
            branch = waiting.pop()
            branch.here.pop(number, None)
            branch.below.pop(number, None)
            waiting.extend(branch.branches.values())

    def _forget(self) -> None:
        self._known.clear()
        self._together.clear()

    def readers(self, subject: str) -> tuple[T, ...]:
        """Return who reads a subject."""
        found = self._known.get(subject)
        if found is None:
            if len(self._known) >= KEPT or len(self._together) >= KEPT:
                self._forget()
            found = self._known[subject] = self._read_off(self._tables(subject))
        return found

    def _read_off(self, tables: list[dict[int, T]]) -> tuple[T, ...]:
        # The tables are the tree's own: they live as long as it, so their identities say which they are.
        which = tuple(map(id, tables))
        found = self._together.get(which)
        if found is None:
            numbered = {number: reader for table in tables for number, reader in table.items()}
            found = self._together[which] = tuple(numbered[number] for number in sorted(numbered))
        return found

    def _tables(self, subject: str) -> list[dict[int, T]]:
        """The tables that hold readers of a subject."""
        tables = []
        branches = [self._root]
        for token in subject.split("."):
            following = []
            for branch in branches:
                if branch.below:
                    tables.append(branch.below)
                ways = branch.branches
                exact = ways.get(token)
                if exact is not None:
                    following.append(exact)
                every = ways.get("*")
                if every is not None and every is not exact:
                    following.append(every)
            branches = following
        tables += [branch.here for branch in branches if branch.here]
        return tables

"""Who reads a subject: the filters of all participants in one tree by token, as a NATS server keeps its subscriptions.

In: filters with their readers, subjects. Out: the readers that a filter selects, in the order in which they came, so that
the history does not depend on filters. Bound: KEPT subjects are remembered with their readers.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        self._families: dict[tuple[str, ...], tuple[T, ...]] = {}
        """Readers of all subjects that are alike but for tokens that no filter names."""
        self._named: list[set[str]] = []
        """The tokens that filters name, by their place."""

    def add(self, wanted: str, number: int, reader: T) -> None:
        """Let a reader have what a filter selects."""
        self._forget()
        branch = self._root
        for place, token in enumerate(wanted.split(".")):
            if place == len(self._named):
                self._named.append(set())
            self._named[place].add(token)
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
        self._families.clear()

    def readers(self, subject: str) -> tuple[T, ...]:
        """Return who reads a subject."""
        found = self._known.get(subject)
        if found is None:
            if len(self._known) >= KEPT:
                self._forget()
            found = self._known[subject] = self._of_family(subject.split("."))
        return found

    def _of_family(self, tokens: list[str]) -> tuple[T, ...]:
        # A token beyond the longest filter is told from none at all only by how many there are.
        named = zip(tokens, self._named, strict=False)
        family = (str(len(tokens)), *(token if token in known else "*" for token, known in named))
        found = self._families.get(family)
        if found is None:
            numbered = {number: reader for table in self._tables(tokens) for number, reader in table.items()}
            found = self._families[family] = tuple(numbered[number] for number in sorted(numbered))
        return found

    def _tables(self, tokens: list[str]) -> Iterator[dict[int, T]]:
        branches = [self._root]
        for token in tokens:
            following = []
            for branch in branches:
                yield branch.below
                for way in (token, "*"):
                    if way in branch.branches:
                        following.append(branch.branches[way])
            branches = following
        for branch in branches:
            yield branch.here

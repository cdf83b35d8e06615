"""The readers of a subject: the filters of all participants as one automaton over tokens.

In: filters with their readers, subjects. Out: the readers that a filter selects, in the order in which they came, so that
the history does not depend on filters. A place (state) of the automaton is the set of filters that the tokens read so far still
match; it is built when a subject first reaches it, and all tokens that no filter names there lead to the same one. Most
subjects differ from others in their last token: the place before it is cached. Bound: the places that filters distinguish,
independent of the subjects, and REMEMBERED prefixes of subjects, after which the cache is cleared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

REMEMBERED = 65_536


class _Branch(Generic[T]):
    """Where filters with the same first tokens diverge."""

    def __init__(self) -> None:
        self.branches: dict[str, _Branch[T]] = {}
        self.here: dict[int, T] = {}
        """Readers by number whose filter ends here."""
        self.below: dict[int, T] = {}
        """Readers by number whose filter takes everything below."""


class _Place(Generic[T]):
    """All branches that the tokens so far lead to."""

    def __init__(self, branches: Iterable[_Branch[T]], taken: dict[int, T]) -> None:
        self._branches = tuple(branches)
        self._taken = taken
        self._below = taken | {number: reader for branch in self._branches for number, reader in branch.below.items()}
        numbered = taken | {number: reader for branch in self._branches for number, reader in branch.here.items()}
        self.readers = tuple(numbered[number] for number in sorted(numbered))
        self.after: dict[str, _Place[T] | None] = dict.fromkeys(token for branch in self._branches for token in branch.branches)
        """The places that named tokens lead to; None until the first lookup."""
        self.otherwise: _Place[T] | None = None
        """The place that all other tokens lead to; None until the first lookup."""

    def following(self, token: str) -> _Place[T]:
        """Build the place to which one more token leads."""
        if token in self.after:
            found = self.after[token] = self._towards((token, "*"))
        else:
            found = self.otherwise = self._towards(("*",))
        return found

    def _towards(self, ways: Iterable[str]) -> _Place[T]:
        branches = [branch.branches[way] for branch in self._branches for way in ways if way in branch.branches]
        return _Place(branches, self._below)


class Routes(Generic[T]):
    """The readers of one stream, each identified by a number in the order of arrival."""

    def __init__(self) -> None:
        self._root: _Branch[T] = _Branch()
        self._places: dict[str, _Place[T]] = {}
        """Where all tokens of a subject but the last lead."""

    def add(self, wanted: str, number: int, reader: T) -> None:
        """Add a filter of a reader."""
        branch = self._root
        *tokens, last = wanted.split(".")
        for token in tokens:
            branch = branch.branches.setdefault(token, _Branch())
        if last == ">":
            branch.below[number] = reader
        else:
            branch.branches.setdefault(last, _Branch()).here[number] = reader
        self._places.clear()

    def remove(self, number: int) -> None:
        """Remove a reader from all its filters."""
        waiting = [self._root]
        while waiting:
            branch = waiting.pop()
            branch.here.pop(number, None)
            branch.below.pop(number, None)
            waiting.extend(branch.branches.values())
        self._places.clear()

    def readers(self, subject: str) -> tuple[T, ...]:
        """Return who reads a subject."""
        beginning, _, last = subject.rpartition(".")
        place = self._places.get(beginning) or self._place(beginning)
        return (place.after.get(last, place.otherwise) or place.following(last)).readers

    def _place(self, beginning: str) -> _Place[T]:
        if "" not in self._places or len(self._places) >= REMEMBERED:
            self._places = {"": _Place((self._root,), {})}
        place = self._places[""]
        for token in beginning.split(".") if beginning else ():
            place = place.after.get(token, place.otherwise) or place.following(token)
        self._places[beginning] = place
        return place

"""Arguments and results of admission functions.

A mutator takes a `Review` and returns a `Mutation`: the new document, a description of the change, and the facts that it
follows from; None if it changes nothing. It raises ApiError where it would have to act and cannot. A validator takes a
`Review` and returns field errors; a warner, called once there are none, returns texts for the writer. All are pure: the objects
that they look up are in the review's read model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import msgspec

from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import Headed
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import DocumentError, without_nulls
from cotenant.api.validation.fields import FieldError, wrong_type
from cotenant.domain.quota.gates import QuotaGates
from cotenant_gateway.read_model.settings import AdmissionSettings
from cotenant_gateway.read_model.stopwatch import Stopwatch

V = TypeVar("V")
T = TypeVar("T")

_WRONG = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>[^`]*)`)?", re.DOTALL)


class ObjectSource(Protocol):
    """The part of the read model that admission uses."""

    @property
    def quota_gates(self) -> QuotaGates:
        """Which rules for quotas are on."""

    @property
    def settings(self) -> AdmissionSettings:
        """Which other rules differ from the default."""

    @property
    def stopwatch(self) -> Stopwatch | None:
        """Measures admission functions; None: no metrics."""

    def get(self, kind: Kind, namespace: str, name: str) -> Snapshot | None:
        """Return one object."""

    def derived(self, kind: Kind, compute: Callable[[ObjectSource], T]) -> T:
        """Return the result of a function over the objects of a kind; cached until one of them changes."""

    def objects(self, kind: Kind, namespace: str = "", after: tuple[str, str] = ("", "")) -> Iterator[Snapshot]:
        """Yield the objects of a kind."""


def type_error(error: msgspec.ValidationError | DocumentError) -> FieldError:
    """Return the field error of a value that has the wrong JSON type."""
    match = _WRONG.fullmatch(str(error))
    what, path = (match.group("what"), match.group("path")) if match else (str(error), "")
    return wrong_type((path or "").replace("[...]", "[*]"), what.replace("`", "'"))


class Mutation(msgspec.Struct, frozen=True):
    """The result of a mutator."""

    document: msgspec.Raw
    notes: tuple[str, ...]
    """What was done, in words."""
    causes: tuple[str, ...] = ()
    """Facts that it follows from, as `LOG:sequence`."""


class Review(msgspec.Struct):
    """One object on its way to the log."""

    definition: KindDefinition
    document: msgspec.Raw
    view: Headed
    old: Snapshot | None
    """The object as it is; None for a creation."""
    objects: ObjectSource
    notes: tuple[str, ...] = ()
    """The mutators' changes, in words."""
    causes: tuple[str, ...] = ()
    """The facts that it follows from."""
    warnings: tuple[str, ...] = ()
    """Warnings for the writer of an object that is accepted."""

    @property
    def kind(self) -> Kind:
        return self.definition.kind

    def stored_view(self) -> Headed | None:
        """The typed view of the object as it is; None for a creation."""
        return self.definition.decode(self.old.stored.raw) if self.old is not None and self.old.stored is not None else None

    def old_view(self, expected: type[V]) -> V | None:
        """Return the typed view of the object as it is."""
        view = self.stored_view()
        if view is None:
            return None
        assert isinstance(view, expected)
        return view

    def take(self, change: Mutation) -> None:
        """Apply a mutator's result."""
        if change.document is not self.document:
            self.document = change.document
            self.view = self.definition.decode(change.document)
        self.notes = (*self.notes, *change.notes)
        self.causes = (*self.causes, *change.causes)


Mutator = Callable[[Review], Mutation | None]
Validator = Callable[[Review], list[FieldError]]
Warner = Callable[[Review], list[str]]
"""Returns warnings about an accepted object."""


class WrongTypes(Exception):  # noqa: N818 - answered with 400
    """The document's fields have other types than the kind's."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


def open_review(definition: KindDefinition, document: msgspec.Raw, old: Snapshot | None, objects: ObjectSource) -> Review:
    """Return the review of a document whose types fit; members that are null count as absent. Raises WrongTypes."""
    try:
        return Review(definition, document, definition.decode(document), old, objects)
    except msgspec.ValidationError as error:
        if b"null" not in bytes(document):
            raise WrongTypes(type_error(error)) from error
    document = without_nulls(document)
    try:
        return Review(definition, document, definition.decode(document), old, objects)
    except msgspec.ValidationError as error:
        raise WrongTypes(type_error(error)) from error

"""Label and field selectors: parsing of Kubernetes' query syntax, and matching.

In: the texts of `labelSelector=` (`a=b,c!=d,e in (x,y),f notin (z),g,!h,i>5,j<7`) and `fieldSelector=`
(`metadata.name=x,status.phase!=Running`), or a LabelSelector object. Out: a predicate over a label map or field map.
A missing key matches `!=` and `notin`, as in Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.validation.fields import label_value, qualified_name


class SelectorError(ValueError):
    """The selector text cannot be parsed; the message says where."""


class Operator(Enum):
    """What an expression demands of a key."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class Requirement(msgspec.Struct, frozen=True):
    """One expression of a selector."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels fulfil the expression."""
        value = labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        if self.operator is Operator.IN:
            return value is not None and value in self.values
        if self.operator is Operator.NOT_IN:
            return value is None or value not in self.values
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        try:
            given, bound = int(value), int(next(iter(self.values)))
        except ValueError:
            return False
        return given > bound if self.operator is Operator.GREATER else given < bound


class Selector(msgspec.Struct, frozen=True):
    """All requirements must hold; none selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels are selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)


EVERYTHING = Selector()

_TOKEN = re.compile(r"\s*(?:(?P<op>==|!=|=|!|,|\(|\)|<|>)|(?P<word>[^\s=!,()<>]+))")
_MAX_TEXT = 16_384


def _tokens(text: str) -> list[tuple[str, bool]]:
    if len(text) > _MAX_TEXT:
        raise SelectorError(f"selector is longer than {_MAX_TEXT} characters")
    found: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        if not text[position:].strip():
            break
        match = _TOKEN.match(text, position)
        if match is None:
            raise SelectorError(f"unexpected character {text[position]!r} in selector {text!r}")
        word = match.group("word")
        found.append((word, True) if word is not None else (match.group("op"), False))
        position = match.end()
    return found


class _Reader:
    """Recursive descent over the tokens of one label selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    def _peek(self) -> tuple[str, bool]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("", False)

    def _take(self) -> tuple[str, bool]:
        token = self._peek()
        self._next += 1
        return token

    def _fail(self, expected: str) -> SelectorError:
        found = self._peek()[0] or "end of text"
        return SelectorError(f"unable to parse selector {self._text!r}: found {found!r}, expected {expected}")

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self._tokens:
            return found
        while True:
            found.append(self._requirement())
            if self._next >= len(self._tokens):
                return found
            if self._peek() != (",", False):
                raise self._fail("','")
            self._take()

    def _key(self) -> str:
        word, is_word = self._peek()
        if not is_word:
            raise self._fail("a label key")
        self._take()
        wrong = qualified_name("key", word)
        if wrong:
            raise SelectorError(f"unable to parse selector {self._text!r}: {wrong[0].message}")
        return word

    def _value(self) -> str:
        word, is_word = self._peek()
        if not is_word:
            return ""
        self._take()
        wrong = label_value("value", word)
        if wrong:
            raise SelectorError(f"unable to parse selector {self._text!r}: {wrong[0].message}")
        return word

    def _requirement(self) -> Requirement:
        if self._peek() == ("!", False):
            self._take()
            return Requirement(self._key(), Operator.DOES_NOT_EXIST)
        key = self._key()
        token, is_word = self._peek()
        if not token or token == ",":
            return Requirement(key, Operator.EXISTS)
        self._take()
        if is_word and token in ("in", "notin"):
            return Requirement(key, Operator.IN if token == "in" else Operator.NOT_IN, self._values())
        if not is_word and token in ("=", "=="):
            return Requirement(key, Operator.IN, frozenset((self._value(),)))
        if not is_word and token == "!=":
            return Requirement(key, Operator.NOT_IN, frozenset((self._value(),)))
        if not is_word and token in (">", "<"):
            bound = self._value()
            if not re.fullmatch(r"-?\d{1,18}", bound):
                raise self._fail(f"an integer after {token!r}")
            return Requirement(key, Operator.GREATER if token == ">" else Operator.LESS, frozenset((bound,)))
        self._next -= 1
        raise self._fail("one of =, ==, !=, in, notin, <, >, ','")

    def _values(self) -> frozenset[str]:
        if self._take() != ("(", False):
            self._next -= 1
            raise self._fail("'('")
        values: set[str] = set()
        while True:
            values.add(self._value())
            token = self._take()
            if token == (")", False):
                return frozenset(values)
            if token != (",", False):
                self._next -= 1
                raise self._fail("',' or ')'")


def parse_label_selector(text: str) -> Selector:
    """Return the selector that the text denotes; an empty text selects everything. Raises SelectorError."""
    return Selector(tuple(_Reader(text).requirements())) if text.strip() else EVERYTHING


def from_label_selector(selector: LabelSelector | None, *, absent_matches: bool = False) -> Callable[..., bool]:
    """Return the predicate of a LabelSelector object. An absent one selects nothing, unless told; an empty one everything.

    Raises SelectorError on an unknown operator.
    """
    if selector is None:
        return lambda _labels: absent_matches
    requirements = [Requirement(key, Operator.IN, frozenset((value,))) for key, value in selector.match_labels.items()]
    for expression in selector.match_expressions:
        try:
            operator = Operator(expression.operator)
        except ValueError as error:
            raise SelectorError(f"{expression.operator!r} is not a valid label selector operator") from error
        requirements.append(Requirement(expression.key, operator, frozenset(expression.values)))
    return Selector(tuple(requirements)).matches


def parse_field_selector(text: str, supported: frozenset[str]) -> Selector:
    """Return a selector over field paths (`=`, `==`, `!=`). Raises SelectorError on other syntax or an unknown field."""
    requirements: list[Requirement] = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([^=!]+?)\s*(==|!=|=)\s*(.*)", term)
        if match is None:
            raise SelectorError(f"invalid field selector {term!r}: expected field=value, field==value or field!=value")
        field, operator, value = match.groups()
        if field not in supported:
            listed = ", ".join(sorted(supported))
            raise SelectorError(f"field label not supported: {field} (supported: {listed})")
        requirements.append(Requirement(field, Operator.NOT_IN if operator == "!=" else Operator.IN, frozenset((value,))))
    return Selector(tuple(requirements))

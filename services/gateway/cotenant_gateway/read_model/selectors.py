"""Label and field selectors: parsing of Kubernetes' query syntax, and matching.

In: the texts of `labelSelector=` (`a=b,c!=d,e in (x,y),f notin (z),g,!h,i>5,j<7`) and `fieldSelector=`
(`metadata.name=x,status.phase!=Running`). Out: a predicate over a label map or field map, or a SelectorError that says where
the text cannot be parsed. A missing key matches `!=` and `notin`, as in Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from cotenant.api.objects.metadata import LabelSelectorRequirement
from cotenant.api.objects.selectors import requirement_holds
from cotenant.api.validation.fields import label_value, qualified_name
from cotenant.domain.selectors import SelectorError


class Selector(msgspec.Struct, frozen=True):
    """All requirements must hold; none selects everything."""

    requirements: tuple[LabelSelectorRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels are selected."""
        return all(requirement_holds(requirement, labels) for requirement in self.requirements)


EVERYTHING = Selector()


def _requirement(key: str, operator: str, values: Iterable[str] = ()) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=sorted(values))


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

    def requirements(self) -> list[LabelSelectorRequirement]:
        found: list[LabelSelectorRequirement] = []
        if not self._tokens:
            return found
        while True:
            found.append(self._read())
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

    def _read(self) -> LabelSelectorRequirement:
        if self._peek() == ("!", False):
            self._take()
            return _requirement(self._key(), "DoesNotExist")
        key = self._key()
        token, is_word = self._peek()
        if not token or token == ",":
            return _requirement(key, "Exists")
        self._take()
        if is_word and token in ("in", "notin"):
            return _requirement(key, "In" if token == "in" else "NotIn", self._values())
        if not is_word and token in ("=", "=="):
            return _requirement(key, "In", (self._value(),))
        if not is_word and token == "!=":
            return _requirement(key, "NotIn", (self._value(),))
        if not is_word and token in (">", "<"):
            bound = self._value()
            if not re.fullmatch(r"-?\d{1,18}", bound):
                raise self._fail(f"an integer after {token!r}")
            return _requirement(key, "Gt" if token == ">" else "Lt", (bound,))
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


def parse_field_selector(text: str, supported: frozenset[str]) -> Selector:
    """Return a selector over field paths (`=`, `==`, `!=`). Raises SelectorError on other syntax or an unknown field."""
    requirements: list[LabelSelectorRequirement] = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([^=!]+?)\s*(==|!=|=)\s*(.*)", term)
        if match is None:
            raise SelectorError(f"invalid field selector {term!r}: expected field=value, field==value or field!=value")
        field, operator, value = match.groups()
        if field not in supported:
            listed = ", ".join(sorted(supported))
            raise SelectorError(f"field label not supported: {field} (supported: {listed})")
        requirements.append(_requirement(field, "NotIn" if operator == "!=" else "In", (value,)))
    return Selector(tuple(requirements))

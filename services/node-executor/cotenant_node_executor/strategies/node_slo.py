"""The NodeSLO in force: the newest one, in which a value that no strategy can read is the last one that could be read.

In: a NodeSLO, the one in force before, the parts that the strategies read (`Strategy.reads`). Out: the same NodeSLO, unless

- a section, a class or a part of a class is no JSON object, such as `"resctrlQOS": []`;
- a field is of another type than its strategy expects, such as `"mbaPercent": "half"`, or `dryRun` is neither true nor false.

Then that value alone is replaced with the one in force, or left out where there is none, as after a start; all others count.
Null counts as absent, and unknown members are passed on. Each set of such values is a problem, reported once. Admission refuses
such a configuration; it can still arrive from a calculator of another version.

Bounds: REMEMBERED documents.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.sampling.wanted import HOST_APPLICATIONS
from cotenant_node_executor.strategies.sections import (
    DryRunSwitch,
    JsonObject,
    JsonValue,
    SectionError,
    SectionShape,
    fields_of,
    fitted,
    lowered,
    of_classes,
)
from cotenant_node_executor.strategies.strategy import Problems, Strategy

REMEMBERED = 64
NODE_SLO = ""
"""In place of a strategy's name, in problems of the document."""
_STAYS, _ABSENT = "the last valid value stays", "it counts as absent"


class _Part:
    """One object of the document: its members that are objects, by their names in lower case, and the shapes of the others."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.within: dict[str, _Part] = {}
        self.shapes: dict[type[Struct], None] = {}

    def add(self, shape: SectionShape) -> None:
        """Add a part that is read, with all objects around it."""
        part = self
        for name in shape.path:
            part = part.within.setdefault(name.lower(), _Part(name))
        part.shapes[shape.shape] = None


class NodeSLOReader:
    """Of one node."""

    def __init__(self, strategies: tuple[Strategy, ...]) -> None:
        self._root = _tree(strategies)
        self._problems: tuple[str, ...] = ()

    def in_force(self, slo: NodeSLORendered, before: NodeSLORendered | None, problems: list[Problems]) -> NodeSLORendered:
        """Return the NodeSLO in force; add what is wrong with this one to the problems, if it was not reported yet."""
        spec, wrong = _read(self._root, bytes(slo.spec), bytes(before.spec) if before is not None else b"{}")
        if wrong and wrong != self._problems:
            problems.append(Problems(NODE_SLO, wrong))
        self._problems = wrong
        return replace(slo, spec=msgspec.Raw(spec)) if wrong else slo


@lru_cache(maxsize=REMEMBERED)
def _tree(strategies: tuple[Strategy, ...]) -> _Part:
    """Return what these strategies read; nodes with the same ones share it."""
    root = _Part()
    root.shapes[HOST_APPLICATIONS] = None
    for strategy in strategies:
        for shape in strategy.reads:
            root.add(shape)
        if strategy.section:
            root.add(SectionShape((strategy.section,), DryRunSwitch))
        for part in of_classes(strategy.part, DryRunSwitch) if strategy.part else ():
            root.add(part)
    return root


@lru_cache(maxsize=REMEMBERED)
def _read(root: _Part, spec: bytes, before: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return the document in force and what is wrong with the new one."""
    problems: list[str] = []
    last, given = _decoded(before), _decoded(spec)
    if isinstance(given, dict):
        given = _object(root, given, last if isinstance(last, dict) else {}, "", problems)
    else:
        given = _kept(last, f"spec: {_not_an_object(given)}", problems)
    if not problems:
        return spec, ()
    try:
        return msgspec.json.encode(given or {}), tuple(problems)
    except (OverflowError, RecursionError) as error:
        return before, (*problems, f"spec: {error}: the last one stays as a whole")


def _decoded(spec: bytes) -> JsonValue:
    try:
        value: JsonValue = msgspec.json.decode(spec)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return value


def _object(part: _Part, given: JsonObject, before: JsonObject, where: str, problems: list[str]) -> JsonObject:
    """Return an object with readable members. `where`: its path with a dot, "" for the document."""
    last = {key.lower(): value for key, value in before.items()}
    found: JsonObject = {}
    for key, value in given.items():
        kept = last.get(key.lower())
        inner = part.within.get(key.lower())
        if inner is not None and isinstance(value, dict):
            name = f"{where}{inner.name}"
            found[key] = _object(inner, value, kept if isinstance(kept, dict) else {}, f"{name}.", problems)
            continue
        why = ""
        if inner is not None and value is not None:
            why = f"{where}{inner.name}: {_not_an_object(value)}"
        elif value is not None:
            why = _refusal(part, key, value, where)
        readable = _kept(kept, why, problems) if why else value
        if readable is not None or not why:
            found[key] = readable
    return found


def _refusal(part: _Part, key: str, value: JsonValue, where: str) -> str:
    """Why a strategy cannot read a member; "" where all that know it can."""
    for shape in part.shapes:
        if key.lower() not in fields_of(shape):
            continue
        try:
            fitted({key.lower(): lowered(value)}, shape, f"{where}{key}")
        except (SectionError, RecursionError) as error:
            text, _, place = str(error).partition(" - at `$.")
            return f"{text} - at `{place}" if set(".[") & set(place) else text
    return ""


def _not_an_object(value: JsonValue) -> str:
    return f"expected an object, got {type(value).__name__}"


def _kept(last: JsonValue, why: str, problems: list[str]) -> JsonValue:
    """Return the value in force instead, with the reason."""
    problems.append(f"{why}: {_ABSENT if last is None else _STAYS}")
    return last

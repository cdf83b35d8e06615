"""`cotenant get quotas --tree`: the quotas as trees, with a bar per resource.

In: ElasticQuota documents as the API shows them. Out: lines. A bar is as long as the largest of used, runtime and request (by
max limited): `#` used, `!` used beyond the runtime, `=` requested, `+` requested beyond the runtime, `.` unrequested
runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from cotenant.domain.quota.names import LABEL_PARENT, LABEL_TREE, ROOT
from cotenant.model.amounts import Amounts, limited, parse_amounts
from cotenant.model.quantities import QuantityError, format_amount
from cotenant_console.api.client import Document, Json, mapping_at, text_at
from cotenant_console.tables import Table

NAMES = frozenset({"quota", "quotas", "eq", "eqs", "elasticquota", "elasticquotas", "elasticquotas.scheduling.sigs.k8s.io"})
BAR = 20
LEGEND = "# used   ! used beyond the runtime   = requested   + requested beyond the runtime   . not requested"
_PREFIX = "quota.scheduling.koordinator.sh/"


@dataclass(frozen=True)
class Drawn:
    """One quota, as far as the drawing needs it."""

    name: str
    parent: str
    tree: str
    used: Amounts
    runtime: Amounts
    request: Amounts
    minimum: Amounts
    maximum: Amounts


def drawn(document: Document) -> Drawn:
    """Return a quota of a document; amounts that cannot be read are left out."""
    labels = mapping_at(document, "metadata", "labels")
    annotations = mapping_at(document, "metadata", "annotations")
    return Drawn(
        name=text_at(document, "metadata", "name"),
        parent=str(labels.get(LABEL_PARENT) or ROOT),
        tree=str(labels.get(LABEL_TREE) or ""),
        used=amounts_of(mapping_at(document, "status", "used")),
        runtime=_noted(annotations.get(f"{_PREFIX}runtime")),
        request=_noted(annotations.get(f"{_PREFIX}request")),
        minimum=amounts_of(mapping_at(document, "spec", "min")),
        maximum=amounts_of(mapping_at(document, "spec", "max")),
    )


def _noted(text: Json) -> Amounts:
    try:
        found = msgspec.json.decode(text, type=dict[str, str | int | float]) if isinstance(text, str) else {}
        return parse_amounts(found)
    except (msgspec.DecodeError, QuantityError):
        return {}


def amounts_of(found: Document) -> Amounts:
    """Return amounts that an object states; none if one cannot be read."""
    try:
        return parse_amounts({name: amount for name, amount in found.items() if isinstance(amount, str | int | float)})
    except QuantityError:
        return {}


def tree_lines(documents: Iterable[Document]) -> Iterator[str]:
    """Yield the lines of all trees, the default tree first."""
    quotas = sorted((drawn(document) for document in documents), key=lambda quota: (quota.tree, quota.name))
    table = Table(("QUOTA", "RESOURCE", "SHARE", "USED", "RUNTIME", "REQUEST", "MIN", "MAX"))
    for tree in dict.fromkeys(quota.tree for quota in quotas):
        table.rows.append((f"tree {tree}" if tree else "default tree", *[""] * 7))
        members = [quota for quota in quotas if quota.tree == tree]
        names = {quota.name for quota in members}
        tops = [quota for quota in members if quota.parent not in names]
        seen: set[str] = set()
        for last, top in _with_last(tops):
            table.rows += _rows(top, members, "", last, seen)
        # Quotas on a cycle of parents, which only another writer than a gateway stores.
        for quota in members:
            if quota.name not in seen:
                table.rows += _rows(quota, members, "", True, seen)
    yield from table.lines()
    yield ""
    yield LEGEND


def _rows(quota: Drawn, members: Sequence[Drawn], indent: str, last: bool, seen: set[str]) -> Iterator[tuple[str, ...]]:
    seen.add(quota.name)
    children = [child for child in members if child.parent == quota.name and child.name not in seen]
    title, below = f"{indent}{'└─ ' if last else '├─ '}{quota.name}", indent + ("   " if last else "│  ")
    for resource in sorted(quota.maximum) or [""]:
        yield (title, *_cells(quota, resource))
        title = below + ("│" if children else "")
    for at_end, child in _with_last(children):
        yield from _rows(child, members, below, at_end, seen)


def _with_last(quotas: Sequence[Drawn]) -> Iterator[tuple[bool, Drawn]]:
    return ((index == len(quotas) - 1, quota) for index, quota in enumerate(quotas))


def _cells(quota: Drawn, resource: str) -> tuple[str, ...]:
    used, runtime = quota.used.get(resource, 0), quota.runtime.get(resource, 0)
    wanted = limited(quota.request, quota.maximum).get(resource, 0)
    shown = (quota.used, quota.runtime, quota.request, quota.minimum, quota.maximum)
    return (resource, bar(used, runtime, wanted), *(format_amount(resource, amounts.get(resource, 0)) for amounts in shown))


def bar(used: int, runtime: int, wanted: int) -> str:
    """Return the bar of one resource."""
    scale = max(used, runtime, wanted, 1)

    def cell(index: int) -> str:
        middle = (2 * index + 1) * scale
        within = [middle <= 2 * BAR * amount for amount in (used, runtime, wanted)]
        match within:
            case [True, inside, _]:
                return "#" if inside else "!"
            case [False, True, asked]:
                return "=" if asked else "."
        return "+" if within[2] else " "

    return "".join(map(cell, range(BAR)))

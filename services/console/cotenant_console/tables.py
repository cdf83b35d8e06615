"""Tables as kubectl prints them: upper-case headings, three blanks between columns, no ruling.

In: headings and rows of text, or a Kubernetes `Table` document. Out: lines. A column with a priority above zero is
shown in the wide form only; a table that is watched keeps the widths of its first rows, so that later rows line up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cotenant_console.api.client import Document, Json, list_at, mapping_at, text_at

GAP = "   "


@dataclass
class Table:
    """Headings and rows; `widths` remembers what was printed so that appended rows line up with it."""

    headings: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    def lines(self, with_headings: bool = True) -> list[str]:
        """All rows as lines, each column as wide as its widest cell so far."""
        shown = [self.headings, *self.rows] if with_headings else list(self.rows)
        self.widths = [
            max([self.widths[i] if i < len(self.widths) else 0, *(len(row[i]) for row in shown)])
            for i in range(len(self.headings))
        ]
        return [self.line(row) for row in shown]

    def line(self, row: Sequence[str]) -> str:
        """One row in the present widths; the last column is not padded."""
        padded = [cell.ljust(self.widths[i] if i < len(self.widths) else 0) for i, cell in enumerate(row)]
        return GAP.join(padded).rstrip()


def cell_text(cell: Json) -> str:
    """A cell of a server-side table as text; nothing is `<none>`, as in kubectl."""
    if cell is None or cell == "":
        return "<none>"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, dict | list):
        return str(cell)
    return str(cell)


def shown_columns(document: Document, wide: bool) -> list[int]:
    """The indexes of the columns to print: all in the wide form, else those of priority zero."""
    definitions = list_at(document, "columnDefinitions")
    return [i for i, column in enumerate(definitions) if wide or int(text_at(column, "priority", default="0")) == 0]


def table_from(document: Document, wide: bool, with_namespace: bool) -> Table:
    """A `Table` document as a table; `with_namespace` puts each row's namespace in front (`-A`)."""
    columns = shown_columns(document, wide)
    definitions = list_at(document, "columnDefinitions")
    headings = tuple(text_at(definitions[i], "name").upper() for i in columns)
    rows = [row_from(row, columns, with_namespace) for row in list_at(document, "rows")]
    return Table(("NAMESPACE", *headings) if with_namespace else headings, rows)


def row_from(row: Json, columns: Sequence[int], with_namespace: bool) -> tuple[str, ...]:
    """One row of a `Table` document, in the order of `columns`."""
    cells = list_at(row, "cells")
    texts = tuple(cell_text(cells[i]) if i < len(cells) else "<none>" for i in columns)
    if not with_namespace:
        return texts
    return (text_at(mapping_at(row, "object"), "metadata", "namespace", default="<none>"), *texts)

"""Why the nodes refuse a shape, and which events can change that.

In: the results of the shape. Out: how many nodes each reason keeps from it, in words, and the subjects to wait for. A node
counts under the first filter that refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import numpy as np

from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.plugin import Refusal
from cotenant_scheduler.framework.profile import CODES_PER_FILTER
from cotenant_scheduler.state.columns import CodeArray, IntArray
from cotenant_scheduler.state.nodes import NodeTable


class Refusals(msgspec.Struct, frozen=True):
    """Nodes refused for one reason."""

    refusal: Refusal
    count: int
    node: str = ""
    """Whose figures the reason has, if that was asked for; of several the first by name."""


class FitDiagnosis(msgspec.Struct, frozen=True):
    """Why no node accepts a pod."""

    refusals: tuple[Refusals, ...]
    """The most frequent reason first."""
    wakes_on: tuple[str, ...]
    """The subjects whose events can change the refusals."""


MANY_ROWS = 256
"""Up to this many rows are grouped one by one, above over arrays: about the break-even point."""


def explain(evaluation: Evaluation, among: IntArray | None = None, *, nearest: bool = False) -> FitDiagnosis:
    """Return why the nodes refuse the shape. `among`: only these rows; `nearest`: also which node is nearest to taking it."""
    filters, codes = evaluation.profile.filters, evaluation.codes
    if among is not None:
        of_others = np.ones(codes.shape[0], dtype=np.bool_)
        of_others[among] = False
        codes[of_others] = 0
    found = []
    subjects: set[str] = set()
    for code, rows in _rows_by_code(codes):
        index, own = divmod(code, CODES_PER_FILTER)
        refusal = filters[index].reason(evaluation.nodes, evaluation.shape, own, rows)
        node = ""
        if nearest and (refusal.of_nearest or rows.shape[0] == 1):
            reason = partial(filters[index].reason, evaluation.nodes, evaluation.shape, own)
            node = _nearest(reason, evaluation.nodes, rows, refusal)
        found.append(Refusals(refusal, int(rows.shape[0]), node))
        subjects.update(filters[index].wakes_on)
    return FitDiagnosis(
        refusals=tuple(sorted(found, key=lambda entry: -entry.count)),
        wakes_on=tuple(sorted(subjects or {"objects.core.nodes._.*"})),
    )


def _nearest(reason: Callable[[IntArray], Refusal], nodes: NodeTable, rows: IntArray, refusal: Refusal) -> str:
    """Return the first node by name whose own figures are those of a refusal: it is in the half that has them."""
    rows = rows[np.argsort(-nodes.tie[rows])]
    while rows.shape[0] > 1:
        half = rows[: rows.shape[0] // 2]
        rows = half if reason(half) == refusal else rows[half.shape[0] :]
    return nodes.names[rows.item()]


def _rows_by_code(codes: CodeArray) -> Iterator[tuple[int, IntArray]]:
    """Give the rows that are refused with each code, both ascending."""
    if codes.shape[0] > MANY_ROWS:
        for code in np.unique(codes[codes > 0]).tolist():
            yield code, np.flatnonzero(codes == code)
        return
    found: dict[int, list[int]] = {}
    for row, code in enumerate(codes.tolist()):
        if code > 0:
            found.setdefault(code, []).append(row)
    for code, rows in sorted(found.items()):
        yield code, np.array(rows)

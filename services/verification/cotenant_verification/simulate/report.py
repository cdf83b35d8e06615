"""The result of a simulated trace as text, or as JSON.

In: a TraceResult. Out: lines with counts, reasons and charts; or a document whose keys are sorted, so that equal
runs give equal bytes (wall time is left out of it for that).
"""

from __future__ import annotations

from cotenant.model.names import GPU_CORE
from cotenant_console.api.client import Document
from cotenant_verification.simulate.chart import chart_lines, span
from cotenant_verification.simulate.openb_run import TraceResult

TITLES = {"cpu": "CPU requested", "memory": "memory requested", GPU_CORE: "GPU requested (approximate: without device choice)"}
APPROXIMATION = (
    "GPUs are approximate: whole ones as nvidia.com/gpu, parts summed as koordinator.sh/gpu-core, without a choice of devices. "
    "Usage follows from placements; nothing is sampled."
)


def trace_lines(result: TraceResult, width: int) -> list[str]:
    """The result for a terminal."""
    tally = result.tally
    lines = [
        f"{result.nodes} nodes, {result.pods} pods over {span(result.span_seconds)} of virtual time "
        f"in {result.wall_seconds:.1f} s: {result.events} events",
        f"placed   {tally.placed} pods ({tally.placements} placements)",
        f"waiting  {tally.never_placed} pods were never placed, {tally.waiting} wait at the end",
    ]
    lines += [f"  {count:6d}  {reason}" for reason, count in tally.reasons().items()]
    if result.refused:
        lines.append(f"refused  {result.refused} requests")
        lines += [f"          {text}" for text in result.refusals]
    lines += ["", APPROXIMATION]
    for name, title in TITLES.items():
        if tally.capacity.get(name):
            points = tally.series.get(name, [])
            lines += ["", *chart_lines(title, points, 0.0, result.span_seconds, max(20, min(width - 12, 100)))]
    return lines


def trace_document(result: TraceResult) -> Document:
    """The result for programs."""
    tally = result.tally
    return {
        "nodes": result.nodes,
        "pods": result.pods,
        "spanSeconds": result.span_seconds,
        "events": result.events,
        "placed": tally.placed,
        "placements": tally.placements,
        "neverPlaced": tally.never_placed,
        "waitingAtEnd": tally.waiting,
        "reasons": dict(tally.reasons()),
        "refused": result.refused,
        "gpuApproximate": True,
    }

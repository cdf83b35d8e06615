"""The screen of `cotenant up` as lines of text, and the summary at its end.

In: a `DisplayState`, the state at one moment. Out: lines; this module reads neither a clock nor a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cotenant_console.api.client import Document
from cotenant_console.api.endpoint import Endpoint
from cotenant_console.up.figures import NodeFigures, number_at
from cotenant_console.up.journal import JournalLine

EVENTS_SHOWN = 10
BAR_CELLS = 20


@dataclass(frozen=True)
class DemoJobs:
    """The batch jobs of the demonstration."""

    submitted: int = 0
    done: int = 0
    failed: int = 0
    cpu_seconds_done: float = 0.0


@dataclass(frozen=True)
class DisplayState:
    """The displayed state at one moment. Seconds since the start; `until` None means until Ctrl-C."""

    endpoint: Endpoint
    folder: Path
    node: str
    elapsed: float
    until: float | None
    cpu_percent: float
    cpus: int
    nodes: Sequence[NodeFigures] = ()
    phases: Mapping[str, int] = field(default_factory=dict)
    not_ready: Sequence[str] = ()
    warning: str = ""
    restarts: int = 0
    crashes: Sequence[str] = ()
    suppression_now: str = ""
    suppressions: int = 0
    placed: int = 0
    lines: Sequence[JournalLine] = ()
    service: Document = field(default_factory=dict)
    load: Document = field(default_factory=dict)
    service_cpu_milli: float | None = None
    work: DemoJobs = DemoJobs()
    demo: bool = False
    notes: Sequence[str] = ()


def bar(percent: float) -> str:
    """A bar of fixed width for a percentage."""
    full = max(0, min(BAR_CELLS, round(percent * BAR_CELLS / 100)))
    return "█" * full + "░" * (BAR_CELLS - full)


def milliseconds(document: Document, key: str) -> str:
    """A latency of a report, or a dash."""
    found = number_at(document, key)
    return "-" if found is None else f"{found:.1f} ms"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def node_line(node: NodeFigures) -> str:
    """One node's batch resources as text."""
    kind = "simulated" if node.simulated else "real"
    state = "" if node.ready else ", not ready"
    return (
        f"{node.name} ({kind}{state}): batch-cpu {node.batch_cpu_used_milli}m used of {node.batch_cpu_milli}m, "
        f"batch-memory {node.batch_memory_used_mib} of {node.batch_memory_mib} MiB, {node.pods} pods"
    )


def service_line(view: DisplayState) -> str:
    """The demonstration's service in words."""
    rate = number_at(view.load, "rate")
    if rate is None and not view.service:
        return "web: starting"
    used = "-" if view.service_cpu_milli is None else f"{view.service_cpu_milli:.0f}m"
    return (
        f"web: {0.0 if rate is None else rate:.0f} requests/s, cpu {used}, p50 {milliseconds(view.service, 'p50_ms')}, "
        f"p99 {milliseconds(view.service, 'p99_ms')} "
        f"(clients' p99: quiet {milliseconds(view.load, 'quiet_p99_ms')}, loaded {milliseconds(view.load, 'loaded_p99_ms')})"
    )


def status_lines(view: DisplayState) -> list[str]:
    """The state, one line a subject."""
    left = "" if view.until is None else f" of {clock(view.until)}"
    lines = [f"running {clock(view.elapsed)}{left}   data {view.folder}", ""]
    lines.append(f"cpu    {bar(view.cpu_percent)} {view.cpu_percent:3.0f} % of {view.cpus} CPUs")
    lines += [f"node   {node_line(node)}" for node in view.nodes]
    if view.demo:
        lines.append(f"ls     {service_line(view)}")
        lines.append(
            f"be     {view.work.submitted} jobs submitted, {view.work.done} done "
            f"({view.work.cpu_seconds_done:.0f} CPU s), {view.work.failed} failed"
        )
    lines.append(f"pods   {', '.join(f'{count} {phase}' for phase, count in view.phases.items()) or 'none'}")
    lines.append(f"now    {view.suppression_now or 'no suppression yet'}")
    health = "all ready" if not view.not_ready else "not ready: " + ", ".join(view.not_ready)
    lines.append(f"stack  {health}{f'; {view.restarts} crashes' if view.restarts else ''}")
    lines += [f"FULL   {part}" for part in view.warning.split("; ")] if view.warning else []
    lines += [f"crash  {crash}" for crash in view.crashes[-3:]]
    lines += [f"note   {note}" for note in view.notes]
    return lines


def event_lines(view: DisplayState, shown: int = EVENTS_SHOWN) -> list[str]:
    """The last events in words, newest last."""
    return [f"{line.at:%H:%M:%S} {line.ref:<14} {line.words}" for line in list(view.lines)[-shown:]]


def address_lines(view: DisplayState) -> list[str]:
    """Addresses, and two commands to try."""
    return [
        f"API  {view.endpoint.api_url}     NATS {view.endpoint.nats_url}",
        "try  cotenant get pods -A          cotenant events -f",
    ]


def plain_line(view: DisplayState) -> str:
    """The changing figures in one line, for output that is no terminal."""
    real = next((node for node in view.nodes if not node.simulated), None)
    batch = "" if real is None else f" batch-cpu {real.batch_cpu_used_milli}m/{real.batch_cpu_milli}m"
    demo = ""
    if view.demo:
        rate = number_at(view.load, "rate")
        demo = (
            f" ls {0.0 if rate is None else rate:.0f}/s p50 {milliseconds(view.service, 'p50_ms')} "
            f"p99 {milliseconds(view.service, 'p99_ms')} be {view.work.done} done"
        )
    pods = " ".join(f"{phase}={count}" for phase, count in view.phases.items())
    full = " FULL" if view.warning else ""
    waiting = f" not ready: {', '.join(view.not_ready)}" if view.not_ready else ""
    return f"[{clock(view.elapsed)}] cpu {view.cpu_percent:.0f} %{batch}{demo} pods {pods or 'none'}{full}{waiting}"


def summary_lines(view: DisplayState) -> list[str]:
    """The summary of the run."""
    lines = [f"ran {clock(view.elapsed)}, {view.placed} pods placed, {view.suppressions} suppressions"]
    if view.demo:
        load = view.load
        lines += [
            f"LS p99: quiet {milliseconds(load, 'quiet_p99_ms')}, loaded {milliseconds(load, 'loaded_p99_ms')} "
            f"(p50: quiet {milliseconds(load, 'quiet_p50_ms')}, loaded {milliseconds(load, 'loaded_p50_ms')}), "
            f"{number_at(load, 'answered') or 0:.0f} requests answered, {number_at(load, 'failed') or 0:.0f} failed",
            f"BE: {view.work.done} jobs done, {view.work.cpu_seconds_done:.0f} CPU seconds of work, {view.work.failed} failed",
        ]
    if view.restarts:
        lines.append(f"{view.restarts} crashes:")
        lines += [f"  {crash}" for crash in view.crashes]
    else:
        lines.append("no service crashed")
    return lines

"""`cotenant simulate`: the services' own cores in one process under a virtual clock, with no NATS.

In: a cluster file, a span and a seed; or the openb trace. Out: what came of it, as text or JSON. The same input
gives the same JSON, byte for byte; progress goes to standard error, and only where that is a terminal.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cotenant_console.durations import parse_duration
from cotenant_console.manifests.documents import ManifestError


@click.command("simulate")
@click.option("-f", "--filename", metavar="FILE", help="The cluster to simulate.")
@click.option("--openb", metavar="DIR", help="The folder with the openb trace.")
@click.option("--for", "span", default="10m", show_default=True, metavar="TIME", help="Virtual time, such as 10m or 6h.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="What chance is drawn from.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--chaos", is_flag=True, help="A workload and faults from the seed; every promise is checked.")
@click.option("--seeds", default="", metavar="1..200", help="With --chaos: many seeds, one line each.")
@click.option("-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="With --seeds: processes.")
@click.option("--nodes", type=click.IntRange(0, 1000), default=0, help="With --chaos: how many; 0: the seed says it.")
@click.option("--schedule", default="", metavar="FILE", help="With --chaos: replay a schedule.")
@click.option("--shrink", is_flag=True, help="With --chaos: leave out of a failing run what it does not need.")
@click.option("--write", default="", metavar="FILE", help="With --chaos: where to write the schedule.")
def command(
    filename: str | None,
    openb: str | None,
    span: str,
    seed: int,
    output: str,
    chaos: bool,
    seeds: str,
    jobs: int,
    nodes: int,
    schedule: str,
    shrink: bool,
    write: str,
) -> None:
    """Run the same cores under a virtual clock, offline."""
    if (filename is not None) + (openb is not None or chaos) != 1:
        raise click.UsageError("give one of -f FILE, --openb DIR and --chaos (which takes --openb DIR, too)")
    try:
        seconds = parse_duration(span)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from error
    if chaos:
        # By name: the package of chaos runs imports this one, and only this option needs it.
        verification = importlib.import_module("cotenant_verification.chaos.command")
        options = verification.Options(
            seed=seed,
            span=span,
            span_seconds=seconds,
            nodes=nodes,
            openb=openb or "",
            seeds=seeds,
            jobs=jobs,
            schedule=schedule,
            shrink=shrink,
            write=write,
        )
        raise SystemExit(verification.simulate_chaos(options))
    if openb is not None:
        _simulate_trace(Path(openb), seed, output)
    elif filename is not None:
        _simulate_cluster(Path(filename), seconds, seed, output)


def _simulate_cluster(path: Path, seconds: float, seed: int, output: str) -> None:
    from cotenant_console.simulate.cluster_file import read_cluster
    from cotenant_console.simulate.cluster_run import document_lines, run_cluster

    try:
        cluster = read_cluster(path)
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    with progress_bar(f"simulating {path.name}") as progress:
        document = run_cluster(cluster, seconds, seed, progress)
    click.echo(json.dumps(document, indent=2, sort_keys=True) if output == "json" else "\n".join(document_lines(document)))


def _simulate_trace(folder: Path, seed: int, output: str) -> None:
    from cotenant_console.simulate.openb import TraceError, read_trace
    from cotenant_console.simulate.openb_run import run_trace
    from cotenant_console.simulate.report import trace_document, trace_lines

    try:
        trace = read_trace(folder)
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    with progress_bar(f"{len(trace.pods)} pods on {len(trace.nodes)} nodes") as progress:
        result = run_trace(trace, progress, seed)
    if output == "json":
        click.echo(json.dumps(trace_document(result), indent=2, sort_keys=True))
    else:
        click.echo("\n".join(trace_lines(result, shutil.get_terminal_size().columns)))


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """A function that is told the part done; it draws only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda part: bar.update(task, completed=part)

"""The commands `cotenant simulate -f` and `--openb`.

In: a cluster file or the folder of the trace, a seed, the output format. Out: text or JSON on standard output; progress on
standard error, and only where that is a terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cotenant_console.manifests.documents import ManifestError
from cotenant_verification.simulate.cluster_file import read_cluster
from cotenant_verification.simulate.cluster_run import document_lines, run_cluster
from cotenant_verification.simulate.openb import TraceError, read_trace
from cotenant_verification.simulate.openb_run import run_trace
from cotenant_verification.simulate.report import trace_document, trace_lines


def simulate_cluster(path: Path, seconds: float, seed: int, output: str) -> None:
    """Simulate a cluster file and print the result as text or JSON. Raises ClickException for an invalid file."""
    try:
        cluster = read_cluster(path)
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    with progress_bar(f"simulating {path.name}") as progress:
        document = run_cluster(cluster, seconds, seed, progress)
    click.echo(json.dumps(document, indent=2, sort_keys=True) if output == "json" else "\n".join(document_lines(document)))


def simulate_trace(folder: Path, seed: int, output: str) -> None:
    """Schedule the openb trace and print the result as text or JSON. Raises ClickException where the trace is unreadable."""
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
    """A function that takes the completed fraction (0 to 1); it draws only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda part: bar.update(task, completed=part)

"""`cotenant simulate`: the services' own cores in one process under a virtual clock, with no NATS.

In: a cluster file, a span and a seed; or the openb trace. Out: what came of it, as text or JSON. The same input
gives the same JSON, byte for byte. `cotenant_verification` is imported by name, as it imports this package.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from cotenant_console.durations import parse_duration


@click.command("simulate")
@click.option("-f", "--filename", metavar="FILE", help="The cluster to simulate.")
@click.option("--openb", metavar="DIR", help="The folder with the openb trace.")
@click.option("--for", "span", default="10m", show_default=True, metavar="TIME", help="Virtual time, such as 10m or 6h.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--chaos", is_flag=True, help="Generate a workload and faults from the seed, and check every invariant.")
@click.option("--seeds", default="", metavar="1..200", help="With --chaos: a range of seeds, one line each.")
@click.option("-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="With --seeds: processes.")
@click.option("--nodes", type=click.IntRange(0, 1000), default=0, help="With --chaos: number of nodes; 0: the seed chooses.")
@click.option("--schedule", default="", metavar="FILE", help="With --chaos: replay a schedule.")
@click.option("--shrink", is_flag=True, help="With --chaos: minimise the schedule of a failing run.")
@click.option("--write", default="", metavar="FILE", help="With --chaos: write the schedule to this file.")
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
        chaos_runs = importlib.import_module("cotenant_verification.chaos.command")
        options = chaos_runs.Options(
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
        raise SystemExit(chaos_runs.simulate_chaos(options))
    runs = importlib.import_module("cotenant_verification.simulate.command")
    if openb is not None:
        runs.simulate_trace(Path(openb), seed, output)
    elif filename is not None:
        runs.simulate_cluster(Path(filename), seconds, seed, output)

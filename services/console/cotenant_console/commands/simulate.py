"""`cotenant simulate`: the services' own cores in one process under a virtual clock, with no NATS.

In: a cluster file, a span and a seed; or the openb trace; or a trace of request rates, as the load of services, to which the
formulas of overcommitment are applied. Out: the result, as text or JSON. The same input gives the same JSON, byte for
byte. `cotenant_verification` is imported by name, as it imports this package.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from cotenant_console.durations import parse_duration_seconds


@click.command("simulate")
@click.option("-f", "--filename", metavar="FILE", help="The cluster to simulate.")
@click.option("--openb", metavar="DIR", help="The folder with the openb trace.")
@click.option("--usage", metavar="TRACE", help="Try overcommitment on usage: a file of request rates, or `generated`.")
@click.option("--days", type=click.IntRange(0, 60), default=0, help="With --usage: days generated from it; 0: the trace.")
@click.option("--for", "span", default="10m", show_default=True, metavar="TIME", help="Virtual time, such as 10m or 6h.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--chaos", is_flag=True, help="Generate a workload and faults from the seed, and check every invariant.")
@click.option("--seeds", default="", metavar="1..200", help="With --chaos: a range of seeds, one line each.")
@click.option("-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="With --seeds: processes.")
@click.option("--nodes", type=click.IntRange(0, 1000), default=0, help="With --chaos, --usage; 0: the seed chooses, 60.")
@click.option("--schedule", default="", metavar="FILE", help="With --chaos: replay a schedule.")
@click.option("--shrink", is_flag=True, help="With --chaos: minimise the schedule of a failing run.")
@click.option("--write", default="", metavar="FILE", help="With --chaos: write the schedule to this file.")
def command(
    filename: str | None,
    openb: str | None,
    usage: str | None,
    days: int,
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
    if (filename is not None) + (usage is not None) + chaos + (openb is not None and not chaos and usage is None) != 1:
        raise click.UsageError("give one of -f FILE, --openb DIR, --usage TRACE and --chaos (both of these take --openb DIR)")
    try:
        seconds = parse_duration_seconds(span)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from error
    if chaos:
        chaos_runs = importlib.import_module("cotenant_verification.chaos.command")
        options = chaos_runs.ChaosOptions(
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
    if usage is not None:
        usages = importlib.import_module("cotenant_verification.simulate.usage.command")
        usages.simulate_usage(usage, openb, nodes, days, seed, output)
        return
    runs = importlib.import_module("cotenant_verification.simulate.command")
    if openb is not None:
        runs.simulate_trace(Path(openb), seed, output)
    elif filename is not None:
        runs.simulate_cluster(Path(filename), seconds, seed, output)

"""`cotenant bench schedule` and `cotenant bench recover`: figures of the scheduler on this machine, checked.

In: sizes. Out: figures, one a line or as JSON. Exit status 0 only if the independent check found nothing wrong.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from cotenant_console.bench.figures import Figures, lines
from cotenant_console.bench.stage import BenchError
from cotenant_console.bench.workload import Workload, openb, synthetic
from cotenant_console.up.nats_server import NatsServerMissingError


@click.group("bench")
def command() -> None:
    """Measure the scheduler on this machine, with a private server, and check what it decided."""


@command.command("schedule")
@click.option("--nodes", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--pods", type=click.IntRange(1), default=20_000, show_default=True)
@click.option("--rate", type=click.FloatRange(0), default=0.0, help="Pods a second; 0: as fast as they are stored.")
@click.option("--shapes", type=click.IntRange(1, 5000), default=1, show_default=True, help="Different requests, in turn.")
@click.option("--openb", "openb_folder", type=click.Path(exists=True, file_okay=False), help="Folder with openb's tables.")
@click.option(
    "--mix",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="Percent of pods with constraints: spread, affinity, host ports, tolerations, batch, mid, tight quota, ...",
)
@click.option("--core-only", is_flag=True, help="Without a server: the decision alone.")
@click.option("--stack", is_flag=True, help="With gateway, quota-tree, calculator, arbiter and simulated executors.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON.")
def schedule(
    nodes: int,
    pods: int,
    rate: float,
    shapes: int,
    mix: int,
    openb_folder: str | None,
    core_only: bool,
    stack: bool,
    output: str | None,
) -> None:
    """Place pods and say how fast, from the first submit to the last stored placement."""
    if core_only and (stack or rate):
        raise click.UsageError("--core-only has no server and no clock: leave out --stack and --rate")
    workload = openb(nodes, pods, Path(openb_folder), mix) if openb_folder else synthetic(nodes, pods, shapes, mix)
    if core_only:
        from cotenant_console.bench.core_only import run as run_core

        _show(run_core(workload), output)
    else:
        from cotenant_console.bench.schedule import run

        _show(_carry_out(run(workload, rate, stack=stack)), output)


@command.command("recover")
@click.option("--nodes", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--pods", type=click.IntRange(10), default=20_000, show_default=True)
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON.")
def recover(nodes: int, pods: int, output: str | None) -> None:
    """Kill the scheduler under load, start it again, and say how long until the next placement."""
    from cotenant_console.bench.recover import run

    _show(_carry_out(run(synthetic(nodes, pods, 1))), output)


def _carry_out(running: object) -> Figures:
    assert asyncio.iscoroutine(running)
    try:
        figures = asyncio.run(running)
    except (BenchError, NatsServerMissingError) as error:
        raise click.ClickException(str(error)) from error
    assert isinstance(figures, Figures)
    return figures


def _show(figures: Figures, output: str | None) -> None:
    click.echo(msgspec.json.encode(figures).decode() if output == "json" else "\n".join(lines(figures)))
    if not figures.verified:
        raise click.exceptions.Exit(1)


__all__ = ["Workload", "command"]

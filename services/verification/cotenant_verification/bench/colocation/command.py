"""`cotenant bench colocation`: the command.

In: options. Out: a table, or with `-o json` a list of one object a case; progress goes to standard error.
"""

from __future__ import annotations

import logging
import math
from functools import partial

import click
import msgspec

from cotenant_console.up.nats_server import NatsServerMissingError
from cotenant_verification.bench.colocation.cases import CASES
from cotenant_verification.bench.colocation.figures import table
from cotenant_verification.bench.testbed import BenchError
from cotenant_verification.interruptible import until_told

ALL = "all"


@click.command("colocation")
@click.option("--case", "names", type=click.Choice([*CASES, ALL]), multiple=True, default=("cpu",), help="May be repeated.")
@click.option("--class", "protection", type=click.Choice(["fair", "realtime"]), default="fair", show_default=True)
@click.option("--pairs", type=click.IntRange(1, 100), default=5, show_default=True, help="How often each window is repeated.")
@click.option("--seconds", type=click.FloatRange(1, 600), default=20.0, show_default=True, help="How long a window is.")
@click.option(
    "--uncontrolled",
    type=click.IntRange(0, 100),
    help="In how many of the pairs the neighbours also run without control.  [default: all]",
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON.")
def command(
    names: tuple[str, ...], protection: str, pairs: int, seconds: float, uncontrolled: int | None, output: str | None
) -> None:
    """Measure a service alone, beside best-effort neighbours, and beside them without cotenant, on this machine's kernel.

    Starts a stack of its own; needs root. Everything runs in one control group of 4 GiB and 2,000 processes, and is removed at
    the end.
    """
    from cotenant_verification.bench.colocation.run import ColocationOptions, run

    if not math.isfinite(seconds):
        raise click.UsageError(f"--seconds {seconds}: expected a number of seconds")
    chosen = tuple(CASES) if ALL in names else tuple(dict.fromkeys(names))
    plain = pairs if uncontrolled is None else uncontrolled
    options = ColocationOptions(tuple(CASES[name] for name in chosen), protection, pairs, seconds, plain)
    # It warns each time that a TLS connection ends from the other side.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        found = until_told(run(options, partial(click.echo, err=True)))
    except (BenchError, NatsServerMissingError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(msgspec.json.encode(found).decode() if output == "json" else "\n".join(table(found)))

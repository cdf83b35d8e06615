"""The command `cotenant simulate --usage`.

In: the file of a rate trace, or the word `generated`; the folder of the openb trace, or none (generated machines and pods); how
many machines and days, a seed, the output format. Out: text or JSON on standard output.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from cotenant_verification.simulate.command import progress_bar
from cotenant_verification.simulate.openb import TraceError, read_trace
from cotenant_verification.simulate.usage.population import generated_trace, populate
from cotenant_verification.simulate.usage.rates import GENERATED, RateError, generated, read_rates, repeated
from cotenant_verification.simulate.usage.report import usage_document, usage_lines
from cotenant_verification.simulate.usage.runs import run_usage

MACHINES = 60


def simulate_usage(usage: str, openb: str | None, machines: int, days: int, seed: int, output: str) -> None:
    """Replay usage; print offers, usage, reductions and breaches. Raises ClickException for an unreadable trace."""
    count = machines or MACHINES
    try:
        rates = generated(seed) if usage == GENERATED else read_rates(Path(usage))
        if days:
            rates = repeated(rates, days, seed)
        trace = read_trace(Path(openb)) if openb is not None else generated_trace(seed, count)
    except (RateError, TraceError) as error:
        raise click.ClickException(str(error)) from error
    population = populate(trace, count, rates.steps, seed)
    with progress_bar(f"{len(population.pods)} pods on {len(population.capacities)} machines") as progress:
        tables = run_usage(rates, population, seed, progress)
    if output == "json":
        click.echo(json.dumps(usage_document(tables, rates, population, seed), indent=2, sort_keys=True))
    else:
        click.echo("\n".join(usage_lines(tables, rates, population, shutil.get_terminal_size().columns)))

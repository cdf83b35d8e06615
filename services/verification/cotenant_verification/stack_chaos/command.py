"""`cotenant bench chaos` and `cotenant bench leader-kills`: faults on the real stack.

In: a seed, a span. Out: each fault as it comes, then the report; exit status 1 where a promise was broken.
"""

from __future__ import annotations

import statistics

import click
import msgspec

from cotenant_console.durations import parse_duration_seconds
from cotenant_verification.interruptible import until_told
from cotenant_verification.stack_chaos.cluster import SERVERS, SKEWED, STACK_SERVICES, StackError
from cotenant_verification.stack_chaos.disks import mount_privately
from cotenant_verification.stack_chaos.faults import FAULT_FREE_SECONDS, FILL, LEADER, chosen_faults
from cotenant_verification.stack_chaos.records import Fault, WriteOutcome
from cotenant_verification.stack_chaos.run import run
from cotenant_verification.stack_chaos.run_report import RunReport, gap_of

KILL_EVERY_SECONDS = 25.0
KILL_CLIENTS = 16


def _carry_out(seed: int, span: float, faults: list[Fault], clients: int, keep: str) -> RunReport:
    own_disks = any(fault.kind == FILL for fault in faults)
    if own_disks and not mount_privately():
        click.echo("disks are not filled: only root may mount file systems of its own", err=True)
        faults, own_disks = [fault for fault in faults if fault.kind != FILL], False

    def say(line: str) -> None:
        click.echo(line, err=True)

    try:
        return until_told(run(seed, span, faults, say, clients=clients, keep=keep, own_disks=own_disks))
    except StackError as error:
        raise click.ClickException(str(error)) from error


@click.command("chaos")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the faults and of what clients do.")
@click.option("--for", "span", default="10m", show_default=True, metavar="TIME", help="Duration, such as 10m.")
@click.option("--clients", type=click.IntRange(1, 100), default=6, show_default=True)
@click.option("--keep", default="", metavar="DIR", help="Run in this folder, and keep it.")
@click.option("--faults", "only_faults", is_flag=True, help="Print the faults of this seed, and do nothing.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
def chaos(seed: int, span: str, clients: int, keep: str, only_faults: bool, output: str | None) -> None:
    """Kill, pause, isolate, clock-skew and fill the disks of a real stack under load, and check what clients saw."""
    try:
        seconds = parse_duration_seconds(span)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if seconds < 2 * FAULT_FREE_SECONDS:
        raise click.UsageError(f"--for {span}: a run takes {2 * FAULT_FREE_SECONDS:.0f}s at least")
    faults = chosen_faults(seed, seconds, SERVERS, STACK_SERVICES, SKEWED)
    if only_faults:
        click.echo("\n".join(map(str, faults)))
        return
    report = _carry_out(seed, seconds, faults, clients, keep)
    click.echo(msgspec.json.encode(report).decode() if output == "json" else "\n".join(report.lines()))
    if report.violations:
        raise click.exceptions.Exit(1)


@click.command("leader-kills")
@click.option("--times", type=click.IntRange(1, 100), default=10, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of what clients do.")
def leader_kills(times: int, seed: int) -> None:
    """Kill LOG's leader repeatedly under load; report how long writes were unavailable, and check the history."""
    faults = [Fault(at=10.0 + KILL_EVERY_SECONDS * number, seconds=0.1, kind="kill", target=LEADER) for number in range(times)]
    report = _carry_out(seed, faults[-1].at + FAULT_FREE_SECONDS, faults, KILL_CLIENTS, "")
    progress = [write.ended for write in report.writes if write.outcome is WriteOutcome.OK]
    gaps = [gap_of(progress, fault) for fault in report.faults]
    for fault, gap in zip(report.faults, gaps, strict=True):
        click.echo(f"{fault.target} killed at {fault.at:.1f} s: {gap:.2f} s without progress")
    click.echo(f"median {statistics.median(gaps):.2f} s, worst {max(gaps):.2f} s")
    click.echo("\n".join(report.lines()))
    if report.violations:
        raise click.exceptions.Exit(1)

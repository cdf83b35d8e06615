"""`cotenant bench schedule` and related commands: figures of the scheduler on this machine, checked.

In: sizes. Out: figures, one a line or as JSON. Exit status 0 only if the independent check found nothing wrong.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from cotenant.domain.gangs import MAX_GANG
from cotenant.log.nats.jetstream import BusError
from cotenant_console.durations import parse_duration_seconds
from cotenant_console.up.nats_server import DiskTooSmallError, NatsServerMissingError
from cotenant_verification.bench.colocation.command import command as colocation
from cotenant_verification.bench.figures import BenchResult, lines
from cotenant_verification.bench.over_http.churn import Minute
from cotenant_verification.bench.quota_levels import LEAST
from cotenant_verification.bench.testbed import BenchError
from cotenant_verification.bench.workload import WorkloadError, openb, synthetic
from cotenant_verification.interruptible import until_told
from cotenant_verification.stack_chaos.command import chaos, leader_kills

Found = TypeVar("Found")
MAX_SUBMIT_SECONDS = 120
"""Nodes' metrics expire after 180 s."""


@click.group("bench")
def command() -> None:
    """Measure cotenant on this machine, with a private server or stack, and check its decisions."""


command.add_command(chaos)
command.add_command(colocation)
command.add_command(leader_kills)


@command.command("schedule")
@click.option("--nodes", type=click.IntRange(1, 200_000), default=1000, show_default=True)
@click.option("--pods", type=click.IntRange(1, 1_000_000), default=20_000, show_default=True)
@click.option("--rate", type=click.FloatRange(0), default=0.0, help="Pods a second; 0: as fast as they are stored.")
@click.option("--shapes", type=click.IntRange(1, 5000), default=1, show_default=True, help="Different requests, used in turn.")
@click.option("--openb", "openb_folder", type=click.Path(exists=True, file_okay=False), help="Folder with openb's tables.")
@click.option(
    "--mix",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="Percent of pods with constraints: spread, affinity, host ports, tolerations, batch, mid, tight quota, ...",
)
@click.option(
    "--reservations",
    type=click.IntRange(0, 100_000),
    default=0,
    show_default=True,
    help="Reservations on nodes, which a third of the pods may use, one each.",
)
@click.option("--reservation-rules", is_flag=True, help="Reservations of all policies, for controllers, pods with affinity.")
@click.option(
    "--quotas", type=click.IntRange(0, 100_000), default=0, help="Number of quotas, four levels deep; each pod is in one."
)
@click.option("--gang", type=click.IntRange(0, MAX_GANG), default=0, show_default=True, help="Pods of a gang; 0: no gangs.")
@click.option("--core-only", is_flag=True, help="Measure the decision alone, without a server.")
@click.option("--stack", is_flag=True, help="Also run gateway, quota-tree, calculator, arbiter and simulated executors.")
@click.option("--replicas", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Servers that hold the log.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
def schedule(
    nodes: int,
    pods: int,
    rate: float,
    shapes: int,
    mix: int,
    reservations: int,
    reservation_rules: bool,
    quotas: int,
    openb_folder: str | None,
    gang: int,
    core_only: bool,
    stack: bool,
    replicas: str,
    output: str | None,
) -> None:
    """Place pods and measure the rate from the first submit to the last stored placement."""
    if core_only and (stack or rate):
        raise click.UsageError("--core-only has no server and no clock: leave out --stack and --rate")
    if openb_folder and shapes > 1:
        raise click.UsageError("--openb brings its own shapes: leave out --shapes")
    if rate and pods / rate > MAX_SUBMIT_SECONDS:
        raise click.UsageError(
            f"{pods} pods at {rate:g} a second take {pods / rate:.0f} s; metrics are written once and expire: at most "
            f"{MAX_SUBMIT_SECONDS} s, so fewer --pods or a higher --rate"
        )
    try:
        folder = Path(openb_folder) if openb_folder else None
        if folder is not None:
            workload = openb(nodes, pods, folder, mix, gang, reservations)
        else:
            workload = synthetic(nodes, pods, shapes, mix, gang, reservations)
    except WorkloadError as error:
        raise click.ClickException(str(error)) from error
    if 0 < quotas < LEAST:
        raise click.UsageError(f"--quotas has four levels: at least {LEAST}")
    workload = msgspec.structs.replace(workload, quotas=quotas, reservation_rules=reservation_rules)
    if core_only:
        from cotenant_verification.bench.core_only import run as run_core

        _show(run_core(workload), output)
    else:
        from cotenant_verification.bench.schedule import run

        say = partial(click.echo, err=True)
        _show(_carry_out(run(workload, rate, stack=stack, replicas=int(replicas), say=say)), output)


@command.command("recover")
@click.option("--nodes", type=click.IntRange(1, 200_000), default=1000, show_default=True)
@click.option("--pods", type=click.IntRange(10, 1_000_000), default=20_000, show_default=True)
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
def recover(nodes: int, pods: int, output: str | None) -> None:
    """Kill the scheduler under load, start it again, and measure the time until the next placement."""
    from cotenant_verification.bench.recover import run

    _show(_carry_out(run(synthetic(nodes, pods, 1))), output)


@command.command("gang-kills")
@click.option("--nodes", type=click.IntRange(1, 4_000), default=240, show_default=True, help="Simulated nodes.")
@click.option("--gang", type=click.IntRange(2, MAX_GANG), default=500, show_default=True, help="Pods of a gang.")
@click.option("--times", type=click.IntRange(1, 1_000), default=50, show_default=True, help="Kills of the scheduler.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the moments at which it is killed.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
def gang_kills(nodes: int, gang: int, times: int, seed: int, output: str | None) -> None:
    """Kill the scheduler while it places a gang, and check that half a gang was never stored."""
    from cotenant_verification.bench.gang_kills import run

    found = _carry_out(run(nodes, gang, times, seed, partial(click.echo, err=True)))
    click.echo(msgspec.json.encode(found).decode() if output == "json" else "\n".join(lines(found)))
    if not found.verified:
        raise click.exceptions.Exit(1)


@command.command("churn")
@click.option("--rate", type=click.FloatRange(0.1, 500), default=25.0, show_default=True, help="Pods a second.")
@click.option("--life", type=click.FloatRange(0.5, 600), default=10.0, show_default=True, help="Seconds to its deletion.")
@click.option("--for", "span", default="30m", show_default=True, metavar="TIME", help="Duration, such as 30m.")
@click.option("--nodes", type=click.IntRange(1, 100), default=8, show_default=True, help="Simulated nodes.")
@click.option("--kill-every", default="0", show_default=True, metavar="TIME", help="Interval between kills of a process.")
@click.option("--verify", is_flag=True, help="Recompute the run's decisions afterwards (cotenant replay --verify).")
@click.option("--nats-tls/--no-nats-tls", default=True, show_default=True, help="Encrypt NATS connections.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
def churn(
    rate: float, life: float, span: str, nodes: int, kill_every: str, verify: bool, nats_tls: bool, output: str | None
) -> None:
    """Create and delete pods on a real stack, and compare its end with its start."""
    from cotenant_verification.bench.over_http import churn as bench

    try:
        seconds, pause = parse_duration_seconds(span), parse_duration_seconds(kill_every)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    running = bench.run(
        rate, life, seconds, nodes, pause, lambda each: click.echo(_line(each), err=True), verify=verify, nats_tls=nats_tls
    )
    found = _carry_out(running)
    if output == "json":
        click.echo(msgspec.json.encode(found).decode())
    else:
        for name, value in msgspec.to_builtins(found).items():
            click.echo(f"{name} {value}")
    if verify and (found.replay.get("differing") != 0 or not found.replay.get("verified")):
        raise click.exceptions.Exit(1)


@command.command("deletions")
@click.option("--nodes", type=click.IntRange(1, 2_000), default=1000, show_default=True, help="Simulated nodes.")
@click.option("--pods", type=click.IntRange(1, 200_000), default=20_000, show_default=True)
@click.option("--clients", type=click.IntRange(1, 1_000), default=64, show_default=True, help="Clients that delete at once.")
@click.option("--grace", type=click.IntRange(0, 3_600), help="Grace period in seconds; the pods' own (30 s) where left out.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
def deletions(nodes: int, pods: int, clients: int, grace: int | None, output: str | None) -> None:
    """Delete running pods over HTTP with many clients, while others keep writing."""
    from cotenant_verification.bench.over_http.deletions import run

    found = _carry_out(run(synthetic(nodes, pods, 1), clients, grace, partial(click.echo, err=True)))
    click.echo(msgspec.json.encode(found).decode() if output == "json" else "\n".join(lines(found)))
    if found.gone < pods or found.failed:
        raise click.exceptions.Exit(1)


def _line(minute: Minute) -> str:
    ran, gone = minute.running_ms, minute.gone_ms
    return (
        f"minute {minute.minute:>3}  {minute.created:>5} created  {minute.deleted:>5} gone  {minute.failed} failed  "
        f"running p50 {ran.p50 if ran else '-'} p99 {ran.p99 if ran else '-'} ms  gone p50 {gone.p50 if gone else '-'} ms  "
        f"nats-server {minute.cpu_ms_per_pod.get('nats-server', '-')} ms/pod  "
        f"{sum(minute.memory_mib.values())} MiB  {minute.killed and 'killed ' + minute.killed}"
    )


def _carry_out(running: Coroutine[None, None, Found]) -> Found:
    try:
        return until_told(running)
    except (BenchError, BusError, DiskTooSmallError, NatsServerMissingError) as error:
        raise click.ClickException(str(error)) from error


def _show(figures: BenchResult, output: str | None) -> None:
    click.echo(msgspec.json.encode(figures).decode() if output == "json" else "\n".join(lines(figures)))
    if not figures.verified:
        raise click.exceptions.Exit(1)

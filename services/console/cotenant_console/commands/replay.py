"""`cotenant replay --verify`: rebuild the state that each recorded decision was made on, decide again, and compare.

In: HISTORY of a running stack, or of a data folder. Out: how many decisions are equal, which could not be
compared and why, and both sides of the first difference. Exit status 0 only if something was compared and
nothing differed.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from cotenant.engine.replay import Report, verify
from cotenant.events.envelope import Event
from cotenant.log.nats.jetstream import BusError
from cotenant_console.api.endpoint import EndpointUnknownError, ServerOptions, data_folder, find_endpoint
from cotenant_console.definitions import definitions
from cotenant_console.recorded import NothingRecordedError, history, opened
from cotenant_console.up.folder_lock import FolderInUseError

SHOWN = 2000
RECOMPUTED = ("batch-resource-calculator", "quota-tree", "scheduler", "descheduler-arbiter")


@click.command("replay")
@click.option("--verify", "verifying", is_flag=True, required=True, help="Recompute decisions and compare them.")
@click.option("--data", metavar="DIR", help="The data folder (or COTENANT_DATA); its server is started if nothing runs on it.")
@click.option("--from", "first", type=click.IntRange(0), default=0, metavar="SEQ", help="Commits from this sequence of LOG on.")
@click.option("--to", "last", type=click.IntRange(0), default=0, metavar="SEQ", help="Commits up to this sequence.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON.")
def command(verifying: bool, data: str | None, first: int, last: int, output: str | None) -> None:
    """Recompute recorded decisions and compare them."""
    assert verifying
    folder = data_folder(data)
    try:
        nats_url = find_endpoint(ServerOptions(data=data or "")).nats_url
    except EndpointUnknownError:
        nats_url = ""
    try:
        events = asyncio.run(_read(nats_url, folder))
    except (NothingRecordedError, FolderInUseError, BusError, TimeoutError) as error:
        raise click.ClickException(str(error) or f"the log of {folder} does not answer") from error
    report = verify(
        events,
        definitions(RECOMPUTED),
        first=first,
        last=last,
        complete_from_start=bool(events) and events[0].sequence == 1,
    )
    if events and first and first < events[0].sequence:
        begins = f"LOG:{events[0].sequence}"
        click.echo(f"Warning: {first} is older than what HISTORY keeps, which begins at {begins}", err=True)
    click.echo(as_json(report) if output == "json" else "\n".join(report_lines(report)))
    if not report.ok:
        raise click.exceptions.Exit(1)


async def _read(nats_url: str, folder: Path) -> list[Event]:
    async with opened(nats_url, folder) as log:
        return await history(log)


def report_lines(report: Report) -> list[str]:
    """The report for a reader."""
    lines = [
        f"{report.events} events read, {report.holes} missing; {report.commits} commits of recomputed services",
        f"{report.verified} commits verified ({report.decisions} decisions compared), {report.differing} differ",
    ]
    lines += [f"  {count:6d}  {service}" for service, count in report.by_service.items()]
    lines += [f"not comparable: {count} commits: {reason}" for reason, count in report.not_comparable.items()]
    difference = report.first_difference
    if difference is not None:
        lines += [
            f"first difference: {difference.service}, commit {difference.commit}, event {difference.index}, {difference.field}",
            f"  recorded    {difference.recorded[:SHOWN]}",
            f"  recomputed  {difference.recomputed[:SHOWN]}",
        ]
    if not report.verified:
        lines.append("nothing could be compared")
    return lines


def as_json(report: Report) -> str:
    """The report for programs."""
    difference = report.first_difference
    return json.dumps(
        {
            "events": report.events,
            "holes": report.holes,
            "commits": report.commits,
            "verified": report.verified,
            "decisions": report.decisions,
            "differing": report.differing,
            "notComparable": report.not_comparable,
            "byService": report.by_service,
            "firstDifference": None
            if difference is None
            else {
                "service": difference.service,
                "commit": difference.commit,
                "index": difference.index,
                "field": difference.field,
                "recorded": difference.recorded,
                "recomputed": difference.recomputed,
            },
        },
        indent=2,
    )

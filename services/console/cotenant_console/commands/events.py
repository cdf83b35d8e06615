"""`cotenant events`: what happened, in words, with its position on the log.

In: the gateway's lines (stream, sequence, time, sentence, causes, trace id). Out: one line an event, or the lines as JSON.
Without `-f` the last events of LOG; with `-f` also executors' actions (EXECUTION) as they happen. Commits and metrics are
left out unless `--all` is given: they are many and concern no object. A commit by which a replica takes over is shown.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator

import click

from cotenant_console.api.client import Client, Document, list_at, text_at
from cotenant_console.api.connection import with_client

PATH = "/apis/cotenant.io/v1/events"
STATUS_PATH = "/apis/cotenant.io/v1/status"
BACKGROUND = ("cotenant.commit.v1", "cotenant.nodemetric.v1", "cotenant.usage.v1")
SHOWN = 100


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Print new events as they happen, until interrupted.")
@click.option("--for", "about", default="", metavar="KIND/NAME", help="Only events about this object.")
@click.option("-n", "--namespace", default="", help="Only objects of this namespace (with --for).")
@click.option("--since", type=click.IntRange(0), default=None, metavar="SEQ", help="From this sequence of LOG on.")
@click.option("--all", "everything", is_flag=True, help="Commit records and metrics too.")
@click.option("-o", "--output", type=click.Choice(["wide", "json"]), help="With causes and traces, or as JSON lines.")
@with_client
def command(
    client: Client, follow: bool, about: str, namespace: str, since: int | None, everything: bool, output: str | None
) -> None:
    """Show what happened, in words; follow with -f."""
    if about and "/" not in about:
        raise click.UsageError("--for: expected KIND/NAME, such as pod/web")
    client.warn = lambda warning: click.echo(f"Warning: {warning}", err=True)
    query = {"for": about, "namespace": namespace, "follow": "1" if follow else ""}
    if since is not None:
        query["since"] = str(since)
    elif follow:
        last = int(text_at(client.get(STATUS_PATH), "log", "lastSequence", default="0"))
        query["since"] = str(max(0, last - SHOWN)) if not about else "0"
    found = (line for line in read_lines(client, query) if everything or not _is_background(line))
    for line in found if follow or since is not None else deque(found, maxlen=SHOWN):
        click.echo(json.dumps(line) if output == "json" else event_line(line, output == "wide"))


def _is_background(line: Document) -> bool:
    takes_over = text_at(line, "figures", "events") == "0"
    return line.get("type") in BACKGROUND and not takes_over


def read_lines(client: Client, query: dict[str, str]) -> Iterator[Document]:
    """The gateway's lines."""
    for raw in client.stream(PATH, {key: value for key, value in query.items() if value}, accept="*/*"):
        if raw.strip():
            yield json.loads(raw)


def event_line(line: Document, wide: bool) -> str:
    """One event: time of day, place, sentence; in the wide form its causes and its trace too."""
    place = f"{text_at(line, 'stream')}:{text_at(line, 'sequence')}"
    causes = " ".join(str(cause) for cause in list_at(line, "causes"))
    behind = f"  <- {causes}" if wide and causes else ""
    if wide and (trace := text_at(line, "traceId")):
        behind += f"  trace={trace}"
    return f"{text_at(line, 'time')[11:23]:<12}  {place:<16} {text_at(line, 'sentence')}{behind}"

"""`cotenant get deadletters`: messages that a service could not decode, fold or decide on.

In: the gateway's list. Out: one row a letter, the oldest first; as JSON, YAML or names. `STATE` says whether it still matters:
`Held` until its subject has a newer message. With `-w`, new ones are printed as they arrive.
"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from cotenant.api.ages import age
from cotenant_console.api.client import Client, Document, list_at, text_at
from cotenant_console.commands.events import STATUS_PATH, read_lines
from cotenant_console.rendering import rendered
from cotenant_console.tables import Table

PATH = "/apis/cotenant.io/v1/deadletters"
NAMES = frozenset({"deadletters", "deadletter"})
TYPE = "cotenant.deadletter.v1"
HEADINGS = ("SERVICE", "MESSAGE", "SUBJECT", "STATE", "AGE", "REASON")
REASON_SHOWN = 80


def show(client: Client, names: tuple[str, ...], output: str | None, *, watch: bool, headings: bool) -> None:
    """Print the dead letters, or those with these names; with `watch`, follow."""
    listed = client.get(PATH)
    items = [item for item in list_at(listed, "items") if not names or text_at(item, "metadata", "name") in names]
    missing = sorted(set(names) - {text_at(item, "metadata", "name") for item in items})
    if missing:
        raise click.ClickException(f'deadletters "{missing[0]}" not found')
    now = datetime.now(UTC)
    table = Table(headings_of(output))
    if output in ("json", "yaml"):
        document: Document = {**listed, "items": items}
        click.echo(rendered(document, output), nl=False)
    elif output == "name":
        for item in items:
            click.echo(f"deadletters.cotenant.io/{text_at(item, 'metadata', 'name')}")
    else:
        table.rows = [row_of(item, now, wide=output == "wide") for item in items]
        if table.rows:
            click.echo("\n".join(table.lines(headings)))
        elif not watch:
            click.echo("No resources found", err=True)
    total = int(text_at(listed, "total", default="0"))
    if total > len(list_at(listed, "items")):
        click.echo(f"the newest {len(list_at(listed, 'items'))} of {total}: cotenant events shows the rest", err=True)
    if watch:
        _follow(client)


def headings_of(output: str | None) -> tuple[str, ...]:
    """Return the headings: the wide form has the name, and the message's beginning."""
    return ("NAME", *HEADINGS, "CONTENT") if output == "wide" else HEADINGS


def row_of(item: object, now: datetime, *, wide: bool) -> tuple[str, ...]:
    """Return a letter's cells."""
    letter: Document = item if isinstance(item, dict) else {}
    reason = text_at(letter, "reason")
    cells = (
        text_at(letter, "service") or "<none>",
        f"{text_at(letter, 'stream')}:{text_at(letter, 'sequence')}",
        text_at(letter, "subject"),
        text_at(letter, "state"),
        age(text_at(letter, "metadata", "creationTimestamp"), now),
        reason if wide or len(reason) <= REASON_SHOWN else reason[: REASON_SHOWN - 3] + "...",
    )
    return (text_at(letter, "metadata", "name"), *cells, text_at(letter, "message")[:REASON_SHOWN]) if wide else cells


def _follow(client: Client) -> None:
    """Print a sentence for each new letter."""
    last = text_at(client.get(STATUS_PATH), "log", "lastSequence", default="0")
    for line in read_lines(client, {"follow": "1", "since": last}):
        if line.get("type") == TYPE:
            click.echo(f"{text_at(line, 'time')[11:23]}  {text_at(line, 'sentence')}")

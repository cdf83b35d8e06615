"""`cotenant load`: raise or lower the load of the demonstration's service by hand.

In: requests a second, `auto` for the daily curve, or nothing to ask. Out: one line with the rate and the latencies
of the last ten seconds as the clients see them.
"""

from __future__ import annotations

import http.client
import json

import click

from cotenant_console.api.client import Document, text_at
from cotenant_console.api.endpoint import data_folder

DEMO_FILE = "demo.json"


@click.command("load")
@click.argument("rate", required=False, metavar="[RATE|auto]")
@click.option("--data", metavar="DIR", help="The data folder of the `cotenant up --demo` to talk to (or COTENANT_DATA).")
def command(rate: str | None, data: str | None) -> None:
    """Set or show the load of the demonstration's service, in requests a second."""
    folder = data_folder(data)
    try:
        address = str(json.loads((folder / DEMO_FILE).read_text())["control"])
    except (OSError, ValueError, KeyError) as error:
        raise click.ClickException(f"no demonstration runs on {folder}: start one with `cotenant up --demo`") from error
    report = exchange(address, rate)
    how = "fixed" if report.get("fixed_rate") is not None else "by the daily curve"
    click.echo(
        f"{float(text_at(report, 'rate', default='0')):.1f} requests/s ({how}), "
        f"p50 {shown(report, 'p50_ms')}, p99 {shown(report, 'p99_ms')} over the last 10 s"
    )


def exchange(address: str, rate: str | None) -> Document:
    """Query the load generator, or set its rate."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        if rate is None:
            connection.request("GET", "/")
        else:
            connection.request("PUT", "/rate", body=json.dumps(None if rate == "auto" else _number(rate)))
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise click.ClickException(f"the load generator at {address} does not answer: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise click.ClickException(text_at(answer, "message", default=f"the load generator answered {response.status}"))
    return answer if isinstance(answer, dict) else {}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is neither a number of requests a second nor auto") from None


def shown(report: Document, key: str) -> str:
    """A latency of the report, or a dash."""
    found = report.get(key)
    return f"{found:.1f} ms" if isinstance(found, int | float) else "-"

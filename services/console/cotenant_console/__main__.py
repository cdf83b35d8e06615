"""The `cotenant` command.

In: the command line. Out: what the called command prints, and its exit status (0 done, 1 refused or failed, 2 wrong
usage). The table below is all that `--help` needs.
"""

from __future__ import annotations

import os
import sys

import click

from cotenant_console.lazy_group import LazyGroup

VERIFICATION = "cotenant_verification"
"""The package of benchmarks and chaos runs, imported by name only when one is run."""

COMMANDS: dict[str, tuple[str, str]] = {
    "admin": ("cotenant_console.commands.admin.command", "Operations that need an administrator's decision."),
    "apply": ("cotenant_console.commands.apply", "Create or change objects from manifests."),
    "bench": (f"{VERIFICATION}.bench.command", "Measure the scheduler on this machine, and check its decisions."),
    "delete": ("cotenant_console.commands.delete", "Delete objects by name, by label or by manifest."),
    "describe": ("cotenant_console.commands.describe", "Show one object in detail, with its events."),
    "events": ("cotenant_console.commands.events", "Show what happened, in words; follow with -f."),
    "explain": ("cotenant_console.commands.explain", "Walk from a decision back to the samples that caused it."),
    "get": ("cotenant_console.commands.get", "List objects as a table, JSON, YAML or names."),
    "load": ("cotenant_console.commands.load", "Set or show the load of the demonstration's service."),
    "logs": ("cotenant_console.commands.logs", "Print a pod's output."),
    "replay": ("cotenant_console.commands.replay", "Recompute recorded decisions and compare them."),
    "run": ("cotenant_console.commands.run", "Run one service in the foreground."),
    "simulate": ("cotenant_console.commands.simulate", "Run the same cores under a virtual clock, offline."),
    "top": ("cotenant_console.commands.top", "Show usage of nodes or pods."),
    "up": ("cotenant_console.commands.up", "Start everything on this machine."),
    "version": ("cotenant_console.commands.version", "Print the versions of the command and of the server."),
}


@click.group(cls=LazyGroup, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Run latency-sensitive services and batch jobs on the same machines."""


def main() -> None:
    """Run the command line; a closed pipe (`cotenant get pods | head`) ends quietly, as with other Unix commands."""
    try:
        cli(prog_name="cotenant")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()

"""The terminal of `cotenant up`: a live screen where there is one, plain lines where there is none.

In: a `DisplayState` a second. Out: on a terminal one screen, redrawn; else a status line every five seconds, and every event
and every crash as it comes.
"""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from cotenant_console.up.view import DisplayState, address_lines, event_lines, plain_line, status_lines

PLAIN_EVERY_SECONDS = 5.0


class Screen:
    """Shows views. A context manager, so that the terminal is always restored."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = (
            Live(console=self._console, auto_refresh=False, screen=False, transient=True)
            if self._console.is_terminal
            else None
        )
        self._last_plain = float("-inf")
        self._last_line: str = ""
        self._crashes = 0
        """How many are shown."""

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal that can be redrawn."""
        return self._live is not None

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._live is not None:
            self._console.print(Text(text))
        else:
            print(text, flush=True)

    def show(self, view: DisplayState) -> None:
        """Show the view of one moment."""
        if self._live is None:
            self._show_plain(view)
            return
        rows = self._console.size.height - len(status_lines(view)) - 9
        parts: list[Panel | Text] = [
            Panel(lines_of(status_lines(view)), title=f"cotenant on {view.node}", title_align="left"),
            Panel(lines_of(event_lines(view, max(3, rows))), title="events", title_align="left"),
            lines_of(address_lines(view)),
        ]
        self._live.update(Group(*parts), refresh=True)

    def _show_plain(self, view: DisplayState) -> None:
        shown = event_lines(view, len(view.lines))
        fresh = shown[shown.index(self._last_line) + 1 :] if self._last_line in shown else shown
        for line in fresh:
            print(line)
        self._last_line = shown[-1] if shown else ""
        for crash in view.crashes[len(view.crashes) - min(view.restarts - self._crashes, len(view.crashes)) :]:
            print(f"crash  {crash}")
        self._crashes = view.restarts
        if view.elapsed - self._last_plain >= PLAIN_EVERY_SECONDS:
            self._last_plain = view.elapsed
            print(plain_line(view))
        sys.stdout.flush()


def lines_of(lines: list[str]) -> Text:
    """Lines as one text that is cut at the terminal's edge and read literally."""
    return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")

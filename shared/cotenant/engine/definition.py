"""What a deciding service is: its name, what it folds, its configuration and how its core is made.

The service's process, the simulator and replay start from the same Definition, so they run the same core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from cotenant.engine.core import Core
from cotenant.events.envelope import Event, PayloadView

GATHERED = timedelta(milliseconds=500)
"""How long services whose decisions are not urgent gather messages (`ServiceDefinition.gather`)."""


class Gauge(msgspec.Struct, frozen=True):
    """A metric of a core: `read` returns its values as of the last decision, each with its labels.

    `read` may be called from another thread than the core's: it changes nothing, and the number of its values has a bound.
    `counts`: it only grows, from 0 at each load on; its name is shown with `_total`.
    """

    name: str
    description: str
    read: Callable[[Any], Iterable[tuple[float, dict[str, str]]]]
    counts: bool = False


class Question(msgspec.Struct, frozen=True):
    """A question that a core answers from its state without changing it: a micro endpoint `cotenant.<service>.<name>`.

    `answer` takes the core, the time and the request. It yields None, at least every few milliseconds, to let the
    service do other work, and finally the answer. One question of a name is answered at a time.
    """

    name: str
    answer: Callable[[Any, datetime, bytes], Iterator[bytes | None]]


class ServiceDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A deciding service. `filters` select on LOG what it folds, its own subjects included; `usage_filters` on USAGE.

    `views` are partial decodings that its core accepts in place of payloads; it accepts the payloads too.
    `pace` and `urgent` avoid small batches, which are most of the log's cost: within `pace` of its last batch the service
    stores only batches that hold an urgent event (none, where `urgent` is None), unless that batch was a full one. Decisions
    held back are made again when due, or stored with an urgent event.
    `gather` is for services whose decisions are not urgent: while messages follow one another they are delivered together,
    once in this time; after a pause of that length the next one comes at once. A delivery costs the server and the
    service more than the message. `hurried` selects what is not gathered: while messages are published there (the service needs
    the right to subscribe to it), everything is delivered at once. The simulator does not gather: a commit record states what
    was folded, whenever it was read.
    `gauges` are shown with the process' metrics.
    `questions` are answered by the process, while it has a core that has loaded.
    `traced`: prefixes of the subjects of first causes, whose traces its events continue.
    `recomputed` is False for measuring services: their input is not on LOG, so `replay --verify` leaves them out.
    """

    name: str
    core_version: str
    filters: tuple[str, ...]
    config_type: type[msgspec.Struct]
    make_core: Callable[[Any], Core]
    usage_filters: tuple[str, ...] = ()
    views: tuple[type[PayloadView], ...] = ()
    pace: timedelta = timedelta(0)
    urgent: Callable[[Event], bool] | None = None
    gather: timedelta = timedelta(0)
    hurried: tuple[str, ...] = ()
    recomputed: bool = True
    traced: tuple[str, ...] = ("",)
    gauges: tuple[Gauge, ...] = ()
    questions: tuple[Question, ...] = ()
    summary: str = ""

    def config_from(self, text: str | bytes) -> msgspec.Struct:
        """Return the configuration that a start marker's text or a file's JSON describes. Raises msgspec.ValidationError."""
        config: msgspec.Struct = msgspec.json.decode(text or b"{}", type=self.config_type)
        return config

    def config_text(self, config: msgspec.Struct) -> str:
        """Return the text that the start marker carries: equal configurations give equal texts."""
        return msgspec.json.encode(config, order="sorted").decode()

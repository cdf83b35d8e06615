"""Commit records and start markers of deciding services, and the identity of LOG."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Event, Payload
from cotenant.model.bounds import Count
from cotenant.model.subjects import tokens


class Commit(Payload, frozen=True, kw_only=True):
    """First message of every batch, or the `commit` of the only event that was decided: then one message is the commit.

    A record that is a message of its own fences: it expects the previous one as the last message of its subject. So does a
    commit of one message. A replica that did not store the last record stores one with `count` 0 before it decides: it takes
    over, and whatever the replica before it still has on its way is refused.

    `prior`: sequence of the service's previous commit (of its record), 0 for the first. `folded`: sequence of the last foreign
    message that was folded. The state decided on is: foreign messages up to `folded` plus own messages up to the end of
    `prior`'s commit. `count`: messages behind this one that belong to the commit. `config`: digest of the start marker's text.
    `core`: version of the core's rules. `took_us`: microseconds that `decide` took (0 where time is virtual). `behind`: the
    reader was so far behind that messages up to `folded` may have been removed by later ones before they were delivered.
    `passing`: how many of the batch's last messages HISTORY does not copy (`predictions.<node>`).
    """
    TYPE = "cotenant.commit.v1"

    prior: Count
    folded: Count
    now: datetime
    count: Count
    config: str = ""
    core: str = ""
    replica: str = ""
    took_us: Count = 0
    behind: bool = False
    passing: Count = 0


SOURCE_PARTS = len(("", "cell", "service", "partition"))


def record_of(event: Event) -> Commit | None:
    """Return the commit record that an event is, or carries."""
    record = event.data if event.commit is None else event.commit
    return record if isinstance(record, Commit) else None


def decider_of(event: Event) -> str:
    """Return the service that stored a commit record, or an event that carries one: its source is
    `/<cell>/<service>/<partition>`. Empty where it is none of a service."""
    if isinstance(event.data, Commit):
        return tokens(event.subject)[1]
    parts = event.source.split("/")
    return parts[2] if len(parts) == SOURCE_PARTS else ""


class ServiceStarted(Payload, frozen=True, kw_only=True):
    """Start marker of a replica: stored after its consumer was created, inside its filters.

    Its delivery means that everything before it has been folded. `config_text` is the text whose digest the commits carry: the
    flags, plugins and weights that decisions depend on, as JSON.
    """
    TYPE = "cotenant.service.started.v1"

    service: str
    partition: str = "0"
    replica: str = ""
    version: str = ""
    core: str = ""
    config: str = ""
    config_text: str = ""
    filters: tuple[str, ...] = ()
    load: Count = 0


class CommitRefused(Payload, frozen=True, kw_only=True):
    """Subject `execution._.commits` (stream EXECUTION): a replica lost a race, its batch was refused and it refolds."""

    TYPE = "cotenant.commit.refused.v1"

    service: str
    partition: str = "0"
    replica: str = ""
    expected: Count = 0
    events: Count = 0
    reason: str = ""


class LogDeclared(Payload, frozen=True, kw_only=True):
    """Subject `services.streams.log`: the identity of LOG. `created`: when its server created it, as the server writes it. A
    LOG that was set up again has another; one that was restored from a backup gets another by `cotenant admin streams`."""

    TYPE = "cotenant.log.declared.v1"

    created: str

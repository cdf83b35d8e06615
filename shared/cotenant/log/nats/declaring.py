"""Declares the four streams on a server, for `cotenant admin streams`; services check them.

In: an operator's settings of each stream (`StreamSettings`). Out: the streams, the identity of LOG (`LogDeclared`), and
the changes, a line each. Streams are never made smaller: a larger size, more replicas or a longer age stay, and a line
states it; so do fewer versions of a subject and a size beyond the bound, which make room on a full LOG
(`cotenant.log.contract.Bounded`).

Services neither create nor change streams: their credentials do not allow it. They wait for missing streams
(`StreamsMissingError`) until an administrator declares them. A stream without a setting that services rely on cannot be used
(`StreamUnfitError`).

Bounds: DECLARE_SECONDS of tries for each stream.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from cotenant.log.contract import EXECUTION, HISTORY, LOG, USAGE
from cotenant.log.nats.access import NODES_API
from cotenant.log.nats.confined import identity
from cotenant.log.nats.jetstream import (
    API_ERRORS,
    NO_SPACE_TEXT,
    NO_STORAGE,
    BusError,
    JetStream,
    JetStreamError,
    NoStreamError,
    PassingError,
    StreamInfo,
)
from cotenant.log.nats.streams import StreamSizes, stream_configs
from cotenant.log.nats.wire import BusClient

logger = logging.getLogger(__name__)

COMMAND = "`cotenant admin streams`"
_PROMISES = ("discard", "allow_atomic", "allow_msg_ttl", "allow_rollup_hdrs", "allow_direct", "republish", "storage")

DECLARE_SECONDS = 60.0
"""A cluster that has just started elects its leaders in some seconds, and servers may start a while apart."""
ANSWER_SECONDS = 1.0
"""Until there is a leader there is no answer."""
MIN_LOG_BYTES = 64 << 20
"""The least that LOG is declared with on a server that has not the storage for more."""
FIRST_BYTES = 16 << 20
"""The bound that LOG is created with. By it nats-server decides, until it is restarted, on the size of the files that LOG is
stored in: 4 MiB, instead of 8 with a bound of 32 MiB or more. After each garbage collection the server reads the last of them
again for the next message, and an older one for each message that a tombstone removes."""
_NAME_IN_USE = 10058
_GROWING = ("max_bytes", "max_age", "num_replicas", "max_msgs_per_subject", "max_consumers")
"""Limits that are never reduced; negative or 0: none."""
_SETTLED = ("persist_mode", "storage", "sources")
"""Settings that are fixed at a stream's creation. A stream whose source is changed copies everything once more."""


class StreamPlacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """On which servers a stream may be."""

    cluster: str = ""
    tags: tuple[str, ...] = ()


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's settings of a stream; None: the default."""

    replicas: int | None = None
    max_bytes: int | None = None
    max_age_seconds: int | None = None
    placement: StreamPlacement | None = None


def wanted_of(replicas: int = 0, sizes: StreamSizes | None = None) -> dict[str, StreamSettings]:
    """Return the settings of each stream for a number of replicas (0: the present one) and sizes. HISTORY has one replica."""
    found = {name: StreamSettings(replicas=replicas or None) for name in (LOG, USAGE, EXECUTION)}
    if sizes is None:
        return found
    return {
        LOG: msgspec.structs.replace(found[LOG], max_bytes=sizes.log),
        HISTORY: StreamSettings(max_bytes=sizes.history),
        USAGE: found[USAGE],
        EXECUTION: msgspec.structs.replace(found[EXECUTION], max_bytes=sizes.execution),
    }


def configurations(wanted: Mapping[str, StreamSettings]) -> list[dict[str, Any]]:
    """Return the configuration of each stream, in the order in which they must exist."""
    found = []
    for config in stream_configs():
        settings = wanted.get(config["name"], StreamSettings())
        if settings.replicas is None:
            # One if it is created, the present number if it exists.
            del config["num_replicas"]
        else:
            config["num_replicas"] = settings.replicas
            if settings.replicas > 1:
                # The server refuses asynchronous persistence on replicated streams.
                config.pop("persist_mode", None)
        if settings.max_bytes is not None:
            config["max_bytes"] = settings.max_bytes
        if settings.max_age_seconds is not None:
            config["max_age"] = settings.max_age_seconds * 1_000_000_000
        if settings.placement is not None:
            config["placement"] = msgspec.to_builtins(settings.placement)
        found.append(config)
    return found


async def declare(api: JetStream, wanted: Mapping[str, StreamSettings], *, dry_run: bool = False) -> list[str]:
    """Create missing streams, and update the others; returns a line for each difference. With
    `dry_run` nothing is changed. Raises BusError."""
    lines: list[str] = []
    for config in configurations(wanted):
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((PassingError, *API_ERRORS)),
            wait=wait_exponential_jitter(multiplier=0.1, max=2.0),
            stop=stop_after_delay(DECLARE_SECONDS),
            reraise=True,
        ):
            with attempt:
                lines += await _declare(api, config, dry_run)
    return lines


async def _declare(api: JetStream, config: dict[str, Any], dry_run: bool) -> list[str]:
    name = config["name"]
    try:
        info = await api.info(name, ANSWER_SECONDS)
    except NoStreamError:
        if dry_run:
            return [f"+ {name}: {_described(config)}"]
        error = await _create(api, config)
        if error is None:
            return [f"+ {name}: {_described(config)}"]
        if error.err_code != _NAME_IN_USE:
            raise error.as_exception(f"stream {name} cannot be declared") from None
        info = await api.info(name)
    return await _update(api, config, info, dry_run)


async def _create(api: JetStream, config: dict[str, Any]) -> JetStreamError | None:
    """Create a stream. LOG gets its bound after its creation: see FIRST_BYTES."""
    if config["name"] != LOG or config["max_bytes"] <= FIRST_BYTES:
        return await api.create_stream(config)
    error = await api.create_stream({**config, "max_bytes": FIRST_BYTES})
    return error if error is not None else await _bound(api, config)


async def _bound(api: JetStream, config: dict[str, Any]) -> JetStreamError | None:
    """Update LOG, with a smaller bound where there is no storage for the declared one."""
    error = await api.update_stream(config)
    while _is_no_storage(error) and config["max_bytes"] > MIN_LOG_BYTES:
        config["max_bytes"] //= 2
        error = await api.update_stream(config)
    return error


async def _update(api: JetStream, config: dict[str, Any], info: StreamInfo, dry_run: bool) -> list[str]:
    name, found = config["name"], info.config
    changes: dict[str, Any] = {}
    before: dict[str, Any] = {}
    stay: list[str] = []
    for key, value in config.items():
        there = info.bound or found.get(key) if key == "max_bytes" and not info.enforced else found.get(key)
        if there == value or key in _SETTLED:
            continue
        if key in _GROWING and _stays(name, key, there, value):
            stay.append(f"= {name}: {key} stays {_shown(key, there)}, not {_shown(key, value)}")
        else:
            changes[key], before[key] = value, there
    asked = {**found, **changes}
    if changes and not dry_run:
        # A declaration that was cut off left LOG with the bound of its creation.
        cut_off = name == LOG and 0 < before.get("max_bytes", 0) <= FIRST_BYTES
        error = await (_bound(api, asked) if cut_off else api.update_stream(asked))
        if error is not None and (_is_no_storage(error) or NO_SPACE_TEXT in error.description):
            # Nothing may fail to start because a disk is full.
            return [*stay, f"! {name} keeps its limits: {error.description}"]
        if error is not None:
            raise error.as_exception(f"stream {name} cannot be declared ({', '.join(changes)})")
    return [*stay, *(f"~ {name}: {key} {_shown(key, was)} -> {_shown(key, asked[key])}" for key, was in before.items())]


def _stays(name: str, key: str, there: Any, value: Any) -> bool:
    """Return whether the server has more than declared, or a setting that the gateway changed to make room."""
    if not isinstance(there, int) or there <= 0:
        # No bound is more than any; of consumers, it is nats-server's own.
        return key not in ("num_replicas", "max_consumers")
    if key == "max_msgs_per_subject" and name == LOG:
        return True
    return bool(0 < value < there)


def _described(config: Mapping[str, Any]) -> str:
    words = [f"{key} {_shown(key, config[key])}" for key in _GROWING if key in config and key != "max_consumers"]
    return ", ".join([*words, *([f"placement {config['placement']}"] if "placement" in config else [])])


def _shown(key: str, value: Any) -> str:
    if key == "max_bytes" and isinstance(value, int) and value > 0:
        return f"{value / (1 << 20):g} MiB"
    if key == "max_age" and isinstance(value, int) and value > 0:
        return f"{value // 1_000_000_000} s"
    return "none" if value in (None, 0, -1) else str(value)


def _is_no_storage(error: JetStreamError | None) -> bool:
    return error is not None and error.err_code == NO_STORAGE


def log_changes(lines: Sequence[str]) -> None:
    """Log a declaration's changes, and settings that it left."""
    for line in lines:
        logger.log(logging.WARNING if line[:1] in "=!" else logging.INFO, "streams: %s", line)


class StreamsMissingError(BusError):
    """Streams are missing; the text names them, and the command that creates them."""


class StreamUnfitError(BusError):
    """A stream lacks what services rely on."""


async def check_streams(client: BusClient) -> None:
    """Raises StreamsMissingError, StreamUnfitError, and the errors of the server's API."""
    if client.api == NODES_API:
        # A node can only see that LOG exists.
        await identity(client)
        return
    api, missing = JetStream(client), []
    for config in stream_configs():
        name = config["name"]
        try:
            found = (await api.info(name)).config
        except NoStreamError:
            missing.append(name)
            continue
        _check(name, config, found)
    if missing:
        raise StreamsMissingError(f"the server has no stream {', '.join(missing)}: {COMMAND} declares them")


def _check(name: str, config: dict[str, Any], found: dict[str, Any]) -> None:
    wrong = [key for key in _PROMISES if key in config and _with_defaults(key, found.get(key)) != config[key]]
    if not set(config.get("subjects", ())) <= set(found.get("subjects") or ()):
        wrong.append("subjects")
    if wrong:
        settings = ", ".join(f"{key} is {found.get(key)!r} and must be {config.get(key)!r}" for key in wrong)
        raise StreamUnfitError(f"stream {name}: {settings}; {COMMAND} sets it")


def _with_defaults(key: str, value: Any) -> Any:
    """Leaving `headers_only` out equals false."""
    if key == "republish" and isinstance(value, dict):
        return {name: part for name, part in value.items() if name != "headers_only" or part}
    return value

"""Declares the four streams on a server: creates those that are missing, brings the limits of the others up to date.

In: the server's API, sizes, a number of replicas. Out: the streams, and the bound of LOG. Every service may run it at once.

Bounds: DECLARE_SECONDS of tries for each stream.
"""

from __future__ import annotations

import logging
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from cotenant.log.contract import EXTENSIONS, LOG, extension_bytes
from cotenant.log.nats.jetstream import (
    API_ERRORS,
    NO_SPACE_TEXT,
    NO_STORAGE,
    ApiError,
    JetStream,
    NoStreamError,
    PassingError,
    StreamInfo,
    StreamLimits,
)
from cotenant.log.nats.streams import StreamSizes, stream_configs

logger = logging.getLogger(__name__)

DECLARE_SECONDS = 60.0
"""A cluster that has just started elects its leaders in some seconds, and servers may start a while apart."""
ANSWER_SECONDS = 1.0
"""While there is no leader yet nobody answers."""
MIN_LOG_BYTES = 64 << 20
"""The least that LOG is declared with on a server that has not the storage for more."""
_NAME_IN_USE = 10058


async def declare(api: JetStream, *, replicas: int, sizes: StreamSizes) -> int:
    """Create the four streams, or bring their limits up to date; returns the bound of LOG in bytes. Safe to call from every
    service at once.

    `replicas` 0: as many as a stream has, one where it is created. A stream that is there keeps its number of replicas:
    with another one asked for, a warning says so. Where the server has less storage than `sizes` asks for, LOG is created
    with a half, a quarter, ... of it. What was changed to make room on a full LOG stays, and a stream that the server has
    no room to change keeps its limits: a service must come back on a full disk. Raises BusError.
    """
    bound = 0
    for config in stream_configs(replicas=max(replicas, 1), sizes=sizes):
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((PassingError, *API_ERRORS)),
            wait=wait_exponential_jitter(multiplier=0.1, max=2.0),
            stop=stop_after_delay(DECLARE_SECONDS),
            reraise=True,
        ):
            with attempt:
                limit = await _declare(api, config, replicas)
        if config["name"] == LOG:
            bound = max(limit, 0)
    return bound


async def _declare(api: JetStream, config: dict[str, Any], replicas: int) -> int:
    """Create a stream, or update it; returns its bound in bytes as declared, extensions left out; negative: none."""
    name = config["name"]
    try:
        info = await api.info(name, ANSWER_SECONDS)
    except NoStreamError:
        error = await _create(api, config)
        if error is None:
            return int(config.get("max_bytes", -1))
        if error.err_code != _NAME_IN_USE:
            raise error.as_exception(f"stream {name} cannot be declared") from None
        info = await api.info(name)
    return await _update(api, config, info, replicas)


async def _create(api: JetStream, config: dict[str, Any]) -> ApiError | None:
    error = await api.create_stream(config)
    while config["name"] == LOG and _is_no_storage(error) and config["max_bytes"] > MIN_LOG_BYTES:
        config["max_bytes"] //= 2
        error = await api.create_stream(config)
    return error


async def _update(api: JetStream, config: dict[str, Any], info: StreamInfo, replicas: int) -> int:
    name, found, limits = config["name"], info.config, info.limits
    # How a stream is replicated and persisted was settled when it was created.
    kept = {key: found[key] for key in ("num_replicas", "persist_mode") if key in found}
    wanted = {key: value for key, value in config.items() if key != "persist_mode"} | kept
    if name == LOG:
        wanted |= _kept(limits, config)
    if replicas and kept.get("num_replicas", 1) != config["num_replicas"]:
        logger.warning(
            "stream %s has %d replicas, not %d: it keeps them; `nats stream edit %s --replicas %d` changes that",
            name,
            kept.get("num_replicas", 1),
            config["num_replicas"],
            name,
            config["num_replicas"],
        )
    if any(found.get(key) != value for key, value in wanted.items()):
        error = await api.update_stream(wanted)
        if error is not None and (_is_no_storage(error) or NO_SPACE_TEXT in error.description):
            logger.warning("stream %s keeps its limits: %s", name, error.description)
            return limits.max_bytes
        if error is not None:
            raise error.as_exception(f"stream {name} cannot be declared")
    return int(config.get("max_bytes", -1))


def _is_no_storage(error: ApiError | None) -> bool:
    return error is not None and error.err_code == NO_STORAGE


def _kept(there: StreamLimits, config: dict[str, Any]) -> dict[str, int]:
    """Return the limits of LOG that were changed to make room on it: `cotenant.log.contract.Bounded`."""
    kept = {}
    if 0 < there.max_msgs_per_subject < config["max_msgs_per_subject"]:
        kept["max_msgs_per_subject"] = there.max_msgs_per_subject
    bound = config["max_bytes"]
    if bound < there.max_bytes <= bound + EXTENSIONS * extension_bytes(bound):
        kept["max_bytes"] = there.max_bytes
    return kept

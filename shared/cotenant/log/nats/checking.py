"""Checks that the streams exist, and have the settings that services rely on.

In: the server's API. Out: nothing, or the problem and its fix. Services neither create nor change streams: their credentials do
not allow it. They wait for missing streams (`StreamsMissingError`) until an administrator runs `cotenant admin streams`. A
stream without a required setting cannot be used (`StreamUnfitError`).
"""

from __future__ import annotations

from typing import Any

from cotenant.log.nats.access import NODES_API
from cotenant.log.nats.confined import identity
from cotenant.log.nats.jetstream import BusError, JetStream, NoStreamError
from cotenant.log.nats.streams import stream_configs
from cotenant.log.nats.wire import BusClient

COMMAND = "`cotenant admin streams`"
_PROMISES = ("discard", "allow_atomic", "allow_msg_ttl", "allow_rollup_hdrs", "allow_direct", "republish", "storage")


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

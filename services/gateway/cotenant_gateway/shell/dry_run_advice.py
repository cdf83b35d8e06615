"""The warnings of a dry run (`kubectl apply --dry-run=server`), beside the resulting object.

In: the plan of the write. Out: texts for `Warning` headers. Of the ConfigMap `slo-controller-config`
batch-resource-calculator computes the effect; for a ClusterColocationProfile existing pods are counted.
Neither can make the request fail: without an answer within ANSWER_SECONDS the warning says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from cotenant.events.requests import CONFIG_DRY_RUN, ConfigEffect
from cotenant.kinds.config_maps import CONFIG_MAPS, decode_config_map
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.runtime.follower import LOG_ERRORS
from cotenant_gateway.admission.node_configuration.rules import is_node_configuration
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.present_pods import ProfileTally, in_words, proposed_profile, tally_pods
from cotenant_gateway.read_model.core import GatewayCore

ANSWER_SECONDS = 2.0
PODS_AT_ONCE = 50
"""Pods counted before other requests are served."""
MAX_CHANGES = 16
MAX_REJECTED = 16
_UNKNOWN = "what this would change is unknown"
_SERVICE = "batch-resource-calculator"

Ask = Callable[[str, bytes, float], Awaitable[tuple[bytes, int, str]]]
"""Sends a request to a subject and waits this many seconds; returns the answer, and the code and text of a refusal (0 if none).
Raises TimeoutError."""


class DryRunAdvice:
    """Predicts the effect of a write."""

    def __init__(self, core: Callable[[], GatewayCore], ask: Ask) -> None:
        self._core = core
        self._ask = ask

    async def __call__(self, planned: Planned) -> Sequence[str]:
        """Return the warnings of a write; none where it changes nothing."""
        kind = planned.address.kind
        if planned.plan is None:
            return ()
        if kind is PROFILES:
            return await self._of_profile(planned)
        if kind is CONFIG_MAPS:
            return await self._of_configuration(planned)
        return ()

    async def _of_profile(self, planned: Planned) -> Sequence[str]:
        profile, tally = proposed_profile(planned), ProfileTally()
        for count, _ in enumerate(tally_pods(self._core(), profile, tally), 1):
            if count % PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return in_words(profile, tally)

    async def _of_configuration(self, planned: Planned) -> Sequence[str]:
        config = decode_config_map(planned.document)
        if not is_node_configuration(config):
            return ()
        was = planned.was.stored if planned.was is not None else None
        if was is not None and decode_config_map(was.raw).data == config.data:
            return ()
        try:
            answer, code, refusal = await self._ask(CONFIG_DRY_RUN, msgspec.json.encode(config.data), ANSWER_SECONDS)
        except TimeoutError:
            return (f"{_UNKNOWN}: {_SERVICE} does not answer within {ANSWER_SECONDS:.0f} s",)
        except LOG_ERRORS as error:
            return (f"{_UNKNOWN}: {_SERVICE} cannot be reached ({type(error).__name__}: {error})",)
        if code:
            return (f"{_UNKNOWN}: {_SERVICE} refuses to answer: {refusal}",)
        return effect_in_words(answer)


def effect_in_words(answer: bytes) -> Sequence[str]:
    """Return the calculator's answer as texts, such as `17 nodes: batch-cpu -12 %`, even an invalid one; before it each section
    that would be rejected, after it how many NodeSLOs would change."""
    try:
        effect = msgspec.json.decode(answer, type=ConfigEffect)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (f"{_UNKNOWN}: {_SERVICE} gives an unreadable answer: {error}",)
    if effect.error:
        return (f"{_UNKNOWN}: {effect.error}",)
    rejected = [
        f"data[{key}] would be rejected, and its previous value stays in force: {reason}"
        for key, reason in list(effect.rejected.items())[:MAX_REJECTED]
    ]
    return (*rejected, _in_figures(effect), *_of_slos(effect))


def _in_figures(effect: ConfigEffect) -> str:
    nodes = _nodes(effect.nodes)
    shown = list(effect.changes.items())[:MAX_CHANGES]
    changes = [f"{_resource(name)} {_percent(change)} %" for name, change in shown if change]
    if not changes:
        return f"{nodes}: batch and mid resources would not change"
    return f"{nodes}: {', '.join(changes)}"


def _of_slos(effect: ConfigEffect) -> tuple[str, ...]:
    return (f"{_nodes(effect.slos)}: the spec of the NodeSLO would change",) if effect.slos else ()


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _resource(name: str) -> str:
    return name if name.startswith(("batch-", "mid-")) else f"allocatable {name}"


def _percent(change: float) -> str:
    return f"{change:+.0f}" if abs(change) >= 1 else f"{change:+.1f}"

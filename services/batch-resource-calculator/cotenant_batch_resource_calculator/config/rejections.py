"""The event that says which sections of the ConfigMap were rejected, for `kubectl describe configmap` and `kubectl get events`.

In: the configuration and the service's last event about it. Out: the event that is due, if any: one a version of the ConfigMap
with a rejected section, and a tombstone after it. Reasons are those of Koordinator's slo-controller, which gives them where a
text cannot be parsed; here also where a value is not allowed, as the section is out of force just the same.
"""

from __future__ import annotations

from cotenant.events.configurations import ConfigurationRejected, RejectedSection
from cotenant.events.envelope import Event
from cotenant.log.contract import ending
from cotenant.model.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant.model.subjects import config_map_subject
from cotenant_batch_resource_calculator.config import colocation, ratios
from cotenant_batch_resource_calculator.config.in_force import KEYS, Configuration

MAX_MESSAGE = 900
"""Characters of a message; an Event of Kubernetes has at most 1,024, of which the gateway adds some."""
SUBJECT = config_map_subject(SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME)
_REASONS = {
    colocation.KEY: "ColocationCfgUnmarshalFailed",
    ratios.NORMALIZATION_KEY: "CPUNormalizationCfgUnmarshalFailed",
    ratios.AMPLIFICATION_KEY: "ResourceAmplificationCfgUnmarshalFailed",
}
_REASON_OF_SLO = "SLOCfgUnmarshalFailed"
"""The reason of the sections of a NodeSLO."""


def due(configuration: Configuration, last: Event | None) -> list[Event]:
    """Return the event that is due, if any; `last`: the service's last one, None without one or after a tombstone."""
    rejected = configuration.rejected
    if not rejected:
        causes = (configuration.source,) if configuration.source else ()
        return [ending(last.subject, last.data, causes)] if last is not None else []
    if last is not None and isinstance(last.data, ConfigurationRejected) and last.data.config == configuration.source:
        return []
    data = ConfigurationRejected(
        namespace=SLO_CONFIG_NAMESPACE,
        name=SLO_CONFIG_NAME,
        uid=configuration.uid,
        config=configuration.source,
        sections=tuple(
            RejectedSection(key=key, reason=_REASONS.get(key, _REASON_OF_SLO), message=_bounded(rejected[key]))
            for key in KEYS
            if key in rejected
        ),
    )
    return [Event(subject=SUBJECT, data=data, causes=(configuration.source,))]


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."

"""The ConfigMap's sections: those in force and those rejected.

In: the `data` of the ConfigMap (None without one). Out: a Configuration whose rejected sections are None, with the reason.
The replacement of a rejected section is in each node's last event, so that a service that restarts on a rejected ConfigMap
reaches the same state as one that has seen the valid version before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from cotenant_batch_resource_calculator.config import colocation, ratios, sections
from cotenant_batch_resource_calculator.config.colocation import ColocationConfig
from cotenant_batch_resource_calculator.config.json_overlay import ConfigError
from cotenant_batch_resource_calculator.config.ratios import AmplificationStrategy, NormalizationStrategy, RatioSection
from cotenant_batch_resource_calculator.config.sections import HostSection, Section

T = TypeVar("T")


KEYS = (
    colocation.KEY,
    *(kind.key for kind in sections.STRATEGIES),
    sections.HOST_APPLICATIONS_KEY,
    ratios.NORMALIZATION_KEY,
    ratios.AMPLIFICATION_KEY,
)
"""The sections, in the order in which they are read."""


class Configuration(msgspec.Struct, frozen=True):
    """Each section as loaded; None: rejected, with the reason in `rejected` under its key. `source` is the ConfigMap's
    event, `uid` its object's; `exists`: there is a ConfigMap.
    """

    colocation: ColocationConfig | None
    strategies: dict[str, Section | None]
    host_applications: HostSection | None
    normalization: RatioSection[NormalizationStrategy] | None
    amplification: RatioSection[AmplificationStrategy] | None
    rejected: dict[str, str] = {}
    source: str = ""
    uid: str = ""
    exists: bool = True

    def rejection(self, *keys: str) -> str:
        """Return the reasons of the rejected ones among these sections, in the given order; empty if all are valid."""
        return "; ".join(dict.fromkeys(self.rejected[key] for key in keys if key in self.rejected))


def load_configuration(data: Mapping[str, str] | None, source: str = "", uid: str = "") -> Configuration:
    """Return the configuration of a ConfigMap's data; all defaults without a ConfigMap."""
    given = data or {}
    rejected: dict[str, str] = {}

    def section(key: str, load: Callable[[], T]) -> T | None:
        try:
            return load()
        except ConfigError as error:
            rejected[key] = str(error)
            return None

    return Configuration(
        colocation=section(colocation.KEY, lambda: colocation.load(given.get(colocation.KEY))),
        strategies={
            kind.key: section(kind.key, lambda kind=kind: sections.load_strategies(kind, given.get(kind.key)))  # type: ignore[misc]
            for kind in sections.STRATEGIES
        },
        host_applications=section(
            sections.HOST_APPLICATIONS_KEY,
            lambda: sections.load_host_applications(given.get(sections.HOST_APPLICATIONS_KEY)),
        ),
        normalization=section(
            ratios.NORMALIZATION_KEY, lambda: ratios.load_ratios(ratios.NORMALIZATION, given.get(ratios.NORMALIZATION_KEY))
        ),
        amplification=section(
            ratios.AMPLIFICATION_KEY, lambda: ratios.load_ratios(ratios.AMPLIFICATION, given.get(ratios.AMPLIFICATION_KEY))
        ),
        rejected=rejected,
        source=source,
        uid=uid,
        exists=data is not None,
    )


def reject_configuration(reason: str, source: str) -> Configuration:
    """Return a configuration with every section rejected for the same reason."""
    return Configuration(
        colocation=None,
        strategies={kind.key: None for kind in sections.STRATEGIES},
        host_applications=None,
        normalization=None,
        amplification=None,
        rejected=dict.fromkeys(KEYS, reason),
        source=source,
    )

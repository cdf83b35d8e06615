"""When waiting pods are checked against profiles: as soon as a profile changes, and every PASS.

In: the read model and the time. Out: plans (`planning.waiting_pods`), at most PER_SECOND a second and BURST at once, as
Koordinator's ColocationProfile controller; a refusal is logged once for each version of the pod and of the profiles.

Bounds: LOOKED_AT pods a pass, TRIED of them computed; of pods that need no change, SETTLED are cached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.kinds.pods import PODS
from cotenant.log.plans import Plan
from cotenant_gateway.admission.profiles.selection import ProfileSet, ready_profiles
from cotenant_gateway.planning.waiting_pods import lacks_profile, plan_profiles, waits
from cotenant_gateway.read_model.core import GatewayCore

logger = logging.getLogger(__name__)

PASS = timedelta(seconds=30)
EVERY = timedelta(seconds=1)
PER_SECOND = 10
BURST = 100
LOOKED_AT = 2_000
TRIED = 100
SETTLED = 20_000


class ProfilePasses:
    """Repeated passes over the pods, for the present profiles."""

    def __init__(self, core: Callable[[], GatewayCore]) -> None:
        self._core = core
        self._profiles: ProfileSet | None = None
        self._after = ("", "")
        """The position of the pass."""
        self._passing = False
        self._began: datetime | None = None
        self._looked: datetime | None = None
        self._tokens = float(BURST)
        self._settled: dict[tuple[str, str], int] = {}
        """Pods that these profiles do not change, or that would be refused with them, by their sequence."""

    def due(self, now: datetime) -> list[Plan]:
        """Return the plans of the next pods."""
        core = self._core()
        profiles = core.derived(PROFILES, ready_profiles)
        if not profiles.managed:
            self._profiles = profiles
            return []
        looked = self._looked
        if looked is not None and looked <= now < looked + EVERY:
            return []
        seconds = 0.0 if looked is None else max(0.0, (now - looked).total_seconds())
        self._tokens = min(float(BURST), self._tokens + PER_SECOND * seconds)
        self._looked = now
        if profiles is not self._profiles:
            self._profiles, self._passing, self._after = profiles, True, ("", "")
            self._settled.clear()
            self._began = now
        elif not self._passing and not (self._began is not None and self._began <= now < self._began + PASS):
            self._passing, self._after, self._began = True, ("", ""), now
        return self._look(core) if self._passing else []

    def _look(self, core: GatewayCore) -> list[Plan]:
        plans: list[Plan] = []
        looked = tried = 0
        for pod in core.objects(PODS, after=self._after):
            if looked == LOOKED_AT or tried == TRIED or len(plans) + 1 > self._tokens:
                break
            looked += 1
            address, stored = pod.address, pod.stored
            key = self._after = (address.namespace, address.name)
            if stored is None or self._settled.get(key) == stored.sequence or not waits(pod) or not lacks_profile(core, pod):
                continue
            tried += 1
            found = plan_profiles(core, pod)
            if isinstance(found, Plan):
                plans.append(found)
                continue
            if len(self._settled) >= SETTLED:
                self._settled.clear()
            self._settled[key] = stored.sequence
            if found is not None:
                logger.warning("waiting pod %s/%s does not get its profiles: %s", *key, found[:500])
        else:
            self._passing = False
        self._tokens -= len(plans)
        return plans

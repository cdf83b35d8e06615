"""Bandwidths of `resource-qos-config` that must be consistent.

In: the section and `system-config` as JSON values. Out: field errors. The requests of one strategy are all percentages or all
quantities; in each direction percentages are 100 at most together, quantities at most the node's `totalNetworkBandwidth`.
That is the value of the system entry with the same node selector, else the cluster's; where there is none nothing is
compared, as the node's annotation `node.koordinator.sh/network-bandwidth` may define it. Classes that are disabled do not
count. Source: Koordinator's ConfigMap webhook; it also subtracts percentages from the absolute total, and requires
`system-config` whenever this section changes, which is left out here.
"""

from __future__ import annotations

import json

from cotenant.api.validation.fields import FieldError, forbidden
from cotenant_gateway.admission.node_configuration.ranges import NETWORK_REQUESTS, QOS_CLASSES
from cotenant_gateway.admission.node_configuration.values import Json, bits_per_second, member

_ENTRIES = "nodeStrategies"
_CLUSTER = "clusterStrategy"


def network_share_errors(path: str, qos: Json, system: Json) -> list[FieldError]:
    """Return the requests beyond the total, for the cluster's strategy and each entry of nodes."""
    cluster = member(qos, _CLUSTER)
    found = _strategy(f"{path}.{_CLUSTER}", cluster, _bandwidth(system, None))
    entries = member(qos, _ENTRIES)
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        # Values that an entry leaves out are the cluster's.
        merged = {name: _merged(member(cluster, name), member(entry, name)) for name in QOS_CLASSES}
        found += _strategy(f"{path}.{_ENTRIES}[{index}]", merged, _bandwidth(system, member(entry, "nodeSelector")))
    return found


def _merged(cluster: Json, entry: Json) -> Json:
    below, above = member(cluster, "networkQOS"), member(entry, "networkQOS")
    return {"networkQOS": {name: _or(member(above, name), member(below, name)) for name in ("enable", *NETWORK_REQUESTS)}}


def _or(value: Json, default: Json) -> Json:
    return default if value is None else value


def _bandwidth(system: Json, selector: Json) -> int:
    """Return the total bandwidth of the nodes of a selector, in bits per second; 0: not stated."""
    entries = member(system, _ENTRIES)
    total = member(member(system, _CLUSTER), "totalNetworkBandwidth")
    if selector is not None and isinstance(entries, list):
        wanted = json.dumps(selector, sort_keys=True)
        for entry in entries:
            if json.dumps(member(entry, "nodeSelector"), sort_keys=True) == wanted:
                total = _or(member(entry, "totalNetworkBandwidth"), total)
                break
    return bits_per_second(total)


def _strategy(path: str, strategy: Json, bandwidth: int) -> list[FieldError]:
    found: list[FieldError] = []
    forms: dict[type, str] = {}
    for name in NETWORK_REQUESTS:
        requests: list[Json] = []
        for of_class in QOS_CLASSES:
            network = member(member(strategy, of_class), "networkQOS")
            request = member(network, name)
            if request is not None and member(network, "enable") is not False:
                requests.append(request)
                forms.setdefault(type(request), f"{of_class}.networkQOS.{name}")
        percent = sum(request for request in requests if isinstance(request, int))
        if percent > 100:
            found.append(forbidden(path, f"the classes' networkQOS.{name} are {percent} % together, more than 100 %"))
        asked = sum(bits_per_second(request) for request in requests if isinstance(request, str))
        if bandwidth and asked > bandwidth:
            detail = f"the classes' networkQOS.{name} are {asked} together, totalNetworkBandwidth is {bandwidth}"
            found.append(forbidden(path, detail))
    if len(forms) > 1:
        one, other = forms.values()
        found.append(forbidden(path, f"{one} and {other}: of one strategy all requests are percentages, or all are quantities"))
    return found

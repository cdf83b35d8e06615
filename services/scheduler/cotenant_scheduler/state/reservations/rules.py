"""Which reservations' owner rules match a pod, by an index.

In: the owners of reservations, as they come and go; pods. Out: a number for each different list of owners, and for a pod the
numbers of those that match it. A list is indexed by one key that a matching pod must have: a label, the name or uid of an owner
reference, its own uid or name; lists without such a key are checked for every pod.

Bounds: one entry a different list of owners. Numbers are never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cotenant.api.objects.metadata import OwnerReference
from cotenant.api.objects.reservation import OwnerRule
from cotenant.domain.reservations.owners import PodIdentity, check_owners, owners_match
from cotenant.domain.selectors import SelectorError
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import ParsedPod

Key = tuple[str, str, str]

_ENCODE = msgspec.json.Encoder(order="deterministic").encode
_ANY: Key = ("", "", "")


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: list[OwnerReference] = []


class _Owned(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_OWNED = msgspec.json.Decoder(_Owned)


class OwnerIndex:
    """Lists of owners by number."""

    def __init__(self) -> None:
        self.changed: set[Key] = set()
        """Keys of the lists that were added or removed since the caller last cleared this."""
        self._rules: dict[int, tuple[OwnerRule, ...]] = {}
        self._numbers: dict[bytes, int] = {}
        self._holders: dict[int, int] = {}
        self._by_key: dict[Key, dict[int, None]] = {}
        self._next = 1

    def __bool__(self) -> bool:
        return bool(self._rules)

    def hold(self, owners: Sequence[OwnerRule]) -> int:
        """Return the number of a list of owners, which is valid until it is released as often; 0 for one that matches no
        pod."""
        try:
            check_owners(owners)
        except SelectorError:
            return 0
        if not owners:
            return 0
        text = _ENCODE(owners)
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = self._next
            self._next += 1
            self._rules[number] = tuple(owners)
            for key in keys_of(owners):
                self._by_key.setdefault(key, {})[number] = None
                self.changed.add(key)
        self._holders[number] = self._holders.get(number, 0) + 1
        return number

    def let_go(self, number: int) -> None:
        """Drop a hold on a list."""
        if not number:
            return
        self._holders[number] -= 1
        if self._holders[number]:
            return
        del self._holders[number]
        owners = self._rules.pop(number)
        del self._numbers[_ENCODE(owners)]
        for key in keys_of(owners):
            self.changed.add(key)
            known = self._by_key[key]
            known.pop(number, None)
            if not known:
                del self._by_key[key]

    def meaning(self, record: PodRecord, facts: ParsedPod) -> tuple[int, ...]:
        """Return the numbers of the lists that match a pod, ascending."""
        by_key = self._by_key
        references = owner_references(record)
        found: dict[int, None] = {}
        for key in _keys_of_pod(facts, references):
            if key in by_key:
                found |= by_key[key]
        if not found:
            return ()
        pod = PodIdentity(facts.namespace, facts.name, facts.uid, facts.labels, references)
        return tuple(sorted(number for number in found if owners_match(self._rules[number], pod)))

    def concerns(self, record: PodRecord, facts: ParsedPod) -> bool:
        """Return whether other lists may match a pod than before the changes."""
        return not self.changed.isdisjoint(_keys_of_pod(facts, owner_references(record)))


def _keys_of_pod(facts: ParsedPod, references: Sequence[OwnerReference]) -> list[Key]:
    """Return the index keys of the lists that may match a pod."""
    keys: list[Key] = [_ANY, ("uid", facts.uid, ""), ("name", facts.name, "")]
    keys += [("label", name, value) for name, value in facts.labels.items()]
    for reference in references:
        keys += (("controller-uid", reference.uid, ""), ("controller-name", reference.name, ""))
    return keys


def owner_references(record: PodRecord) -> Sequence[OwnerReference]:
    """Return the owner references of a pod's document."""
    document = record.document
    if document is None or b'"ownerReferences"' not in bytes(document):
        return ()
    try:
        return _OWNED.decode(document).metadata.owner_references
    except msgspec.DecodeError:
        return ()


def keys_of(owners: Iterable[OwnerRule]) -> list[Key]:
    """Return the index keys of a list of owners: each matching pod has one of these."""
    return [_key_of(rule) for rule in owners]


def _key_of(rule: OwnerRule) -> Key:
    wanted, controller, selector = rule.object, rule.controller, rule.label_selector
    if wanted is not None and (wanted.uid or wanted.name):
        return ("uid", wanted.uid, "") if wanted.uid else ("name", wanted.name, "")
    if controller is not None and (controller.uid or controller.name):
        return ("controller-uid", controller.uid, "") if controller.uid else ("controller-name", controller.name, "")
    if selector is not None and selector.match_labels:
        return ("label", *min(selector.match_labels.items()))
    return _ANY

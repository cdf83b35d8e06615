"""The independent check of gangs: a gang's pods are placed by one commit, all of them, or none is.

In: the gang and the number of members that each pod's annotations name; the scheduler's messages in LOG's order. The ids of one
commit's messages differ in their last part only. Sequences do not tell commits apart: within a commit the tombstones of waiting
pods leave gaps once they have expired. Messages without ids, of a core alone, are one commit as long as there is no gap.
Out: findings. Unsupported features (fewer than all members, groups of gangs, members that end) are errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.api.objects.pod import Pod
from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_NAME
from cotenant.events.envelope import Event


class GangCheck:
    """Which commit placed each member."""

    def __init__(self) -> None:
        self._gang_of: dict[str, str] = {}
        self._size: dict[str, int] = {}
        self._members: dict[str, set[str]] = {}
        self._placed: dict[str, dict[str, int]] = {}
        """By gang and member, the number of the commit."""
        self.commit = 0
        """The number of the commit of which a message was noted last."""
        self._last = 0
        self._prefix = ""

    def submitted(self, pod: Pod) -> None:
        """Take a pod; raises ValueError for a gang that the check does not support."""
        annotations = pod.metadata.annotations
        gang = annotations.get(ANNOTATION_GANG_NAME, "")
        if not gang:
            return
        size = int(annotations[ANNOTATION_GANG_MIN])
        if self._size.setdefault(gang, size) != size:
            raise ValueError(f"the check does not support gangs whose pods state different sizes: {gang}")
        self._gang_of[pod.metadata.name] = gang
        self._members.setdefault(gang, set()).add(pod.metadata.name)

    def decided(self, event: Event) -> None:
        """Note a message of the scheduler."""
        prefix = event.id.rpartition("/")[0]
        if prefix != self._prefix or (not prefix and event.sequence != self._last + 1):
            self.commit += 1
        self._last, self._prefix = event.sequence, prefix

    def placed(self, pod: str) -> None:
        """The last noted message placed a pod."""
        if gang := self._gang_of.get(pod):
            self._placed.setdefault(gang, {})[pod] = self.commit

    def waits(self, pod: str) -> str:
        """Return the gang of a pod if all of its members exist; empty for a pod without a gang."""
        gang = self._gang_of.get(pod, "")
        return gang if gang and len(self._members[gang]) >= self._size[gang] else ""

    def is_short(self, pod: str) -> bool:
        """Return whether a pod waits for members that were not submitted."""
        gang = self._gang_of.get(pod, "")
        return bool(gang) and len(self._members[gang]) < self._size[gang]

    def findings(self) -> Iterator[str]:
        """Yield what is wrong with the gangs of which any member is placed."""
        for gang, commits in sorted(self._placed.items()):
            size = self._size[gang]
            if len(commits) < size:
                yield f"gang {gang} has {len(commits)} of {size} members placed"
            elif len(set(commits.values())) > 1:
                yield f"gang {gang} of {size} is placed by {len(set(commits.values()))} commits"

"""A listing shows the log as it was at its version, which is no older than requested and never decreases.

In: listings and all versions that the log ever had, in order. Out: violations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from cotenant_verification.stack_chaos.records import BrokenPromise, Listing, ObservedObject, Version, with_newest_before

EXACT = "a listing shows the objects of its version"
ASKED = "a listing is no older than asked for"
BACK = "what a gateway shows never goes back"


def check_reads(listings: Sequence[Listing], versions: Sequence[Version], missing: Collection[int] = ()) -> list[BrokenPromise]:
    """Compare the listings with the log, and with one another."""
    return [*_exact(listings, versions, missing), *_asked(listings), *_back(listings)]


def _exact(listings: Sequence[Listing], versions: Sequence[Version], missing: Collection[int]) -> Iterator[BrokenPromise]:
    state: dict[str, ObservedObject] = {}
    index = 0
    last: dict[str, int] = {}
    for listing in sorted(listings, key=lambda listing: listing.version):
        while index < len(versions) and versions[index].sequence <= listing.version:
            version = versions[index]
            last[version.name] = version.sequence
            if version.value is None:
                state.pop(version.name, None)
            else:
                state[version.name] = ObservedObject(version.sequence, version.value)
            index += 1
        expected = {name: seen for name, seen in state.items() if listing.name in ("", name)}
        for name in sorted(expected.keys() | listing.objects.keys()):
            shown = listing.objects.get(name)
            # An unread version may be the one that was shown.
            unread = (
                shown.version in missing
                if shown is not None
                else any(last.get(name, 0) < sequence <= listing.version for sequence in missing)
            )
            if expected.get(name) != shown and not unread:
                yield BrokenPromise(
                    EXACT,
                    f"{listing}: {name} at version {listing.version} is {_words(shown)}; "
                    f"the log has {_words(expected.get(name))}",
                )


def _words(seen: ObservedObject | None) -> str:
    return "not there" if seen is None else f"{seen.value} of version {seen.version}"


def _asked(listings: Sequence[Listing]) -> Iterator[BrokenPromise]:
    for listing in listings:
        if listing.version < listing.at_least:
            yield BrokenPromise(ASKED, f"{listing}: version {listing.version}, asked for {listing.at_least}")


def _back(listings: Sequence[Listing]) -> Iterator[BrokenPromise]:
    for gateway in sorted({listing.gateway for listing in listings}):
        own = [listing for listing in listings if listing.gateway == gateway]
        for listing, newest in with_newest_before(own):
            if newest is not None and newest.version > listing.version:
                yield BrokenPromise(BACK, f"{listing}: version {listing.version}, after {newest}: version {newest.version}")

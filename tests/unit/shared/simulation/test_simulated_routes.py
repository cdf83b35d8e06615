"""Who reads a subject in the simulation: those with a filter that matches it, each once, in the order in which they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.model.subjects import matches
from cotenant.simulation.routes import Routes

tokens = st.sampled_from(("a", "b", "c", "*"))
filters = st.builds(
    lambda parts, rest: ".".join([*parts, ">"] if rest else parts), st.lists(tokens, min_size=1, max_size=4), st.booleans()
)
subjects = st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(".".join)
readers = st.lists(st.lists(filters, min_size=1, max_size=3), min_size=1, max_size=8)


def expected(wanted: dict[int, list[str]], subject: str) -> tuple[int, ...]:
    return tuple(number for number, taken in sorted(wanted.items()) if any(matches(one, subject) for one in taken))


@given(readers, st.lists(subjects, min_size=1, max_size=12), st.integers(0, 7))
def test_readers_are_those_whose_filters_match_also_after_one_came_or_left(
    listed: list[list[str]], asked: list[str], leaving: int
) -> None:
    routes: Routes[int] = Routes()
    wanted: dict[int, list[str]] = {}
    for number, taken in enumerate(listed):
        wanted[number] = taken
        for one in taken:
            routes.add(one, number, number)
        assert [routes.readers(subject) for subject in asked] == [expected(wanted, subject) for subject in asked]
    routes.remove(leaving)
    wanted.pop(leaving, None)
    assert [routes.readers(subject) for subject in asked] == [expected(wanted, subject) for subject in asked]


def test_subjects_that_differ_in_tokens_that_no_filter_names_lead_to_one_place() -> None:
    routes: Routes[str] = Routes()
    routes.add("node.*.run.>", 0, "all")
    routes.add("node.n1.>", 1, "one")
    first, other = routes.readers("node.n2.run.default.p1"), routes.readers("node.n3.run.other.p2")
    assert first is other
    assert routes.readers("node.n1.run.default.p1") == ("all", "one")

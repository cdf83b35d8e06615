"""`/debug`: which questions the paths ask the scheduler, and how its answers are passed on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from aiohttp import web

from cotenant.events.requests import QUOTA_DEBUG, SCHEDULER_DEBUG, DebugAnswer, QuotaQuestion, SchedulerQuestion
from cotenant_gateway.http.debugging import Debugging
from cotenant_gateway.statuses import ApiError

GANGS = "/debug/apis/v1/plugins/Coscheduling"
QUOTAS = "/debug/apis/v1/plugins/ElasticQuota/quotas"
RESERVATIONS = "/debug/apis/v1/plugins/Reservation/nodeReservations"
LOAD = "/debug/apis/v1/plugins/LoadAwareScheduling/node"


Question = SchedulerQuestion | QuotaQuestion


def asked(path: str, reply: tuple[bytes, int, str] | Exception, **query: str) -> tuple[web.Response, Question]:
    """The answer, and what the scheduler or quota-tree was asked."""
    questions: list[Question] = []

    async def ask(subject: str, body: bytes) -> tuple[bytes, int, str]:
        if subject == QUOTA_DEBUG:
            questions.append(msgspec.json.decode(body, type=QuotaQuestion))
        else:
            assert subject == SCHEDULER_DEBUG
            questions.append(msgspec.json.decode(body, type=SchedulerQuestion))
        if isinstance(reply, Exception):
            raise reply
        return reply

    answered = asyncio.run(Debugging(ask).answer(path, query))
    assert isinstance(answered, web.Response)
    return answered, questions[0]


def saying(text: str = "", *, json: bool = False, error: str = "") -> tuple[bytes, int, str]:
    return msgspec.json.encode(DebugAnswer(text=text, json=json, error=error)), 0, ""


@pytest.mark.parametrize(
    ("path", "query", "question"),
    [
        ("/debug/scores/default/web", {}, SchedulerQuestion(about="scores", namespace="default", name="web")),
        (
            "/debug/filters/default/a%2Fb",
            {"rows": "7"},
            SchedulerQuestion(about="filters", namespace="default", name="a/b", rows=7),
        ),
        (f"{GANGS}/gangs", {}, SchedulerQuestion(about="gangs")),
        (f"{GANGS}/gang/default/train", {}, SchedulerQuestion(about="gang", namespace="default", name="train")),
        (f"{RESERVATIONS}/node%2D1", {}, SchedulerQuestion(about="reservations", name="node-1")),
        ("/debug/apis/v1/nodes/node%2D1", {}, SchedulerQuestion(about="node", name="node-1")),
        (f"{LOAD}/node-1", {}, SchedulerQuestion(about="load", name="node-1")),
        ("/debug/elasticQuota", {}, QuotaQuestion(topology=True)),
        (QUOTAS, {}, QuotaQuestion()),
        (QUOTAS, {"tree": "", "includePods": "true"}, QuotaQuestion(tree="", pods=True)),
        (f"{QUOTAS}/team%2Da", {"includePods": "false"}, QuotaQuestion(name="team-a")),
        (f"{QUOTAS}/koordinator-root-quota", {"tree": "t1"}, QuotaQuestion(name="koordinator-root-quota", tree="t1")),
    ],
)
def test_a_path_is_a_question(path: str, query: dict[str, str], question: Question) -> None:
    assert asked(path, saying("x"), **query)[1] == question


def test_the_paths_are_listed_as_koordinator_lists_them_and_each_is_one() -> None:
    async def nobody(subject: str, body: bytes) -> tuple[bytes, int, str]:
        raise AssertionError((subject, body))

    listed = asyncio.run(Debugging(nobody).answer("/debug/apis/v1/__services__", {}))
    assert isinstance(listed, web.Response)
    assert (listed.content_type, listed.text is not None) == ("application/json", True)
    (paths,) = msgspec.json.decode(listed.text or "", type=dict[str, list[str]]).values()
    assert paths == sorted(paths)
    assert f"{GANGS}/gang/:namespace/:name" in paths
    assert {f"{LOAD}/:nodeName", "/debug/apis/v1/nodes/:nodeName", QUOTAS, f"{QUOTAS}/:name"} <= set(paths)
    for path in set(paths) - {"/debug/apis/v1/__services__"}:
        assert asked(path.replace(":", ""), saying("x"))[0].text == "x"


def test_tables_are_markdown_and_gangs_are_json() -> None:
    table, _ = asked("/debug/scores/default/web", saying("| # |"))
    assert (table.content_type, table.text) == ("text/markdown", "| # |")
    gangs, _ = asked(f"{GANGS}/gangs", saying("{}", json=True))
    assert (gangs.content_type, gangs.text) == ("application/json", "{}")


@pytest.mark.parametrize(
    "path",
    [
        "/debug/",
        "/debug/scores",
        "/debug/scores/default",
        "/debug/scores/default/",
        "/debug/scores/a/b/c",
        "/debug/weather/default/web",
        "/debug/gang/default/train",
        f"{GANGS}/scores/default/web",
        f"{GANGS}/gang/default",
        GANGS,
        RESERVATIONS,
        f"{RESERVATIONS}/",
        f"{RESERVATIONS}/a/b",
        LOAD,
        "/debug/apis/v1/nodes/",
        "/debug/apis/v1/nodes/a/b",
        "/debug/apis/v1/services",
        f"{QUOTAS}/",
        f"{QUOTAS}/a/b",
        f"{QUOTAS}x",
    ],
)
def test_other_paths_are_not_there(path: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(path, saying("x"))
    assert caught.value.code == 404


@pytest.mark.parametrize("rows", ["0", "-1", "1001", "x", "", "1e3", "٣", "99999999999999999999"])
def test_rows_are_a_number_with_a_bound(rows: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked("/debug/scores/default/web", saying("x"), rows=rows)
    assert caught.value.code == 400
    assert "from 1 to 1000" in caught.value.status.message


@pytest.mark.parametrize("text", ["1", "True", ""])
def test_pods_are_included_or_not(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(QUOTAS, saying("x"), includePods=text)
    assert (caught.value.code, caught.value.status.message) == (400, "includePods must be true or false")


@pytest.mark.parametrize(
    ("reply", "code", "text"),
    [
        (TimeoutError(), 503, "the scheduler does not answer"),
        ((b"", 503, "debug: the service has not loaded yet"), 503, "has not loaded yet"),
        ((b"\xff", 0, ""), 503, "cannot be read"),
        ((b"[]", 0, ""), 503, "cannot be read"),
        (saying(error="pod default/web: there is none"), 404, "pod default/web: there is none"),
    ],
)
def test_a_scheduler_that_cannot_answer_is_an_error(reply: tuple[bytes, int, str] | Exception, code: int, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked("/debug/scores/default/web", reply)
    assert caught.value.code == code
    assert text in caught.value.status.message


def test_quotas_are_json_and_an_unknown_one_is_not_found() -> None:
    found, _ = asked(QUOTAS, saying("{}", json=True))
    assert (found.content_type, found.text) == ("application/json", "{}")
    with pytest.raises(ApiError) as caught:
        asked(f"{QUOTAS}/nobody", saying(error="cannot find quota nobody"))
    assert (caught.value.code, caught.value.status.message) == (404, "cannot find quota nobody")
    with pytest.raises(ApiError, match="quota-tree does not answer"):
        asked(QUOTAS, TimeoutError())

"""Values at the edges: what a message or a document may hold where nobody thought of it.

In: a random source. Out: values that JSON can carry. `LITERALS` are numbers that Python's encoder would not write: they stand
as marked text until `json_bytes` puts them into the document.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

INTEGERS = (
    0, 1, -1, 2, 99, 100, 101, 255, 256, 1000, 2**31 - 1, 2**31, -(2**31), 2**32, 2**50 - 1, 2**50, 2**50 + 1, 2**53, 2**53 + 1,
    -(2**53), 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**12, 10**18, -(10**18), 10**30, -(10**30), 10**100,
)  # fmt: skip
FLOATS = (0.0, -0.0, 0.1, -0.1, 0.5, 1e-9, 5e-324, 1e18, -1e18, 1e300, 1.7976931348623157e308, -1.7976931348623157e308)
LITERALS = ("-0", "1e400", "1E+2", "1.0", "1e18", "NaN", "Infinity", "-Infinity", "0.30000000000000004", "9" * 400)
TEXTS = (
    "", " ", "0", "-", ".", "..", "/", "a/b", "a.b", "*", ">", "%", "%00", "\x00", "\n", "null", "true", "None", "{}", "[]",
    '"', "nan", "inf", "-1", "1e308", "1e309", "ä", "ﷺ", "𝔘", "\u202e", "\ufeff", "\ud800", "١", "½", "²", "x" * 63, "x" * 64,
    "x" * 254,
)  # fmt: skip
QUANTITIES = (
    "0", "-0", "1", "-1", "1m", "500m", "1n", "1e30Ki", "1e3", "1E", "9e18", "9223372036854775807", "9223372036854775808",
    "1e99", "1e999", "-9e18", "8Ei", "1Pi", "16Ei", "٣", "１", "1.", ".5", ".", "+1", " 1", "1 ", "1_000", "1e-9",
    "0.0000000001", "Ki", "1KiB", "0x10", "1" * 64, "1" * 65, "NaN", "inf",
)  # fmt: skip
TIMES = (
    "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-14:00", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-01T12:00:00", "2026-02-30T00:00:00Z",
    "2026-01-01T12:00:60Z", "2026-01-01", "12:00", "0000-00-00T00:00:00Z", "10000-01-01T00:00:00Z", "2038-01-19T03:14:08Z",
)  # fmt: skip
SPANS = (
    "0s", "5s", "5m0s", "1h", "-1s", "1e9s", "9" * 18 + "h", "9" * 400 + "h", "1.5h", "10y", "1d", "5", "s",
    "2562047h47m16.854775807s",
)  # fmt: skip
LONG = 1 << 20
"""Characters of the longest text: more than a message of NATS holds by default."""
_MARK = "@@literal:"
_MARKED = re.compile(f'"{_MARK}([^@]*)@@"')


def json_bytes(value: Any) -> bytes:
    """Return the JSON, literals in their places."""
    text = json.dumps(value)
    if _MARK in text:
        text = _MARKED.sub(r"\1", text)
    return text.encode()


def literal(random: Random) -> str:
    """A number as text that `json_bytes` writes as it is."""
    return f"{_MARK}{random.choice(LITERALS)}@@"


def near(random: Random) -> str:
    """A time near NOW, as RFC 3339."""
    return (NOW + timedelta(seconds=random.choice((-86_400, -3600, -600, -61, -60, -5, -1, 0, 0, 0, 1, 60)))).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


def text(random: Random) -> str:
    """A text that no name is made of; one in 200 is long."""
    if random.random() < 0.005:
        return random.choice("aä1\x00") * random.choice((4096, 4096, 4096, LONG))
    return random.choice((*TEXTS, *QUANTITIES, *TIMES, *SPANS))


def scalar(random: Random) -> Any:
    """Any scalar."""
    return random.choice((_integer, _float, text, literal, _word))(random)


def _integer(random: Random) -> int:
    return random.choice(INTEGERS)


def _float(random: Random) -> float:
    return random.choice(FLOATS)


def _word(random: Random) -> Any:
    return random.choice((None, True, False))


def junk(random: Random) -> Any:
    """JSON of another type than was asked for; one in 50 is nested deeply or has thousands of members."""
    drawn = random.random()
    if drawn < 0.01:
        made: Any = scalar(random)
        for _ in range(random.choice((50, 200, 900))):
            made = [made] if random.random() < 0.5 else {"a": made}
        return made
    if drawn < 0.02:
        return [scalar(random) for _ in range(2000)]
    if drawn < 0.2:
        return {random.choice(TEXTS): scalar(random) for _ in range(3)}
    if drawn < 0.4:
        return [scalar(random), scalar(random)]
    return scalar(random)


def heated(random: Random, value: Any, heat: float) -> Any:
    """A JSON value in which each leaf, and now and then a branch, is another one with this probability."""
    if random.random() < heat:
        return junk(random) if not isinstance(value, (int, float, str)) or random.random() < 0.3 else _alike(random, value)
    if isinstance(value, dict):
        return {
            (text(random) if random.random() < heat / 4 else key): heated(random, each, heat) for key, each in value.items()
        }
    if isinstance(value, list):
        made = [heated(random, each, heat) for each in value]
        return made * random.choice((2, 3000)) if made and random.random() < heat / 20 and _is_small(made) else made
    return value


def _is_small(made: list[Any]) -> bool:
    return all(isinstance(each, (int, float, str)) and len(str(each)) < 100 for each in made)


def _alike(random: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice(INTEGERS)
    return random.choice(FLOATS) if isinstance(value, float) else text(random)

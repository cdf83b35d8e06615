"""Warnings for a writer, beside the object: `Warning` headers, which kubectl prints (RFC 7234, as Kubernetes sends them).

In: an answer and texts, from the unknown fields of a body, from admission and from a dry run. Out: the answer with one header
a text, at most MAX_WARNINGS of at most MAX_CHARS characters; further ones are counted in the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

MAX_WARNINGS = 20
MAX_CHARS = 512


def with_warnings(response: web.Response, of_body: Sequence[str], of_object: Sequence[str]) -> web.Response:
    """Return the answer with the warnings of the body and of the object in it."""
    if not of_body and not of_object:
        return response
    texts = [*of_body, *of_object]
    if len(texts) > MAX_WARNINGS:
        texts = [*texts[: MAX_WARNINGS - 1], f"{len(texts) - MAX_WARNINGS + 1} more"]
    for text in texts:
        response.headers.add("Warning", f'299 - "{quoted(text)}"')
    return response


def quoted(text: str) -> str:
    """Return a text as a header's quoted string: printable ASCII, truncated to MAX_CHARS before it is quoted."""
    ascii_text = text[:MAX_CHARS].encode("ascii", "backslashreplace").decode()
    shown = "".join(char for char in ascii_text if char.isprintable())[:MAX_CHARS]
    return shown.replace("\\", "\\\\").replace('"', '\\"')

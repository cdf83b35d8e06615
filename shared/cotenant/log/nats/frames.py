"""The NATS protocol's frames of messages: made, found in what was read, and their header blocks.

In: bytes, or a message's parts. Out: the frame, or where its parts lie. Pure; what is not a whole message is left to nats-py.
"""

from __future__ import annotations

_NO_STATUS = b"NATS/1.0\r\n"
LINE_END = 2
_WORDS_WITH_REPLY = 5
"""Of a MSG; a HMSG has one word more, the size of its header block."""
_BLOCK_SIZE = len("NATS/1.0\r\n\r\n")


def frame(subject: str, reply: bytes, lines: bytes, data: bytes) -> bytes:
    """Return the frame of a message; `lines` are its header lines, each with its end, `reply` may be empty."""
    if not lines:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply, len(data), data)
    block = len(lines) + _BLOCK_SIZE
    return b"HPUB %b %b %d %d\r\nNATS/1.0\r\n%b\r\n%b\r\n" % (subject.encode(), reply, block, block + len(data), lines, data)


def parse_headers(block: bytes) -> dict[str, str]:
    """Return the header lines of a block; the first line (version, inline status) is left out."""
    headers: dict[str, str] = {}
    for line in block.decode(errors="replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers


def inline_status(block: bytes) -> str:
    """Return the status of a control message (`NATS/1.0 100 Idle Heartbeat`), "" where there is none."""
    if block.startswith(_NO_STATUS):
        return ""
    words = block.split(b"\r\n", 1)[0].split(b" ", 2)
    return words[1].decode(errors="replace") if len(words) > 1 else ""


def whole_message(buffer: bytes, position: int) -> tuple[list[bytes], bytes, int, int, int] | None:
    """Return the words of a message's first line, its reply subject, and where its header block, its data and what follows them
    begin; None where no whole message begins at this position."""
    end = buffer.find(b"\r\n", position)
    if end < 0:
        return None
    words = buffer[position:end].split(b" ")
    verb = words[0]
    if verb != b"HMSG" and verb != b"MSG":
        return None
    start = end + LINE_END
    stop = start + int(words[-1])
    if len(buffer) < stop + LINE_END:
        return None
    if verb == b"MSG":
        return words, words[3] if len(words) == _WORDS_WITH_REPLY else b"", start, start, stop
    return words, words[3] if len(words) > _WORDS_WITH_REPLY else b"", start, start + int(words[-2]), stop

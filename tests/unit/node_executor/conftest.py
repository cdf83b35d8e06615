"""What several of these tests need that has to end with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def thread() -> Iterator[int]:
    """A thread of this process that waits."""
    end = threading.Event()
    waiting = threading.Thread(target=end.wait)
    waiting.start()
    assert waiting.native_id is not None
    yield waiting.native_id
    end.set()
    waiting.join()

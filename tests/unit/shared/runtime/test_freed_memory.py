"""A process whose heap has holes gives them back."""

import subprocess
import sys

HOLES = """
from pathlib import Path
from cotenant.runtime.freed_memory import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [bytes([1]) * 20_000 for _ in range(5_000)]
kept = blocks[::50]
del blocks
before = resident()
give_back()
print(before - resident())
"""


def test_memory_between_what_is_kept_goes_back_to_the_system() -> None:
    printed = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, check=True, text=True, timeout=120).stdout
    assert int(printed) > 50_000_000

"""`make bench`: every benchmark of this folder, each in a process of its own; one line a figure: name value unit.

Names given as arguments choose some: `python -m tests.bench ingest gateway`. Those of WHEN_NAMED take long and run only so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_SECONDS = 600
WHEN_NAMED = {"ingest_cell": 1800, "overcommitment": 1800, "year": 3600, "memory_ladder": 7200}
"""With their limits in seconds."""


def main() -> int:
    """Run the benchmarks; 1 if one of them failed."""
    wanted = sys.argv[1:]
    failed = []
    for path in sorted(HERE.rglob("bench_*.py"), key=lambda path: path.stem):
        name = path.stem.removeprefix("bench_")
        if name not in wanted and (wanted or name in WHEN_NAMED):
            continue
        module = ".".join(("tests.bench", *path.relative_to(HERE).with_suffix("").parts))
        limit = WHEN_NAMED.get(name, LIMIT_SECONDS)
        try:
            finished = subprocess.run([sys.executable, "-m", module], timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            print(f"{name}: not finished after {limit} s", file=sys.stderr)
            failed.append(name)
            continue
        if finished.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

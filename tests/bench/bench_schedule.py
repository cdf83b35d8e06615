"""Small versions of `cotenant bench schedule` and `cotenant bench recover`: one line a figure, checked results only."""

from __future__ import annotations

import json
import subprocess
import sys

RUNS = {
    "schedule_core_equal": ("schedule", "--core-only", "--nodes", "2000", "--pods", "10000"),
    "schedule_core_200_shapes": ("schedule", "--core-only", "--nodes", "2000", "--pods", "4000", "--shapes", "200"),
    "schedule": ("schedule", "--nodes", "1000", "--pods", "5000"),
    "schedule_20_a_second": ("schedule", "--nodes", "200", "--pods", "60", "--rate", "20"),
    "recover": ("recover", "--nodes", "200", "--pods", "3000"),
}
UNITS = {"pods_per_second": "pods/s", "first_placement_seconds": "s"}


def main() -> None:
    for name, arguments in RUNS.items():
        argv = [sys.executable, "-m", "cotenant_console", "bench", *arguments, "-o", "json"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=120)
        figures = json.loads(done.stdout)
        assert figures["verified"] is True, figures
        for figure, unit in UNITS.items():
            if figure in figures:
                print(f"{name}_{figure} {figures[figure]} {unit}")
        for part, value in figures.get("submit_to_placed_ms", {}).items():
            print(f"{name}_submit_to_placed_{part} {value} ms")
        for process, value in figures.get("cpu_ms_per_pod", {}).items():
            print(f"{name}_{process}_cpu_per_pod {value} ms")


if __name__ == "__main__":
    main()

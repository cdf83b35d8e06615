"""Small versions of `cotenant bench schedule` and `cotenant bench recover`: one line a figure, checked results only."""

from __future__ import annotations

import json
import subprocess
import sys

RUNS = {
    "schedule_core_equal": ("schedule", "--core-only", "--nodes", "2000", "--pods", "10000"),
    "schedule_core_200_shapes": ("schedule", "--core-only", "--nodes", "2000", "--pods", "4000", "--shapes", "200"),
    "schedule_core_mix": ("schedule", "--core-only", "--nodes", "2000", "--pods", "4000", "--mix", "20"),
    "schedule_core_10000_nodes": ("schedule", "--core-only", "--nodes", "10000", "--pods", "20000"),
    "schedule_core_100000_nodes": ("schedule", "--core-only", "--nodes", "100000", "--pods", "20000"),
    "schedule": ("schedule", "--nodes", "1000", "--pods", "5000"),
    "schedule_mix": ("schedule", "--nodes", "300", "--pods", "2000", "--mix", "20"),
    "schedule_20_a_second": ("schedule", "--nodes", "200", "--pods", "60", "--rate", "20"),
    "schedule_stack": ("schedule", "--stack", "--nodes", "50", "--pods", "500"),
    "recover": ("recover", "--nodes", "200", "--pods", "3000"),
}
UNITS = {
    "pods_per_second": "pods/s",
    "running_per_second": "pods/s",
    "decide_us_per_pod": "us",
    "first_placement_seconds": "s",
}
LIMIT_SECONDS = 180


def main() -> None:
    decide: dict[str, float] = {}
    for name, arguments in RUNS.items():
        argv = [sys.executable, "-m", "cotenant_console", "bench", *arguments, "-o", "json"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=LIMIT_SECONDS)
        figures = json.loads(done.stdout)
        assert figures["verified"] is True, figures
        decide[name] = figures.get("decide_us_per_pod", 0.0)
        for figure, unit in UNITS.items():
            if figure in figures:
                print(f"{name}_{figure} {figures[figure]} {unit}")
        for span in ("submit_to_placed", "submit_to_running"):
            for part, value in figures.get(f"{span}_ms", {}).items():
                print(f"{name}_{span}_{part} {value} ms")
        for process, value in figures.get("cpu_ms_per_pod", {}).items():
            print(f"{name}_{process}_cpu_per_pod {value} ms")
        if "scheduler" in figures.get("peak_memory_mib", {}):
            print(f"{name}_scheduler_memory {figures['peak_memory_mib']['scheduler']} MiB")
    growth = decide["schedule_core_100000_nodes"] / decide["schedule_core_10000_nodes"]
    print(f"schedule_core_growth_10000_to_100000_nodes {growth:.2f} times")


if __name__ == "__main__":
    main()

"""The service of the colocation benchmark: threads that serve requests, each from a queue of its own, first come first served,
and live as long as the process.

It is an ordinary program: the standard library only, independent of cotenant. Requests arrive by a Poisson process
that it generates itself, so that no load generator has to run beside it; a request's latency is counted from its scheduled
arrival, also while the thread was late (open loop). A request computes (PBKDF2, without the interpreter's lock), touches
PAGES random pages of WORKING_SET, and writes 4 KiB to a file where `--file` names one.

Orders come as lines of JSON over TCP, and are answered by one line each:

    order    {at, seed, plan: [[seconds, requests a second of each thread], ...], iterations}
             `at`: monotonic time of the first second; `iterations`: PBKDF2 rounds of a request on average
    answer   {threads: [[[arrival, end, cpu], ...], ...]}: microseconds since `at`, CPU time of the request in microseconds

Bound: ABANDON_SECONDS after the plan's end the thread gives up; what still waits then is reported as ending there, with
0 CPU. Run as `service.py --port N --token TEXT --name TEXT --threads N [--file PATH]`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor

PAGE = 4096
WORKING_SET = 32 << 20
PAGES = 32
BLOCK = b"x" * PAGE
FILE_BYTES = 16 << 20
ABANDON_SECONDS = 3.0
LARGEST_ORDER = 1 << 16


def arrivals(plan: list[list[float]], chance: random.Random) -> list[float]:
    """Seconds since the start, of a Poisson process whose rate changes by the plan."""
    found: list[float] = []
    begins = 0.0
    for seconds, rate in plan:
        at = begins + chance.expovariate(rate) if rate > 0 else begins + seconds
        while at < begins + seconds:
            found.append(at)
            at += chance.expovariate(rate)
        begins += seconds
    return found


def serve(order: dict[str, object], number: int, memory: bytearray, file: int, answer: list[list[int]]) -> None:
    """Serve one thread's requests in order."""
    at, plan = float(str(order["at"])), order["plan"]
    assert isinstance(plan, list)
    chance = random.Random(f"{order['seed']}/{number}")
    due = arrivals(plan, chance)
    rounds = [max(int(int(str(order["iterations"])) * chance.uniform(0.5, 1.5)), 1) for _ in due]
    ends_at = at + sum(seconds for seconds, _ in plan) + ABANDON_SECONDS
    written = 0
    for arrival, count in zip(due, rounds, strict=True):
        wait = at + arrival - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        if time.monotonic() > ends_at:
            answer.append([int(arrival * 1e6), int((ends_at - at) * 1e6), 0])
            continue
        before = time.thread_time()
        hashlib.pbkdf2_hmac("sha256", b"request", b"salt", count)
        for _ in range(PAGES):
            memory[chance.randrange(0, WORKING_SET, PAGE)] = 1
        if file >= 0:
            os.pwrite(file, BLOCK, written % FILE_BYTES)
            written += PAGE
        cpu = time.thread_time() - before
        answer.append([int(arrival * 1e6), int((time.monotonic() - at) * 1e6), int(cpu * 1e6)])


def main() -> None:
    """Connect, and carry out orders until the connection ends."""
    made = argparse.ArgumentParser(prog="service")
    made.add_argument("--port", type=int, required=True)
    made.add_argument("--token", required=True)
    made.add_argument("--name", required=True)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--file", default="")
    arguments = made.parse_args()
    memory = bytearray(WORKING_SET)
    for page in range(0, WORKING_SET, PAGE):
        memory[page] = 1
    file = os.open(arguments.file, os.O_CREAT | os.O_WRONLY, 0o600) if arguments.file else -1
    with socket.create_connection(("127.0.0.1", arguments.port)) as connection, connection.makefile("rb") as orders:
        hello = {"token": arguments.token, "name": arguments.name}
        connection.sendall(json.dumps(hello).encode() + b"\n")
        workers = [ThreadPoolExecutor(1) for _ in range(arguments.threads)]
        while line := orders.readline(LARGEST_ORDER):
            answers: list[list[list[int]]] = [[] for _ in workers]
            order = json.loads(line)
            served = [
                worker.submit(serve, order, number, memory, file, answer)
                for number, (worker, answer) in enumerate(zip(workers, answers, strict=True))
            ]
            for each in served:
                # What it raises ends the process: the service counts as ended.
                each.result()
            connection.sendall(json.dumps({"threads": answers}).encode() + b"\n")


if __name__ == "__main__":
    main()

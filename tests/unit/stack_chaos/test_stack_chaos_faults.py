"""The faults of `bench chaos` come from their seed; its relays lose nothing but what they are told to hold back."""

from __future__ import annotations

import asyncio

import pytest

from cotenant_console.up.nats_server import LOOPBACK, free_port
from cotenant_verification.stack_chaos.cluster import SERVERS, SKEWED, STACK_SERVICES, ServerCluster
from cotenant_verification.stack_chaos.faults import FAULT_FREE_SECONDS, chosen_faults
from cotenant_verification.stack_chaos.network import Relay

WAIT_SECONDS = 60
SPAN = 600.0


def test_a_seed_is_a_schedule_and_its_end_is_quiet() -> None:
    faults = chosen_faults(7, SPAN, SERVERS, STACK_SERVICES, SKEWED)
    assert faults == chosen_faults(7, SPAN, SERVERS, STACK_SERVICES, SKEWED)
    assert faults != chosen_faults(8, SPAN, SERVERS, STACK_SERVICES, SKEWED)
    assert len(faults) > 15
    assert max(fault.at + fault.seconds for fault in faults) <= SPAN - FAULT_FREE_SECONDS


def test_ten_seeds_have_every_kind_of_fault() -> None:
    kinds = {fault.kind for seed in range(10) for fault in chosen_faults(seed, SPAN, SERVERS, STACK_SERVICES, SKEWED)}
    assert kinds == {
        "kill",
        "pause",
        "part from the other servers",
        "part from clients",
        "part from everybody",
        "fill the disk of",
        "part from all servers",
        "set the clock ahead",
        "set the clock back",
    }


async def test_a_cut_relay_holds_back_and_a_healed_one_delivers() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)

    port = free_port()
    server = await asyncio.start_server(echo, LOOPBACK, port)
    relay = Relay(free_port([port]), port)
    await relay.open()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            reader, writer = await asyncio.open_connection(LOOPBACK, relay.port)
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            relay.cut()
            writer.write(b"two")
            late, later = await asyncio.open_connection(LOOPBACK, relay.port)
            later.write(b"three")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await reader.readexactly(1)
            relay.heal()
            assert await reader.readexactly(3) == b"two"
            assert await late.readexactly(5) == b"three"
            for open_one in (writer, later):
                open_one.close()
    finally:
        await relay.close()
        server.close()


def test_every_way_between_servers_and_services_can_be_cut(tmp_path: object) -> None:
    cluster = ServerCluster(tmp_path)  # type: ignore[arg-type]
    assert len(cluster.relays_of("nats-server-1", peers=True, clients=False)) == 4
    assert len(cluster.relays_of("nats-server-1", peers=False, clients=True)) == len(STACK_SERVICES)
    assert len(cluster.relays_from("gateway-a")) == len(SERVERS)
    ports = [member.port for member in cluster.members]
    assert not {relay.port for relay in cluster.relays_from("scheduler")} & set(ports)

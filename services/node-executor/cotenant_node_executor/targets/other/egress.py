"""The traffic class of a control group's egress, by a BPF program on the group's cgroup v2 directory.

In: a group below the executor's root, an HTB class such as `1:4`; "" for none. Out: the same, read from the programs that the
kernel has attached there: each is named after its class, so that one of an earlier executor is recognized. The program writes
the class into the packet's priority, which HTB takes for a class id (tc-htb(8)); there is no need for cls_cgroup and net_cls,
which cgroup v2 does not have. Programs of others stay (BPF_F_ALLOW_MULTI). Those below the group are included; a socket belongs
to the group in which it was opened.

Needs a cgroup v2 tree, which may be without controllers beside v1, and CAP_BPF and CAP_NET_ADMIN. Bound: MOST_PROGRAMS are
looked at in a group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from cotenant_node_executor.targets.address import Attribute, EgressClass, NonCgroup
from cotenant_node_executor.targets.interface import InvalidValueError

MOST_PROGRAMS = 64
_NUMBERS = {"x86_64": 321, "aarch64": 280}
_LOAD, _ATTACH, _DETACH, _FD_BY_ID, _INFO, _QUERY = 5, 8, 9, 13, 15, 16
_CGROUP_SKB, _INET_EGRESS, _ALLOW_MULTI = 8, 1, 2
_PRIORITY_OFFSET = 32
"""Of `priority` in struct __sk_buff."""
_NAME_OFFSET, _NAME_BYTES, _INFO_BYTES = 64, 16, 128
"""Of `name` in struct bpf_prog_info."""
_PREFIX = "cotenant_"
_CLASS = re.compile(r"1:([0-9a-f]{1,4})")


class BpfCalls:
    """The parts of bpf(2) that are needed. Each raises OSError."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def load(self, name: str, priority: int) -> int:
        """Load a program that gives packets this priority and lets them pass; returns its descriptor."""
        code = (
            _instruction(0xB4, 2, 0, 0, priority)  # w2 = priority
            + _instruction(0x63, 1, 2, _PRIORITY_OFFSET, 0)  # skb->priority = w2
            + _instruction(0xB7, 0, 0, 0, 1)  # r0 = 1: pass
            + _instruction(0x95, 0, 0, 0, 0)  # return
        )
        held, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
        addresses = ctypes.addressof(held), ctypes.addressof(licence)
        attributes = struct.pack(
            "<IIQQIIQII16sII", _CGROUP_SKB, len(code) // 8, *addresses, 0, 0, 0, 0, 0, name.encode(), 0, _INET_EGRESS
        )
        return self._bpf(_LOAD, attributes)[0]

    def attach(self, directory: int, program: int) -> None:
        """Attach a program to the group's egress."""
        self._bpf(_ATTACH, struct.pack("<IIIII", directory, program, _INET_EGRESS, _ALLOW_MULTI, 0))

    def detach(self, directory: int, program: int) -> None:
        """Detach it."""
        self._bpf(_DETACH, struct.pack("<IIIII", directory, program, _INET_EGRESS, 0, 0))

    def attached(self, directory: int) -> list[int]:
        """The ids of the programs of the group itself."""
        ids = (ctypes.c_uint32 * MOST_PROGRAMS)()
        attributes = struct.pack("<IIIIQI", directory, _INET_EGRESS, 0, 0, ctypes.addressof(ids), MOST_PROGRAMS)
        _, answer = self._bpf(_QUERY, attributes)
        return list(ids[: struct.unpack_from("<I", answer, 24)[0]])

    def opened(self, program_id: int) -> int:
        """A descriptor of a program."""
        return self._bpf(_FD_BY_ID, struct.pack("<III", program_id, 0, 0))[0]

    def name(self, program: int) -> str:
        """A program's name."""
        info = ctypes.create_string_buffer(_INFO_BYTES)
        self._bpf(_INFO, struct.pack("<IIQ", program, _INFO_BYTES, ctypes.addressof(info)))
        return info.raw[_NAME_OFFSET : _NAME_OFFSET + _NAME_BYTES].split(b"\0", 1)[0].decode("ascii", "replace")

    def _bpf(self, command: int, attributes: bytes) -> tuple[int, bytes]:
        number = _NUMBERS.get(platform.machine())
        if number is None:
            raise InvalidValueError(f"BPF programs are not supported on {platform.machine()}")
        held = ctypes.create_string_buffer(attributes, len(attributes))
        result = self._libc.syscall(number, command, held, len(attributes))
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return int(result), held.raw


class EgressAccessor:
    """`directory_of`: the cgroup v2 directory of a group; None where this machine has none."""

    def __init__(self, directory_of: Callable[[str], Path | None], calls: BpfCalls | None = None) -> None:
        self._directory_of = directory_of
        self._calls = calls
        self._programs: dict[str, int] = {}
        """Descriptors by class; all groups of a class share one program."""

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The class; None where the group is gone, or there is no cgroup v2 tree. Several where a writer was killed between
        attaching one and detaching the other: none that is wanted, so that they are written again."""
        with self._opened(place) as directory:
            if directory is None:
                return None
            return " ".join(found for _, found in self._ours(directory))

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Attach the class's program, and detach others of ours."""
        if value and not _CLASS.fullmatch(value):
            raise InvalidValueError(f"traffic class {value[:20]!r}: expected one of 1:, such as 1:4")
        with self._opened(place) as directory:
            if directory is None:
                return
            before = [*self._ours(directory)]
            if value and all(found != value for _, found in before):
                self._used().attach(directory, self._program(value))
            for program_id, found in before:
                if found != value:
                    with _closing(self._used().opened(program_id)) as program:
                        self._used().detach(directory, program)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether the class is the wanted one."""
        return wanted == present

    def restore(self, place: NonCgroup, attribute: Attribute, _text: str) -> None:
        """Detach our programs."""
        self.write(place, attribute, "")

    def _used(self) -> BpfCalls:
        if self._calls is None:
            self._calls = BpfCalls()
        return self._calls

    def _program(self, value: str) -> int:
        if value not in self._programs:
            minor = int(value.removeprefix("1:"), 16)
            self._programs[value] = self._used().load(f"{_PREFIX}{minor:x}", 1 << 16 | minor)
        return self._programs[value]

    def _ours(self, directory: int) -> Iterator[tuple[int, str]]:
        for program_id in self._used().attached(directory):
            try:
                with _closing(self._used().opened(program_id)) as program:
                    name = self._used().name(program)
            except FileNotFoundError:  # it was detached just now
                continue
            if name.startswith(_PREFIX):
                yield program_id, f"1:{name.removeprefix(_PREFIX)}"

    @contextlib.contextmanager
    def _opened(self, place: NonCgroup) -> Iterator[int | None]:
        assert isinstance(place, EgressClass)
        path = self._directory_of(place.group)
        if path is None or not (path / "cgroup.controllers").exists():
            yield None
            return
        with _closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
            yield directory


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _instruction(code: int, destination: int, source: int, offset: int, immediate: int) -> bytes:
    return struct.pack("<BBhi", code, destination | source << 4, offset, immediate)

"""Scheduling attributes of threads: policy, affinity, slice, core-scheduling cookie.

In: a thread and an attribute, texts. Out: the same. OSError carries the kernel's refusal (EINVAL where it has no core
scheduling). Policy and affinity go through Python's own calls; slice and cookie through `SchedulingCalls`:

    slice    nanoseconds that the thread runs before another one may; 0 is the kernel's default, which it shows as a number.
             sched_setattr with SCHED_OTHER or SCHED_BATCH and sched_runtime; the kernel (6.12 on) takes 0.1 .. 100 ms
    cookie   the id of the thread whose cookie this one shares, 0 for none; a physical core runs threads on its
             siblings at the same time only with the same cookie (prctl PR_SCHED_CORE, 5.14 on)
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cotenant_node_executor.targets.address import Attribute, NonCgroup, Thread, ThreadAttribute
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list
from cotenant_node_executor.targets.interface import InvalidValueError

_POLICIES = {"other": os.SCHED_OTHER, "batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}
_POLICY_NAMES = {number: name for name, number in _POLICIES.items()}
_SCHED_SETATTR = {"x86_64": (314, 315), "aarch64": (274, 275)}
_PR_SCHED_CORE = 62
_GET, _CREATE, _SHARE_TO, _SHARE_FROM = 0, 1, 2, 3
_ONE_THREAD, _ONE_PROCESS = 0, 1


class _Attributes(ctypes.Structure):
    """struct sched_attr, as of Linux 5.3."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
        ("util_min", ctypes.c_uint32),
        ("util_max", ctypes.c_uint32),
    )


class SchedulingCalls:
    """The kernel's calls that Python does not have. Each raises OSError."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def slice_of(self, tid: int) -> int:
        """Return the slice in nanoseconds, 0 where the kernel does not show one."""
        return int(self._attributes(tid).runtime)

    def set_slice(self, tid: int, nanoseconds: int) -> None:
        """Give the thread a slice; policy and nice value stay."""
        attributes = self._attributes(tid)
        attributes.runtime, attributes.deadline, attributes.period = nanoseconds, 0, 0
        self._checked(self._libc.syscall(self._numbers()[0], tid, ctypes.byref(attributes), 0))

    def cookie_of(self, tid: int) -> int:
        """Return the thread's cookie, 0 for none."""
        cookie = ctypes.c_ulonglong()
        self._core(_GET, tid, ctypes.byref(cookie))
        return int(cookie.value)

    def new_cookie(self, tid: int) -> None:
        """Give the thread a cookie that no other has."""
        self._core(_CREATE, tid, None)

    def new_process_cookie(self, pid: int) -> None:
        """Give all threads of a process a cookie that no other has."""
        self._core(_CREATE, pid, None, _ONE_PROCESS)

    def share_process_cookie(self, source: int, pid: int) -> None:
        """Give all threads of a process the cookie of another's first thread, or none where `source` is 0."""
        self._copied(source, pid, _ONE_PROCESS)

    def share_cookie(self, source: int, tid: int) -> None:
        """Give the thread the cookie of another, or none where `source` is 0."""
        self._copied(source, tid, _ONE_THREAD)

    def _copied(self, source: int, target: int, scope: int) -> None:
        """Copy a cookie. The kernel copies from and to the calling thread: that is one of its own, which ends with it."""

        def copy() -> None:
            if source:
                self._core(_SHARE_FROM, source, None)
            self._core(_SHARE_TO, target, None, scope)

        with ThreadPoolExecutor(1) as caller:
            caller.submit(copy).result()

    def _attributes(self, tid: int) -> _Attributes:
        attributes = _Attributes()
        size = ctypes.sizeof(attributes)
        self._checked(self._libc.syscall(self._numbers()[1], tid, ctypes.byref(attributes), size, 0))
        attributes.size = size
        return attributes

    @staticmethod
    def _numbers() -> tuple[int, int]:
        numbers = _SCHED_SETATTR.get(platform.machine())
        if numbers is None:
            raise InvalidValueError(f"slices of threads are not supported on {platform.machine()}")
        return numbers

    def _core(self, operation: int, tid: int, cookie: object, scope: int = _ONE_THREAD) -> None:
        self._checked(self._libc.prctl(_PR_SCHED_CORE, operation, tid, scope, cookie))

    @staticmethod
    def _checked(result: int) -> None:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


class ThreadAccessor:
    """Scheduling attributes of this host's threads, by system call."""

    def __init__(self, calls: SchedulingCalls | None = None) -> None:
        self._calls = calls or SchedulingCalls()
        self._readers: dict[Attribute, Callable[[int], str]] = {
            ThreadAttribute.POLICY: _policy_of,
            ThreadAttribute.AFFINITY: lambda tid: format_cpu_list(os.sched_getaffinity(tid)),
            ThreadAttribute.SLICE: lambda tid: str(self._calls.slice_of(tid)),
            ThreadAttribute.COOKIE: lambda tid: str(self._calls.cookie_of(tid)),
        }
        self._writers: dict[Attribute, Callable[[int, str], None]] = {
            ThreadAttribute.POLICY: _set_policy,
            ThreadAttribute.AFFINITY: _set_affinity,
            ThreadAttribute.SLICE: lambda tid, value: self._calls.set_slice(tid, _number(value, "slice in nanoseconds")),
            ThreadAttribute.COOKIE: self._set_cookie,
        }

    def read(self, place: NonCgroup, attribute: Attribute) -> str | None:
        """The policy's name, the affinity as a CPU list, the slice in nanoseconds, or the kernel's number of the cookie."""
        assert isinstance(place, Thread)
        try:
            return self._readers[attribute](place.tid)
        except ProcessLookupError:
            return None

    def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
        """Set one attribute of one thread."""
        assert isinstance(place, Thread)
        self._writers[attribute](place.tid, value)

    def holds(self, attribute: Attribute, wanted: str, present: str) -> bool:
        """CPU lists are compared as sets; a cookie with that of the named thread; the default slice is that of the caller."""
        if attribute is ThreadAttribute.AFFINITY:
            return parse_cpu_list(wanted) == parse_cpu_list(present)
        if attribute is ThreadAttribute.SLICE:
            return present == (wanted if wanted != "0" else str(self._calls.slice_of(0)))
        if attribute is ThreadAttribute.COOKIE and wanted != "0":
            return present != "0" and str(self._calls.cookie_of(_number(wanted, "thread id"))) == present
        return wanted == present

    def restore(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Restore the thread's affinity, every CPU if its group has none of those any more; or its slice, the default
        if it had that."""
        assert isinstance(place, Thread)
        if attribute is ThreadAttribute.SLICE and text == str(self._calls.slice_of(0)):
            text = "0"
        try:
            self.write(place, attribute, text)
        except OSError as error:
            if attribute is not ThreadAttribute.AFFINITY or error.errno != errno.EINVAL:
                raise
            os.sched_setaffinity(place.tid, range(os.cpu_count() or 1))

    def _set_cookie(self, tid: int, value: str) -> None:
        source = _number(value, "thread id")
        if source and not self._calls.cookie_of(source):
            self._calls.new_cookie(source)
        if source != tid:
            self._calls.share_cookie(source, tid)


PROBED_SLICE_NS = 20_000_000


def honours_slices() -> bool:
    """Whether this kernel accepts a slice per thread, tried on a short-lived one. Raises OSError if the call fails."""
    calls = SchedulingCalls()

    def tried() -> bool:
        calls.set_slice(0, PROBED_SLICE_NS)
        return calls.slice_of(0) == PROBED_SLICE_NS

    with ThreadPoolExecutor(1) as caller:
        return caller.submit(tried).result()


def _policy_of(tid: int) -> str:
    number = os.sched_getscheduler(tid)
    return _POLICY_NAMES.get(number, str(number))


def _set_policy(tid: int, value: str) -> None:
    if value not in _POLICIES:
        raise InvalidValueError(f"policy {value!r}: expected one of {', '.join(_POLICIES)}")
    os.sched_setscheduler(tid, _POLICIES[value], os.sched_param(0))


def _set_affinity(tid: int, value: str) -> None:
    try:
        cpus = parse_cpu_list(value)
    except ValueError as error:
        raise InvalidValueError(str(error)) from error
    os.sched_setaffinity(tid, cpus)


def _number(value: str, what: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise InvalidValueError(f"{what} {value[:20]!r}: expected a number")
    return int(value)

"""The last step before a container's program: join its control groups, set oom_score_adj, mount private folders for
temporary files, drop every privilege, exec.

In: the path of a JSON document {argv, env, cwd, uid, gid, procs, pid_file, error_file, oom_score_adj, private_bytes}. The
program replaces this process. Where the executor is root, the program sees empty /tmp, /var/tmp and /dev/shm of its own (a
mount namespace; `private_bytes` each, which count to its group's memory), and neither it nor anything that it starts can ever
hold a capability: the bounding set is empty, and no_new_privs keeps set-uid programs and file capabilities from giving any. A
failure is written to `error_file` and exits with 126 (cannot be run) or 127 (not found), as in a shell.
Run as `python -I -S launch.py DOCUMENT`: standard library only, no project code, one process per container start.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from typing import NoReturn

PR_CAPBSET_READ, PR_CAPBSET_DROP = 23, 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
MAX_CAPABILITIES = 64
CLONE_NEWNS = 0x0002_0000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x4_0000
PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
LIMITS = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 65_536), (resource.RLIMIT_MEMLOCK, 8 << 20))
"""Core dumps, open files, locked bytes; where the executor's own limit is lower, that one."""
CANNOT_RUN = 126
NOT_FOUND = 127


def _called(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def hide_temporary_files(libc: ctypes.CDLL, private_bytes: int, needed: list[str]) -> None:
    """Mount empty folders over those that all users of the machine write to, except one that holds a needed path: the
    program, its arguments, its working directory."""
    _called(libc.unshare(CLONE_NEWNS), "a mount namespace")
    _called(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    options = f"size={private_bytes},mode=1777".encode()
    for folder in PRIVATE_FOLDERS:
        if os.path.isdir(folder) and not any(f"{path}/".startswith(f"{folder}/") for path in needed):
            _called(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options), folder)


def limit_resources() -> None:
    """Set the limits of a program, none above the executor's own."""
    for kind, most in LIMITS:
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def drop_privileges(libc: ctypes.CDLL, uid: int, gid: int) -> None:
    """Switch to the container's user irrevocably: no program can gain a capability afterwards."""
    if os.geteuid() == 0:
        for capability in range(MAX_CAPABILITIES):
            if libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
                _called(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "the bounding set")
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    _called(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def launch(document: str) -> NoReturn:
    """Join the control groups, drop privileges, exec."""
    with open(document, encoding="utf-8") as file:
        spec = json.load(file)
    error_file: str = spec["error_file"]
    # The descriptor stays open across the change of user, so the container's user needs no write permission on the file.
    try:
        errors = open(error_file, "w", encoding="utf-8")  # noqa: SIM115 - closed by exec
    except OSError as error:
        print(f"cannot start: {error}", file=sys.stderr)
        os._exit(CANNOT_RUN)

    def refuse(message: str, code: int) -> NoReturn:
        errors.write(message)
        errors.flush()
        os._exit(code)

    for path in spec["procs"]:
        try:
            with open(path, "a", encoding="ascii") as file:
                file.write(f"{os.getpid()}\n")
        except OSError as error:
            refuse(f"cannot join the control group {path}: {error.strerror}", CANNOT_RUN)
    # Lowering oom_score_adj requires CAP_SYS_RESOURCE; without it the inherited value stays.
    with contextlib.suppress(PermissionError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(spec["oom_score_adj"]))
    with open(spec["pid_file"] + ".new", "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
    os.rename(spec["pid_file"] + ".new", spec["pid_file"])
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if os.geteuid() == 0:
            hide_temporary_files(libc, spec["private_bytes"], [*spec["argv"], spec["cwd"]])
    except OSError as error:
        refuse(f"no folders of its own for temporary files: {error.strerror}", CANNOT_RUN)
    try:
        limit_resources()
        drop_privileges(libc, spec["uid"], spec["gid"])
        os.chdir(spec["cwd"])
    except OSError as error:
        refuse(f"cannot become user {spec['uid']} in {spec['cwd']}: {error.strerror}", CANNOT_RUN)
    # Python ignores SIGPIPE and SIGXFSZ, and the program would inherit that across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.umask(0o022)
    program = spec["argv"][0]
    try:
        os.execvpe(program, spec["argv"], spec["env"])
    except FileNotFoundError:
        refuse(f"{program}: no such program on this node", NOT_FOUND)
    except OSError as error:
        refuse(f"{program}: {error.strerror}", CANNOT_RUN)


if __name__ == "__main__":
    launch(sys.argv[1])

"""The last step before a container's program: join its control groups, set oom_score_adj, drop root privileges, exec.

In: the path of a JSON document {argv, env, cwd, uid, gid, procs, pid_file, error_file, oom_score_adj}. The program replaces
this process. A failure is written to `error_file` and exits with 126 (cannot be run) or 127 (not found), as in a shell.
Run as `python -I -S launch.py DOCUMENT`: standard library only, no project code, one process per container start.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import NoReturn

PR_SET_NO_NEW_PRIVS = 38
CANNOT_RUN = 126
NOT_FOUND = 127


def drop_privileges(uid: int, gid: int) -> None:
    """Switch to the container's user irrevocably: drop supplementary groups, and set no_new_privs against set-uid programs."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"no_new_privs: {os.strerror(error)}")


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
    try:
        drop_privileges(spec["uid"], spec["gid"])
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

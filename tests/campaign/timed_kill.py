"""SIGKILL from the kernel, when the process has used some processor time.

On a busy machine a process that shall be killed may end long before the one that is to kill it gets
its turn. Processor time is also the better measure of how far an operation has come.
"""

from __future__ import annotations

import ctypes
import os
import signal

_CLOCK_PROCESS_CPUTIME_ID = 2
_SIGEV_SIGNAL = 0
_NANOSECONDS = 10**9


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


def kill_after(cpu_seconds: float) -> None:
    """Let the kernel kill this process when all its threads have used this much time from now."""
    if cpu_seconds <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
    library = ctypes.CDLL(None, use_errno=True)
    timer = ctypes.c_void_p()
    event = _Event(signal=signal.SIGKILL, notify=_SIGEV_SIGNAL)
    clock = _CLOCK_PROCESS_CPUTIME_ID
    _check(library.timer_create(clock, ctypes.byref(event), ctypes.byref(timer)))
    seconds, part = divmod(max(round(cpu_seconds * _NANOSECONDS), 1), _NANOSECONDS)
    setting = _Setting(value=_Time(seconds=seconds, nanoseconds=part))
    _check(library.timer_settime(timer, 0, ctypes.byref(setting), None))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

# SPDX-License-Identifier: Apache-2.0
"""Who may use an object of the library's, and when it may be freed.

A :class:`Handle` is the address of a store, device or worker. A call counts itself in before it
reads the address and out when it has returned; closing takes the address away first and then waits
for those calls. ``list.append`` and ``list.pop`` are the counter: both are atomic, and there is no
lock that a fork could leave locked.
"""
from __future__ import annotations

import ctypes
import os
import time
import warnings
from typing import Callable, List, Optional

from .errors import BusyError, ClosedError, Error

# A blocking call returns to the interpreter this often, so that signals (Ctrl-C) and a close on
# another thread are seen.
SLICE_MS = 100
# How long the end of the interpreter, or of an owner that was not closed, waits for what is in
# flight.
exit_timeout_ms = 10_000

# What was still in use by the library when its owner went away: never freed.
_abandoned: List[object] = []


def deadline(timeout_ms: Optional[int]) -> Optional[float]:
    """When a time limit is up; None for none (a negative one, or None)."""
    if timeout_ms is None or timeout_ms < 0:
        return None
    return time.monotonic() + timeout_ms / 1000.0


def slice_ms(until: Optional[float]) -> int:
    """How long the next blocking call may take; 0 when the time is up."""
    if until is None:
        return SLICE_MS
    left = (until - time.monotonic()) * 1000.0
    return 0 if left <= 0 else min(SLICE_MS, int(left) + 1)


class Handle:
    """The address of one object of the library's; 0 once it is closed."""

    __slots__ = ("what", "address", "calls", "pid", "keep", "__weakref__")

    def __init__(self, what: str, address: int, keep: object = None) -> None:
        self.what = what
        self.address = address
        self.calls: List[None] = []
        self.pid = os.getpid()
        # What the library holds pointers to: callbacks, other handles' owners, memory.
        self.keep = keep

    def enter(self) -> int:
        """Counts a call in and returns the address; leave() must follow when it returns."""
        self.calls.append(None)
        address = self.address
        if not address:
            self.calls.pop()
            raise ClosedError("%s: closed" % self.what)
        return address

    def leave(self) -> None:
        self.calls.pop()

    def __enter__(self) -> int:
        return self.enter()

    def __exit__(self, *_: object) -> None:
        self.calls.pop()

    def close(self, free: Callable[[int], int], failure: Callable[[int], Error],
              timeout_ms: Optional[int] = None) -> None:
        """Takes the address away, waits for the calls that use it and frees it. When the time is
        up, or `free` fails, the address is put back and the exception raised."""
        address = self.address
        if not address:
            return
        self.address = 0
        try:
            self._wait_for_calls(timeout_ms)
            code = free(address)
        except BaseException:
            self.address = address
            raise
        if code < 0:
            self.address = address
            raise failure(code)
        self.keep = None

    def _wait_for_calls(self, timeout_ms: Optional[int]) -> None:
        # In a forked child the other threads, and so their calls, are gone.
        if os.getpid() != self.pid:
            return
        until = deadline(timeout_ms)
        while self.calls:
            if until is not None and time.monotonic() >= until:
                raise BusyError("%s: used by another thread" % self.what, -8)
            time.sleep(0.001)

    def abandon(self) -> None:
        """Gives up on freeing it: what the library may still touch stays where it is, also while
        the interpreter tears itself down."""
        _abandoned.append(self.keep)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.keep))


def finalize(handle: Handle, close: Callable[[Handle, Optional[int]], None]) -> None:
    """Closes what was not closed: when its owner is collected, and at the interpreter's exit."""
    if not handle.address:
        return
    try:
        close(handle, exit_timeout_ms)
    except Error as error:
        handle.abandon()
        warnings.warn("kvtier: %s: left open: %s" % (handle.what, error), ResourceWarning,
                      stacklevel=2)

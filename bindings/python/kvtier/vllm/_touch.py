# SPDX-License-Identifier: Apache-2.0
"""Recency of chunks that requests use without loading them (vLLM has them in a nearer tier), so
that a store with a limit (``max_bytes``) removes others first.

Only file stores keep it, as the access time of files. The calls to the file system are made on a
thread of their own; a chunk is touched at most once in an interval, and what does not fit the
queue is left out, for recency is a hint.
"""
from __future__ import annotations

import ctypes
import os
import queue
import threading
import time
from typing import Callable, Collection, Dict, Optional

_QUEUED = 4096
_REMEMBERED = 65536
_UTIME_NOW = (1 << 30) - 1
_UTIME_OMIT = (1 << 30) - 2
_AT_SYMLINK_NOFOLLOW = 0x100


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


_TIMES = (_Timespec * 2)(_Timespec(0, _UTIME_NOW), _Timespec(0, _UTIME_OMIT))


class Toucher:
    """Touches files below `root`; name_of gives the name of a key's object below it."""

    def __init__(self, root: str, name_of: Callable[[bytes], str], interval_s: float) -> None:
        self._name_of = name_of
        self._interval_s = interval_s
        self._touched: Dict[bytes, float] = {}
        self._queue: "queue.Queue[Optional[list]]" = queue.Queue(_QUEUED)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="kvtier-touch", daemon=True)
        self._thread.start()

    def touch(self, keys: Collection[bytes]) -> None:
        """Never blocks."""
        now = time.monotonic()
        touched = self._touched
        old = now - self._interval_s
        due = [key for key in keys if touched.get(key, old) <= old]
        if not due:
            return
        if len(touched) > _REMEMBERED:
            touched.clear()
        try:
            self._queue.put_nowait(due)
        except queue.Full:
            return
        touched.update(dict.fromkeys(due, now))

    def _run(self) -> None:
        while True:
            keys = self._queue.get()
            for key in keys or ():
                # One that is not there has nothing to be touched; other failures are hints lost.
                name = os.fsencode(self._name_of(key))
                self._libc.utimensat(self._root, name, _TIMES, _AT_SYMLINK_NOFOLLOW)
            self._queue.task_done()
            if keys is None:
                return

    def close(self) -> None:
        """Touches what is queued first."""
        if self._root < 0:
            return
        self._queue.put(None)
        self._thread.join()
        os.close(self._root)
        self._root = -1

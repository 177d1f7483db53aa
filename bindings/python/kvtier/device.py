# SPDX-License-Identifier: Apache-2.0
"""Devices: the memory that chunks live in, and completions of what their streams were given."""
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, List, Optional

from . import _abi
from ._handle import Handle, deadline, finalize, slice_ms
from .errors import Code, InvalidArgumentError
from .store import ProbeLine, collect_probe


def _options(name: str, ordinal: int) -> _abi.DeviceOptions:
    if not 0 <= ordinal < 1 << 32:
        raise InvalidArgumentError("ordinal: %d, expected 0 to 2^32 - 1" % ordinal)
    return _abi.DeviceOptions(name=name.encode(), ordinal=ordinal)


def probe_device(name: str = "host", ordinal: int = 0,
                 callback: Optional[Callable[[ProbeLine], Any]] = None) -> List[ProbeLine]:
    """What a device is and whether it can be used, without opening it. Raises what
    :class:`Device` would; the callback, called for each line as it comes, sees what came before.
    Blocks."""
    options = ctypes.byref(_options(name, ordinal))
    return collect_probe(
        lambda function: _abi.lib.kvt_device_probe(options, function, None), callback)


def _device_close(handle: Handle, timeout_ms: Optional[int]) -> None:
    handle.close(_abi.lib.kvt_device_close, _abi.failure, timeout_ms)


class Device:
    """The memory that chunks live in: ``"host"``, or ``"cuda"`` where the library has it."""

    def __init__(self, name: str = "host", ordinal: int = 0) -> None:
        address = ctypes.c_void_p()
        _abi.check(_abi.lib.kvt_device_open(ctypes.byref(_options(name, ordinal)),
                                            ctypes.byref(address)))
        self.name = name
        self.ordinal = ordinal
        self._handle = Handle("device %s" % name, address.value or 0)
        self._finalizer = weakref.finalize(self, finalize, self._handle, _device_close)

    def close(self) -> None:
        """:class:`BusyError` while a worker or a :class:`StreamCompletion` uses it. Closing twice
        is fine."""
        _device_close(self._handle, None)
        self._finalizer.detach()

    @property
    def closed(self) -> bool:
        return not self._handle.address

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _release(address: int) -> int:
    _abi.quick.kvt_stream_completion_release(address)
    return 0


def _completion_close(handle: Handle, timeout_ms: Optional[int]) -> None:
    handle.close(_release, _abi.failure, timeout_ms)


class StreamCompletion:
    """Completes once everything that a stream of the device was given before this object was made
    is done: for callers who chain device work of their own after a load, or before a store.

    `stream` is the number of a CUstream (``torch.cuda.Stream.cuda_stream``; 0 is the legacy
    default stream). No thread waits for it, and making it never waits. Any thread may ask and
    wait.
    """

    def __init__(self, device: Device, stream: int) -> None:
        address = ctypes.c_void_p()
        with device._handle as device_at:
            code = _abi.quick.kvt_stream_completion_create(device_at, stream,
                                                           ctypes.byref(address))
        _abi.check(code)
        self._handle = Handle("stream completion", address.value or 0, device)
        self._finalizer = weakref.finalize(self, finalize, self._handle, _completion_close)

    def done(self) -> bool:
        """Whether it is done; raises when the device has failed. Never waits."""
        with self._handle as address:
            code = _abi.quick.kvt_stream_completion_done(address)
        return bool(_abi.check(code))

    def wait(self, timeout_ms: int = -1) -> bool:
        """Waits, at most `timeout_ms` (negative: for ever); whether it is done. Raises when the
        device has failed."""
        until = deadline(timeout_ms)
        while True:
            wait = slice_ms(until)
            with self._handle as address:
                code = _abi.lib.kvt_stream_completion_wait(address, wait)
            if code != Code.ETIMEDOUT:
                _abi.check(code)
                return True
            if not wait or slice_ms(until) == 0:
                return False

    @property
    def event(self) -> int:
        """The number of the event behind it (a CUevent), for waits of the caller's own and for
        ``Ready.event(completion.event, keep=completion)``. Valid until :meth:`close`."""
        with self._handle as address:
            return _abi.quick.kvt_stream_completion_event(address) or 0

    def close(self) -> None:
        """Lets go of it, done or not; the device's work goes on. A job that was given its event
        must have completed before. Closing twice is fine."""
        _completion_close(self._handle, None)
        self._finalizer.detach()

    @property
    def closed(self) -> bool:
        return not self._handle.address

    def __enter__(self) -> "StreamCompletion":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

# SPDX-License-Identifier: Apache-2.0
"""Memory that jobs move: rows of a host buffer, arrays of device pointers, and when it is ready."""
from __future__ import annotations

import ctypes
import weakref
from array import array
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _abi
from ._handle import Handle, finalize
from .errors import BusyError, ClosedError, Code, InvalidArgumentError

Numbers = Union[Sequence[int], "array[int]", memoryview, Any]

_WORD_CODES = frozenset("qQlLnN") if ctypes.sizeof(ctypes.c_long) == 8 else frozenset("qQnN")


def words(numbers: Numbers, what: str, signed: bool) -> Tuple[int, int, object]:
    """64-bit numbers as the library takes them: address, count, and the object that must live
    until the call has returned. numpy arrays and array.array of 64-bit integers are not copied."""
    if type(numbers) is array:
        if numbers.typecode in _WORD_CODES:
            address, count = numbers.buffer_info()
            return address, count, numbers
    else:
        interface = getattr(numbers, "__array_interface__", None)
        if interface is not None:
            kind = interface["typestr"]
            if len(interface["shape"]) != 1 or kind[1] not in "iu":
                raise InvalidArgumentError(
                    "%s: an array of type %s and %d dimensions, expected integers in one"
                    % (what, kind, len(interface["shape"])))
            if interface["strides"] is None and kind[0] != ">" and kind[2:] == "8":
                return interface["data"][0], interface["shape"][0], numbers
            numbers = numbers.tolist()
    try:
        copy = array("q" if signed else "Q", numbers)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError("%s: %s, expected %s 64-bit integers"
                                   % (what, error, "signed" if signed else "unsigned")) from None
    return copy.buffer_info()[0], len(copy), copy


def writable_view(buffer: Any, what: str) -> memoryview:
    """The memory of a writable and contiguous buffer, which stays exported until the view is
    released."""
    try:
        view = memoryview(buffer)
    except TypeError:
        raise InvalidArgumentError("%s: %s, expected a writable buffer"
                                   % (what, type(buffer).__name__)) from None
    if view.readonly:
        raise InvalidArgumentError("%s: the %s is read-only, expected a writable buffer"
                                   % (what, type(buffer).__name__))
    if not view.c_contiguous:
        raise InvalidArgumentError("%s: the %s is not contiguous" % (what, type(buffer).__name__))
    return view


def address_of(view: memoryview) -> int:
    """Where its memory lies."""
    # The object made by from_buffer exports the buffer, and goes at the end of the line.
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


class Rows:
    """Rows of one host buffer: row ``i`` is ``row_bytes`` bytes from ``i * row_bytes`` on.

    `buffer` is anything writable and contiguous: bytearray, memoryview, numpy array, mmap,
    multiprocessing's shared memory. A two-dimensional one has its own row length; else `row_bytes`
    says it.

    With ``hold`` (the default) the buffer is exported until :meth:`close`, so that it cannot go
    away or be resized (bytearray, mmap) while jobs use it. Without, only its address is kept and
    the object itself: whoever owns it must neither resize nor unmap it while a job is in flight,
    and may release it at any other time. Jobs in flight keep this object alive, and
    :meth:`close` refuses to let go while there are some.
    """

    __slots__ = ("address", "row_bytes", "row_count", "nbytes", "_held", "_owner", "_jobs",
                 "__weakref__")

    def __init__(self, buffer: Any, row_bytes: Optional[int] = None, *,
                 hold: bool = True) -> None:
        view = writable_view(buffer, "rows")
        if row_bytes is None:
            if view.ndim != 2 or view.strides is None:
                raise InvalidArgumentError("rows: row_bytes missing, which only a buffer of two "
                                           "dimensions has by itself")
            row_bytes = view.strides[0]
        if row_bytes <= 0 or view.nbytes < row_bytes:
            raise InvalidArgumentError("rows: row_bytes is %d, expected 1 to the buffer's %d bytes"
                                       % (row_bytes, view.nbytes))
        self.address: int = address_of(view)
        self.row_bytes: int = row_bytes
        self.row_count: int = view.nbytes // row_bytes
        self.nbytes: int = view.nbytes
        self._owner: object = buffer
        self._held: Optional[memoryview] = view if hold else None
        if not hold:
            view.release()
        self._jobs: List[None] = []

    def close(self) -> None:
        """Lets go of the buffer. :class:`BusyError` while jobs use it. Closing twice is fine."""
        if self._jobs:
            raise BusyError("rows: %d jobs are using them" % len(self._jobs), Code.EBUSY)
        self.address = 0
        self._owner = None
        if self._held is not None:
            self._held.release()
            self._held = None

    @property
    def closed(self) -> bool:
        return self.address == 0

    def checked_address(self) -> int:
        """The address of row 0; raises once they are closed."""
        if not self.address:
            raise ClosedError("rows: closed")
        return self.address

    def __enter__(self) -> "Rows":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvtier.Rows %d rows of %d bytes at 0x%x>" % (self.row_count, self.row_bytes,
                                                             self.address)


def _event_destroy(handle: Handle, _timeout_ms: Optional[int]) -> None:
    _abi.lib.kvt_event_destroy(handle.address)
    handle.address = 0


class Event:
    """An event for plain memory, signalled once, from any thread: see :class:`Ready`. Jobs that
    were given it keep it alive."""

    def __init__(self) -> None:
        address = ctypes.c_void_p()
        _abi.check(_abi.lib.kvt_event_create(ctypes.byref(address)))
        self._handle = Handle("event", address.value or 0)
        self._finalizer = weakref.finalize(self, finalize, self._handle, _event_destroy)
        # At exit jobs that still wait for it may be alive.
        self._finalizer.atexit = False

    def signal(self) -> None:
        _abi.quick.kvt_event_signal(self._handle.address)

    @property
    def address(self) -> int:
        return self._handle.address


class Ready:
    """When the memory of a job becomes valid (stores) or free to be overwritten (loads). Made by
    one of the three functions below."""

    __slots__ = ("kind", "descriptor", "handle", "_keep")

    def __init__(self, kind: int, descriptor: int, handle: int, keep: object) -> None:
        self.kind = kind
        self.descriptor = descriptor
        self.handle = handle
        self._keep = keep

    @classmethod
    def fd(cls, descriptor: int) -> "Ready":
        """Once the descriptor is readable (an eventfd, a pipe's end); it is not read. Lent until
        the job's completion."""
        return cls(1, descriptor, 0, None)

    @classmethod
    def event(cls, event: Union[Event, int], keep: object = None) -> "Ready":
        """Once the event has happened: an :class:`Event` for plain memory, the number of a CUevent
        (``torch.cuda.Event.cuda_event``) for "cuda". `keep` lives until the completion."""
        if isinstance(event, Event):
            return cls(2, 0, event.address, event)
        return cls(2, 0, event, keep)

    @classmethod
    def stream(cls, handle: int, keep: object = None) -> "Ready":
        """Once all that the stream was given so far has happened: the number of a CUstream
        (``torch.cuda.Stream.cuda_stream``). "cuda" only."""
        return cls(3, 0, handle, keep)

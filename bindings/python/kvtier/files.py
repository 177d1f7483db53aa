# SPDX-License-Identifier: Apache-2.0
"""Raw files: the extension point of vLLM's file workers, and its stand-alone file calls."""
from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _abi
from ._handle import Handle, deadline, slice_ms
from .errors import BusyError, Code, DeadlineError, Error, InvalidArgumentError
from .memory import Numbers, words

Path = Union[str, bytes, "os.PathLike[str]"]


class FileOps(NamedTuple):
    """The copies of one raw file: `ops` are (device pointer, bytes, file offset). `path` is
    relative to the store's root, without "." and ".." components."""

    path: Path
    ops: Sequence[Tuple[int, int, int]]


def _path_bytes(path: Path) -> bytes:
    value = os.fsencode(path)
    if b"\0" in value:
        raise InvalidArgumentError("path: %r has a NUL byte" % path)
    return value


class _Pending:
    """The address of a completion and what its file uses."""

    __slots__ = ("address", "keep")

    def __init__(self, address: int, keep: object) -> None:
        self.address = address
        self.keep = keep


# By address: the completions that the library may still have to finish, and what their files use.
files_in_flight: Dict[int, _Pending] = {}
# Those of them that nobody holds any more.
_given_up: List[_Pending] = []


def _release(pending: _Pending) -> None:
    """Frees completions that are done, this one or earlier ones; keeps the rest for later."""
    _given_up.append(pending)
    for _ in range(len(_given_up)):
        try:
            one = _given_up.pop(0)
        except IndexError:
            return
        if _abi.quick.kvt_io_completion_done(one.address):
            files_in_flight.pop(one.address, None)
            _abi.quick.kvt_io_completion_release(one.address)
        else:
            _given_up.append(one)


class IOCompletion:
    """The completion of one raw file, with the two methods of a future: :meth:`done` and
    :meth:`result`. What the file uses stays alive until it is done, also when this object goes."""

    __slots__ = ("path", "_pending", "_finalizer", "__weakref__")

    def __init__(self, path: str, address: int, keep: object) -> None:
        self.path = path
        self._pending = _Pending(address, keep)
        files_in_flight[address] = self._pending
        self._finalizer = weakref.finalize(self, _release, self._pending)
        self._finalizer.atexit = False

    def done(self) -> bool:
        """Whether the file is finished. Never blocks."""
        return bool(_abi.quick.kvt_io_completion_done(self._pending.address))

    def wait(self, timeout_ms: int = -1) -> bool:
        """Waits, at most `timeout_ms` (negative: for ever); whether the file is finished."""
        until = deadline(timeout_ms)
        while True:
            wait = slice_ms(until)
            code = _abi.lib.kvt_io_completion_wait(self._pending.address, wait)
            if code != Code.ETIMEDOUT:
                _abi.check(code)
                return True
            if not wait or slice_ms(until) == 0:
                return False

    def exception(self) -> Optional[Error]:
        """The failure of a finished file, or None; raises :class:`BusyError` before."""
        if not self.done():
            raise BusyError("%s: not finished" % self.path, Code.EBUSY)
        detail = ctypes.c_char_p()
        code = _abi.quick.kvt_io_completion_result(self._pending.address, ctypes.byref(detail))
        if code == 0:
            return None
        error = _abi.failure(code)
        if detail.value:
            error = type(error)(_abi.text(detail.value), code)
        return error

    def result(self, timeout: Optional[float] = None) -> None:
        """Waits, at most `timeout` seconds (None: for ever), and raises the file's failure, or
        :class:`DeadlineError` when the time was up."""
        if not self.wait(-1 if timeout is None else int(timeout * 1000)):
            raise DeadlineError("%s: not finished within %g s" % (self.path, timeout or 0),
                                Code.ETIMEDOUT)
        error = self.exception()
        if error is not None:
            raise error


def submit_files(handle: Handle, files: Sequence[FileOps], is_store: bool,
                 options: Optional[bytes], keep: object) -> List[IOCompletion]:
    """One completion for each file."""
    files = [FileOps(*f) for f in files]
    count = len(files)
    if not count:
        with handle:
            return []
    paths = [_path_bytes(f.path) for f in files]
    pointers = (ctypes.c_char_p * count)(*paths)
    path_at = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))
    total = 0
    try:
        flat = b"".join(_abi.FILE_OP.pack(*op) for f in files for op in f.ops)
        ops = (ctypes.c_char * len(flat)).from_buffer_copy(flat) if flat else None
        ops_at = ctypes.addressof(ops) if ops is not None else 0
        natives = []
        for i, f in enumerate(files):
            natives.append(_abi.FILE_OPS.pack(path_at[i], ops_at + total * _abi.FILE_OP.size,
                                              len(f.ops)))
            total += len(f.ops)
    except (_abi.struct.error, TypeError) as error:
        raise InvalidArgumentError("ops: %s, expected (pointer, bytes, offset)" % error) from None
    native = b"".join(natives)
    completions = (ctypes.c_void_p * count)()
    library = _abi.quick if total < _abi.MANY_KEYS else _abi.lib
    with handle as address:
        code = library.kvt_worker_submit_ops(address, ctypes.cast(native, ctypes.c_void_p), count,
                                             int(is_store), options, completions)
    _abi.check(code)
    return [IOCompletion(os.fsdecode(paths[i]), completions[i], keep) for i in range(count)]


def probe_o_direct(directory: Path) -> bool:
    """Whether O_DIRECT works in a directory. Blocks."""
    return bool(_abi.check(_abi.lib.kvt_probe_o_direct(_path_bytes(directory))))


def _batch(name: str, paths: Sequence[Path], buffer: Any, offsets: Numbers, block_bytes: int,
           o_direct: bool) -> int:
    view = memoryview(buffer)
    if view.readonly:
        raise InvalidArgumentError("buffer: read-only, expected a writable one")
    if not view.c_contiguous:
        raise InvalidArgumentError("buffer: not contiguous")
    natives = (ctypes.c_char_p * max(len(paths), 1))(*[_path_bytes(p) for p in paths])
    offsets_at, count, kept = words(offsets, "offsets", False)
    if count != len(paths):
        raise InvalidArgumentError("offsets: %d numbers, expected one for each of %d paths"
                                   % (count, len(paths)))
    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else None
    result = _abi.BatchResult()
    code = getattr(_abi.lib, name)(natives, address, view.nbytes, offsets_at or None, count,
                                   block_bytes, int(o_direct), ctypes.byref(result))
    del kept
    if code < 0:
        error = _abi.failure(code)
        error.succeeded = result.succeeded  # type: ignore[attr-defined]
        error.error_index = result.error_index  # type: ignore[attr-defined]
        raise error
    return int(result.succeeded)


def batch_store_blocks(paths: Sequence[Path], buffer: Any, offsets: Numbers, block_bytes: int,
                       o_direct: bool = False) -> int:
    """Stores blocks of one buffer as plain raw files: block ``i`` is `block_bytes` from
    ``offsets[i]`` on and its file ``paths[i]``. Blocks; stops at the first error, whose exception
    has ``succeeded`` and ``error_index``. An existing path is left alone; else the file appears in
    one step. `o_direct` is a wish."""
    return _batch("kvt_batch_store_block", paths, buffer, offsets, block_bytes, o_direct)


def batch_load_blocks(paths: Sequence[Path], buffer: Any, offsets: Numbers, block_bytes: int,
                      o_direct: bool = False) -> int:
    """Loads blocks of one buffer from plain raw files. A file shorter than a block fails and is
    removed, a longer one is accepted. Otherwise as :func:`batch_store_blocks`."""
    return _batch("kvt_batch_load_block", paths, buffer, offsets, block_bytes, o_direct)

# SPDX-License-Identifier: Apache-2.0
"""Stores: a place and a namespace in it, and what can be done with its objects at rest."""
from __future__ import annotations

import ctypes
import enum
import json
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple, Union

from . import _abi
from ._handle import Handle, finalize
from .errors import Error, InvalidArgumentError, make_error
from .keys import BytesLike, PackedKeys

NAME_BYTES = 1025


class Mode(enum.IntEnum):
    """What the names of a store are made for; see enum kvt_mode."""

    POINTER = 0  #: chunks gathered from device pointers, under names of their own
    ROW = 1  #: whole rows only, under vLLM's own names
    EXACT = 2  #: the namespace exactly as given, every call accepted


class LogLevel(enum.IntEnum):
    OFF = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    DEBUG = 4


class ObjectState(enum.IntEnum):
    """What an object is, from its trailer."""

    WHOLE = 0
    PARTIAL = 1
    MISMATCH = 2
    FOREIGN = 3
    CORRUPT = 4
    UNKNOWN_FORMAT = 5


@dataclass(frozen=True)
class StoreInfo:
    """What a store was opened as, and the limits of its backend."""

    uri: str
    backend: str
    canonical: str
    base_name: str
    namespace_digest: bytes
    rank: int
    mode: Mode
    min_part_bytes: int
    max_part_bytes: int
    max_object_bytes: int
    max_parts: int
    max_iov: int
    memory_alignment: int
    capabilities: int
    backend_detail: str


@dataclass(frozen=True)
class ObjectStat:
    """One object, from its trailer. ``presence`` says for each slot whether it is there."""

    state: ObjectState
    format_version: int
    object_bytes: int
    payload_bytes: int
    trailer_bytes: int
    blocks_per_chunk: int
    ref_count: int
    slot_count: int
    present_slots: int
    rank: int
    group: int
    hash: bytes
    namespace_digest: bytes
    age_ns: int
    access_age_ns: int
    ref_bytes: List[int]
    presence: List[bool]


@dataclass(frozen=True)
class ListEntry:
    """One object of a listing; ``hash`` is None when its name is not one of ours."""

    name: str
    hash: Optional[bytes]
    group: int
    object_bytes: int
    age_ns: int
    access_age_ns: int


@dataclass(frozen=True)
class VerifyEntry:
    """One verified object; ``error`` is 0 or why it could not be read."""

    name: str
    state: ObjectState
    error: int
    object_bytes: int
    detail: str


@dataclass(frozen=True)
class VerifySummary:
    objects: int
    bytes: int
    whole: int
    partial: int
    mismatch: int
    foreign: int
    corrupt: int
    unknown_format: int
    unreadable: int
    vanished: int
    removed: int


@dataclass(frozen=True)
class GcSummary:
    objects: int
    bytes: int
    removed_objects: int
    removed_bytes: int
    removed_leftovers: int


@dataclass(frozen=True)
class ProbeLine:
    """One thing that a probe found out; ``error`` is 0 or a code."""

    name: str
    value: str
    error: int


def collect_probe(call: Callable[[object], int],
                  callback: Optional[Callable[[ProbeLine], Any]]) -> List[ProbeLine]:
    """The lines of one call of the library's that probes: `call` makes it with the function that
    it is given, and returns what it returned."""
    lines: List[ProbeLine] = []
    failures: List[BaseException] = []

    def take(_context: Optional[int], name: bytes, value: bytes, error: int) -> None:
        try:
            line = ProbeLine(_abi.text(name), _abi.text(value), error)
            lines.append(line)
            if callback is not None:
                callback(line)
        except BaseException as raised:  # pylint: disable=broad-except
            failures.append(raised)

    code = call(_abi.PROBE_FUNCTION(take))
    if failures:
        raise failures[0]
    _abi.check(code)
    return lines


@dataclass(frozen=True)
class OptionHelp:
    """One option of a backend or of stores; ``default`` is None when there is none."""

    name: str
    default: Optional[str]
    help: str


def log_hooks(log: Optional[Callable[[int, str], Any]],
              level: int) -> Tuple["_abi.Hooks", object]:
    """Hooks that call `log`, and the callback that must live as long as they do."""
    hooks = _abi.Hooks()
    if log is None:
        return hooks, None

    def write(_context: Optional[int], line_level: int, line: bytes) -> None:
        try:
            log(LogLevel(line_level), line.decode("utf-8", "replace"))
        except Exception:  # pylint: disable=broad-except
            pass  # there is nobody to tell: this is a thread of the library's

    callback = _abi.LOG_FUNCTION(write)
    hooks.log = callback
    hooks.log_level = int(level)
    return hooks, callback


def _encode(value: object, what: str) -> bytes:
    if isinstance(value, bool):
        value = "true" if value else "false"
    encoded = str(value).encode("utf-8", "surrogateescape")
    if b"\0" in encoded:
        raise InvalidArgumentError("%s: has a NUL character" % what)
    return encoded


class _Collector:
    """Calls a Python function for each element that the library hands over, and remembers the
    exception that ended it."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function
        self.failure: Optional[BaseException] = None

    def __call__(self, _context: Optional[int], address: int) -> int:
        try:
            return 1 if self._function(address) else 0
        except BaseException as error:  # pylint: disable=broad-except
            self.failure = error
            return 1

    def finish(self, code: int) -> None:
        if self.failure is not None:
            raise self.failure
        _abi.check(code)


def _store_close(handle: Handle, timeout_ms: Optional[int]) -> None:
    handle.close(_abi.lib.kvt_store_close, _abi.failure, timeout_ms)


class Store:
    """A place (a directory, a bucket) and a namespace in it.

    `uri` is ``file:///absolute/path``, ``s3://bucket/prefix``, ``mem:`` or another one that
    kvtier(1) names, `options` are those after ``-o`` on the command line. The namespace is either
    ready-made (`namespace`) or made from `fields`, the fields of vLLM's FileMapper as a dictionary
    or as JSON text. `log` is called with a :class:`LogLevel` and one line, from any thread, for
    lines up to `log_level`; it must not call back into the store or its workers.

    Opening may block, and fails with :class:`ConfigurationError`, :class:`InvalidArgumentError` or
    what the backend reports. A store is closed after its workers; one that is still open when the
    interpreter exits is closed then. Any thread may call anything.
    """

    def __init__(self, uri: str, *, namespace: Optional[str] = None,
                 fields: Union[Mapping[str, Any], str, None] = None, rank: int = 0,
                 mode: Union[Mode, str] = Mode.POINTER,
                 options: Optional[Mapping[str, object]] = None,
                 log: Optional[Callable[[int, str], Any]] = None,
                 log_level: int = LogLevel.OFF) -> None:
        if isinstance(mode, str):
            try:
                mode = Mode[mode.upper()]
            except KeyError:
                raise InvalidArgumentError("mode: \"%s\", expected pointer, row or exact"
                                           % mode) from None
        if not 0 <= rank < 1 << 32:
            raise InvalidArgumentError("rank: %d, expected 0 to 2^32 - 1" % rank)
        pairs = [_abi.Option(_encode(name, "option"), _encode(value, "option %s" % name))
                 for name, value in (options or {}).items() if value is not None]
        native = _abi.StoreOptions(uri=_encode(uri, "uri"), rank=rank, mode=int(mode),
                                   option_count=len(pairs))
        native.options = (_abi.Option * max(len(pairs), 1))(*pairs)
        if namespace is not None:
            native.namespace_name = _encode(namespace, "namespace")
        if fields is not None:
            native.fields_json = _encode(
                fields if isinstance(fields, str) else json.dumps(fields), "fields")
        native.hooks, callback = log_hooks(log, log_level)
        address = ctypes.c_void_p()
        _abi.check(_abi.lib.kvt_store_open(ctypes.byref(native), ctypes.byref(address)))
        self.uri = uri
        self._handle = Handle("store %s" % uri, address.value or 0, callback)
        self._finalizer = weakref.finalize(self, finalize, self._handle, _store_close)

    @property
    def info(self) -> StoreInfo:
        native = _abi.StoreInfo()
        with self._handle as address:
            _abi.check(_abi.lib.kvt_store_get_info(address, ctypes.byref(native)))
            return StoreInfo(
                _abi.text(native.uri), _abi.text(native.backend), _abi.text(native.canonical),
                _abi.text(native.base_name), bytes(native.namespace_digest), native.rank,
                Mode(native.mode), native.min_part_bytes, native.max_part_bytes,
                native.max_object_bytes, native.max_parts, native.max_iov,
                native.memory_alignment, native.capabilities, _abi.text(native.backend_detail))

    def object_name(self, key: BytesLike, group: int = 0) -> str:
        """The object name of a key below the store's root."""
        packed = PackedKeys.pack([key], group)
        buffer = ctypes.create_string_buffer(NAME_BYTES)
        with self._handle as address:
            _abi.check(_abi.lib.kvt_store_object_name(address, packed.address, buffer,
                                                      NAME_BYTES))
        return _abi.text(buffer.value)

    def stat(self, key: BytesLike, group: int = 0) -> ObjectStat:
        """What one object is; :class:`MissError` when there is none. Blocks."""
        packed = PackedKeys.pack([key], group)
        native = _abi.ObjectStat()
        with self._handle as address:
            _abi.check(_abi.lib.kvt_store_stat(address, packed.address, ctypes.byref(native)))
        try:
            refs = native.ref_bytes[:native.ref_count] if native.ref_bytes else []
            slots = native.slot_count if native.presence else 0
            return ObjectStat(
                ObjectState(native.state), native.format_version, native.object_bytes,
                native.payload_bytes, native.trailer_bytes, native.blocks_per_chunk,
                native.ref_count, native.slot_count, native.present_slots, native.rank,
                native.group, bytes(native.hash[:native.hash_bytes]),
                bytes(native.namespace_digest), native.age_ns, native.access_age_ns, refs,
                [bool(native.presence[s // 8] >> s % 8 & 1) for s in range(slots)])
        finally:
            _abi.lib.kvt_object_stat_clear(ctypes.byref(native))

    def list(self, callback: Optional[Callable[[ListEntry], Any]] = None) -> List[ListEntry]:
        """The objects of the namespace and rank, in no promised order. With a callback each is
        handed over as it comes, a true answer stops, and the list is empty. Blocks."""
        entries: List[ListEntry] = []
        consume = callback or entries.append

        def take(at: int) -> Any:
            native = _abi.ListEntry.from_address(at)
            digest = (ctypes.string_at(native.key.hash, native.key.hash_bytes)
                      if native.key.hash else None)
            return consume(ListEntry(_abi.text(native.name), digest, native.key.group,
                                     native.object_bytes, native.age_ns, native.access_age_ns))

        collector = _Collector(take)
        function = _abi.LIST_FUNCTION(collector)
        with self._handle as address:
            collector.finish(_abi.lib.kvt_store_list(address, function, None))
        return entries

    def __iter__(self) -> Iterator[ListEntry]:
        return iter(self.list())

    def remove(self, key: BytesLike, group: int = 0) -> None:
        """Removes one object; :class:`MissError` when there is none. Blocks."""
        packed = PackedKeys.pack([key], group)
        with self._handle as address:
            _abi.check(_abi.lib.kvt_store_remove(address, packed.address))

    def verify(self, remove_corrupt: bool = False,
               callback: Optional[Callable[[VerifyEntry], Any]] = None) -> VerifySummary:
        """Reads and checks every byte of every object of the namespace and rank. A true answer of
        the callback stops. Blocks."""
        options = _abi.VerifyOptions(remove_corrupt=int(remove_corrupt))
        native = _abi.VerifySummary()

        def take(at: int) -> Any:
            if callback is None:
                return None
            entry = _abi.VerifyEntry.from_address(at)
            return callback(VerifyEntry(_abi.text(entry.name), ObjectState(entry.state),
                                        entry.error, entry.object_bytes,
                                        _abi.text(entry.detail)))

        collector = _Collector(take)
        function = _abi.VERIFY_FUNCTION(collector)
        with self._handle as address:
            collector.finish(_abi.lib.kvt_store_verify(address, ctypes.byref(options), function,
                                                       None, ctypes.byref(native)))
        return VerifySummary(*[getattr(native, name) for name, _ in native._fields_[1:]])

    def gc(self, max_bytes: int = 0, older_than_s: float = 0, *, whole_root: bool = False,
           dry_run: bool = False, leftover_age_s: float = 0,
           leftovers_only: bool = False) -> GcSummary:
        """Frees capacity: removes the least recently used objects until at most `max_bytes` are
        left, objects not used for `older_than_s`, and what dead processes left behind. Blocks."""
        if min(max_bytes, older_than_s, leftover_age_s) < 0:
            raise InvalidArgumentError("gc: negative limit, expected 0 (none) or more")
        options = _abi.GcOptions(max_bytes=max_bytes, older_than_ns=int(older_than_s * 1e9),
                                 whole_root=int(whole_root), dry_run=int(dry_run),
                                 leftover_age_ns=int(leftover_age_s * 1e9),
                                 leftovers_only=int(leftovers_only))
        native = _abi.GcSummary()
        with self._handle as address:
            _abi.check(_abi.lib.kvt_store_gc(address, ctypes.byref(options),
                                             ctypes.byref(native)))
        return GcSummary(*[getattr(native, name) for name, _ in native._fields_[1:]])

    def probe(self, callback: Optional[Callable[[ProbeLine], Any]] = None) -> List[ProbeLine]:
        """A self test: stores, reads, lists and removes a probe object. Raises the first failure;
        the callback, called for each line as it comes, sees what came before. Blocks."""
        with self._handle as address:
            return collect_probe(
                lambda function: _abi.lib.kvt_store_probe(address, function, None), callback)

    def close(self) -> None:
        """:class:`BusyError` while a worker uses it. Closing twice is fine."""
        _store_close(self._handle, None)
        self._finalizer.detach()

    @property
    def closed(self) -> bool:
        return not self._handle.address

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<kvtier.Store %s%s>" % (self.uri, ", closed" if self.closed else "")


def option_help(uri: str) -> List[OptionHelp]:
    """The options of the backend that `uri` names and of stores."""
    found: List[OptionHelp] = []

    def take(_context: Optional[int], name: bytes, default: Optional[bytes], line: bytes) -> None:
        found.append(OptionHelp(_abi.text(name), default.decode() if default is not None else None,
                                _abi.text(line)))

    function = _abi.OPTION_HELP_FUNCTION(take)
    _abi.check(_abi.lib.kvt_store_option_help(_encode(uri, "uri"), function, None))
    return found


def error_from_code(code: int, detail: str = "") -> Error:
    """The exception that a code of a result (``Result.error``) stands for."""
    return make_error(code, _abi.lib.kvt_error_class(code),
                      detail or _abi.text(_abi.lib.kvt_error_text(code)))

# SPDX-License-Identifier: Apache-2.0
"""What went wrong: one exception class for each error class of the library.

Every exception carries the code (``error.code``, a member of :class:`Code`), the class
(``error.error_class``) and the library's one line of detail, which is also its text. Codes, values
and classes are those of ``<kvtier/error.h>``.
"""
from __future__ import annotations

import enum
from typing import Dict, Optional, Tuple, Type


class ErrorClass(enum.IntEnum):
    """What may be done about an error."""

    NONE = 0
    USAGE = 1
    MISS = 2
    INTEGRITY = 3
    CONFLICT = 4
    TRANSIENT = 5
    THROTTLED = 6
    PERMANENT = 7
    CONFIGURATION = 8
    CANCELED = 9
    INTERNAL = 10


class Code(enum.IntEnum):
    """The codes of the library: ``Code.EAGAIN`` is ``KVT_EAGAIN``."""

    OK = 0
    EINVAL = -1
    ENOMEM = -2
    ENOENT = -3
    EEXIST = -4
    EPRECOND = -5
    ERANGE = -6
    EAGAIN = -7
    EBUSY = -8
    ETIMEDOUT = -9
    ECANCELED = -10
    ENOTSUP = -11
    EIO = -12
    ENOSPC = -13
    EACCES = -14
    EMFILE = -15
    ENET = -16
    ESERVER = -17
    ETHROTTLED = -18
    EAUTH = -19
    EPROTO = -20
    ECORRUPT = -21
    EMISMATCH = -22
    EFOREIGN = -23
    EFORMAT = -24
    ENAMESPACE = -25
    ECONFIG = -26
    EMODULE = -27
    EUNAVAIL = -28
    EDEVICE = -29
    EFAULT = -30
    EFORK = -31
    ESHUTDOWN = -32
    EROFS = -33
    EINTERNAL = -34


class Error(Exception):
    """Base of all exceptions of this package.

    ``code`` is a :class:`Code` (or the plain number, when the library is newer than this package),
    ``detail`` the library's one line.
    """

    error_class: ErrorClass = ErrorClass.INTERNAL

    def __init__(self, detail: str, code: int = Code.EINTERNAL) -> None:
        super().__init__(detail)
        self.detail = detail
        try:
            self.code: int = Code(code)
        except ValueError:
            self.code = code

    @property
    def name(self) -> str:
        """``"KVT_EAGAIN"``; ``"KVT_E?"`` for a code that this package does not know."""
        return "KVT_" + self.code.name if isinstance(self.code, Code) else "KVT_E?"

    def __reduce__(self) -> Tuple[Type["Error"], Tuple[str, int]]:
        return type(self), (self.detail, int(self.code))


class UsageError(Error):
    """The caller passed something wrong."""

    error_class = ErrorClass.USAGE

    def __init__(self, detail: str, code: int = Code.EINVAL) -> None:
        super().__init__(detail, code)


class InvalidArgumentError(UsageError, ValueError):
    """KVT_EINVAL: the line names the argument, its value and what was expected."""


class ClosedError(UsageError, ValueError):
    """The store, worker, device or rows were closed before."""


class ForkError(UsageError):
    """KVT_EFORK: what was opened in the parent is not usable in a forked child."""


class UnsupportedError(UsageError, NotImplementedError):
    """KVT_ENOTSUP: the store or device cannot do this."""


class MissError(Error):
    """The object is not there."""

    error_class = ErrorClass.MISS


class IntegrityError(Error):
    """The object is there and its bytes or its identity are wrong."""

    error_class = ErrorClass.INTEGRITY


class ConflictError(Error):
    """Somebody else changed the object, or it (or the job's id) exists already."""

    error_class = ErrorClass.CONFLICT


class TransientError(Error):
    """May work when tried again."""

    error_class = ErrorClass.TRANSIENT


class DeadlineError(TransientError, TimeoutError):
    """KVT_ETIMEDOUT: the deadline has passed."""


class BusyError(TransientError):
    """KVT_EBUSY: still in use."""


class ThrottledError(Error):
    """Asked to slow down."""

    error_class = ErrorClass.THROTTLED


class QueueFullError(ThrottledError):
    """KVT_EAGAIN: the worker's queue is full; the job was not taken."""


class PermanentError(Error):
    """Will not work when tried again."""

    error_class = ErrorClass.PERMANENT


class ConfigurationError(Error):
    """An operator has to change something."""

    error_class = ErrorClass.CONFIGURATION


class CanceledError(Error):
    """Given up on request."""

    error_class = ErrorClass.CANCELED


class InternalError(Error):
    """A fault of the library or of the machine."""

    error_class = ErrorClass.INTERNAL


class OutOfMemoryError(InternalError, MemoryError):
    """KVT_ENOMEM: out of memory."""


_BY_CLASS: Dict[ErrorClass, Type[Error]] = {
    ErrorClass.USAGE: UsageError,
    ErrorClass.MISS: MissError,
    ErrorClass.INTEGRITY: IntegrityError,
    ErrorClass.CONFLICT: ConflictError,
    ErrorClass.TRANSIENT: TransientError,
    ErrorClass.THROTTLED: ThrottledError,
    ErrorClass.PERMANENT: PermanentError,
    ErrorClass.CONFIGURATION: ConfigurationError,
    ErrorClass.CANCELED: CanceledError,
    ErrorClass.INTERNAL: InternalError,
}

_BY_CODE: Dict[int, Type[Error]] = {
    Code.EINVAL: InvalidArgumentError,
    Code.EFORK: ForkError,
    Code.ENOTSUP: UnsupportedError,
    Code.ETIMEDOUT: DeadlineError,
    Code.EBUSY: BusyError,
    Code.EAGAIN: QueueFullError,
    Code.ENOMEM: OutOfMemoryError,
}


def make_error(code: int, error_class: int, detail: Optional[str]) -> Error:
    """The exception for a code of the library; its class where the code has none of its own."""
    kind = _BY_CODE.get(code)
    if kind is None:
        try:
            kind = _BY_CLASS.get(ErrorClass(error_class), InternalError)
        except ValueError:
            kind = InternalError
    return kind(detail or "error %d" % code, code)

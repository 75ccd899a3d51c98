"""Every error of the package, as one tree.

    CompactorError
    ├── BadInput                what was given cannot be read; says where and what to try
    │   ├── BadMessage          one message: names the index and the field
    │   ├── BadTranscript       a file: names the line
    │   │   └── NoConversation  a log in which nobody has spoken yet
    │   ├── BadSetting          a setting or an argument
    │   ├── BadCheckpoint       a progress checkpoint that was cut or damaged: names the line
    │   ├── OtherConversation   messages that do not continue the session they were given for
    │   ├── SessionExists       an id that another session has
    │   ├── KeyReused           a request's key that was used for another one
    │   ├── UnknownReference    an id that names no original
    │   └── UnknownSession      an id that names no session
    │       └── DeletedSession  a session that was deleted while it was open
    ├── StoreError              a store cannot be read or written; what was there is as it was
    │   ├── StoreLocked         another process holds it for too long
    │   └── DamagedContent      a content is missing, or not what its hash says
    ├── ModelError              a model did not answer; says whether it is worth a retry
    │   ├── ModelDenied         a wrong key or no permission
    │   ├── ModelOverflow       the request is too long for the model
    │   ├── ModelUnavailable    a time-out, too many requests, a server's own failure
    │   └── ModelStopped        cancelled, or its deadline has passed
    ├── ServerError             a server of ours did not do what a client asked
    │   ├── ServerDenied        a wrong or missing token, or one that may only read
    │   └── ServerUnavailable   it does not answer, or not now: worth a retry
    ├── StaleBase               the context has changed since a compaction of it was begun
    ├── JobLost                 somebody else has this job by now
    └── MissingExtra            a feature whose optional dependency is not installed

"Nothing to do" and "does not fit" are not errors: they are a `Report` with status `unchanged` or `partial`.
"""

from __future__ import annotations


class CompactorError(Exception):
    """The base class of all errors that this package raises."""


class BadInput(CompactorError):
    """An input cannot be used."""


class OtherConversation(BadInput):
    """Messages that do not continue the session they were given for; they are other ones from the index `at` on."""

    def __init__(self, problem: str, at: int = 0) -> None:
        self.at = at
        super().__init__(problem)


class SessionExists(BadInput):
    """A new session was to have the id of one that there is."""


class BadMessage(BadInput):
    """A message is not valid. `index` counts from 0; `field` is the place in the message."""

    def __init__(self, index: int, field: str, problem: str) -> None:
        self.index = index
        self.field = field
        self.problem = problem
        super().__init__(f"message {index}, field {field!r}: {problem}")


class BadTranscript(BadInput):
    """A file or stream contains no conversation that this version can read."""


class NoConversation(BadTranscript):
    """A log in which nobody has spoken yet."""


class BadSetting(BadInput):
    """A setting or argument is outside its range."""


class BadCheckpoint(BadInput):
    """A progress checkpoint that was cut off or damaged. Says what is missing; the store can write it anew."""


class KeyReused(BadInput):
    """The key of this request was used for a request with another body."""


class UnknownReference(BadInput):
    """No original is archived under this id."""


class UnknownSession(BadInput):
    """The store has no session with this id."""


class DeletedSession(UnknownSession):
    """The session was deleted while it was open; a new one may have the same id."""


class StoreError(CompactorError):
    """A store cannot be read or written. Nothing was written partly."""


class StoreLocked(StoreError):
    """Another process has held the store for longer than we wait."""


class DamagedContent(StoreError):
    """A content is missing, or is no longer what its hash says."""


class ModelError(CompactorError):
    """A model did not answer. `retry` says whether the same request may be sent again, `retry_after` how soon.

    `billed` says whether the request may have to be paid for all the same: then it counts as the most it could cost.
    """

    retry = False
    billed = True

    def __init__(self, problem: str, retry_after: float | None = None, *, billed: bool | None = None) -> None:
        self.retry_after = retry_after
        if billed is not None:
            self.billed = billed
        super().__init__(problem)


class ModelDenied(ModelError):
    """A wrong key, or no permission: it is never tried again."""

    billed = False


class ModelOverflow(ModelError):
    """The request is too long for the model: it is never sent again unchanged."""

    billed = False


class ModelUnavailable(ModelError):
    """A time-out, too many requests, or a failure on the other side: worth a retry."""

    retry = True


class ModelStopped(ModelError):
    """The call was cancelled, or its deadline has passed."""


class Cancelled(ModelStopped):
    """Somebody has cancelled what was asked for; everything is as it was."""


class LimitReached(ModelStopped):
    """A call would have passed a limit of the settings, so it was not made."""

    billed = False


class ServerError(CompactorError):
    """A server did not do what was asked. `status` is its HTTP status, 0 when there was no answer."""

    def __init__(self, problem: str, status: int = 0) -> None:
        self.status = status
        super().__init__(problem)


class ServerDenied(ServerError):
    """A wrong or missing token, or one that may not do this."""


class ServerUnavailable(ServerError):
    """A server that cannot be reached, or that has too much to do: worth a retry."""


class StaleBase(CompactorError):
    """The context was changed by somebody else since a compaction of it was begun."""


class JobLost(CompactorError):
    """A job that was held for too long without a sign of life was given to somebody else."""


PACKAGE = "."
"""What `pip install` is given for this package: the folder of a clone, as long as no index has the package.

Change it here when one has; `make check` then names every line of the docs that says otherwise.
"""


def install_command(extra: str) -> str:
    """The command that installs this package with an extra."""
    where = " (in a clone of the repository)" if PACKAGE == "." else ""
    return f"pip install '{PACKAGE}[{extra}]'{where}"


class MissingExtra(CompactorError):
    """An optional dependency is needed but not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs an extra: {install_command(extra)}")

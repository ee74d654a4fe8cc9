"""The one error family: every failure a person can meet is a sentence, a next step and an exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command (``profile`` additionally passes the target's own failure on)."""

    OK = 0
    ERROR = 1
    USAGE = 2
    GATE_FAILED = 3
    NOTHING_TO_ANALYZE = 4


class NsysSyncError(Exception):
    """A failure with a documented cause.

    slug: stable id of the cause, also the anchor in docs/errors.md.
    message: what happened and why, one sentence.
    hint: what to do next (a command where there is one); may be empty.
    exit_code: what the command line exits with.
    """

    exit_code: ExitCode = ExitCode.ERROR

    def __init__(self, slug: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.slug = slug
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class UsageError(NsysSyncError):
    """The command line asks for something that cannot be (exit 2)."""

    exit_code = ExitCode.USAGE


class GateFailed(NsysSyncError):
    """A limit of ``check`` or ``watch --fail`` was exceeded (exit 3)."""

    exit_code = ExitCode.GATE_FAILED


class NothingToAnalyze(NsysSyncError):
    """The input is sound but holds no CUDA activity, or nothing was captured (exit 4)."""

    exit_code = ExitCode.NOTHING_TO_ANALYZE


class InputError(NsysSyncError):
    """A file cannot be read as what it is said to be (exit 1)."""


class OutputError(NsysSyncError):
    """A file cannot be written, or exists already (exit 1)."""


class CaptureError(NsysSyncError):
    """The profiler could not be run or left no usable report (exit 1)."""

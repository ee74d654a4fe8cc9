"""Forbids syncs in parts of a program, for tests: ``with nsys_sync.forbid_syncs():``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nsys_sync.capture.here import target


@contextmanager
def forbid_syncs() -> Iterator[None]:
    """Raise ``SyncError``, naming the place, at a sync of any thread while the block runs; also a decorator.

    It sees what ``nsys-sync watch`` sees: operations of PyTorch that wait for their stream, explicit synchronisation,
    pageable copies called non-blocking, arrays of CuPy and JAX brought to the host. Explicit waits raise before they
    wait, other operations when they have waited. PyTorch's debug mode and the warning filters are as before when the
    last of several nested blocks ends, however it ends. Does nothing where none of these packages is imported.
    """
    with target("syncs").forbidding():
        yield


@contextmanager
def allow_syncs() -> Iterator[None]:
    """Allow the syncs of this thread (or task) in the block, inside ``forbid_syncs``; also a decorator.

    ``nsys-sync watch`` counts them as allowed: ``--fail`` and ``--error`` pass over them.
    """
    with target("syncs").allowing():
        yield

"""CUDA API names: their bare form, and what kind of call each one is."""

from __future__ import annotations

import re
from typing import Literal

ApiKind = Literal["device_sync", "stream_sync", "event_sync", "copy", "async_copy", "alloc", "graph_launch", "other"]

_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
_COPY = re.compile(r"cu(?:da)?Memcpy(?!.*(?:Attribute|Get|Node))")
_ALLOC = re.compile(
    r"cuda(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister)(?!.*Async)"
    r"|cuMem(?:Alloc|Free|HostAlloc|HostRegister|HostUnregister|Create|Release|Map|Unmap|AddressReserve|AddressFree)"
    r"(?!.*Async)"
)
_SYNC: dict[str, ApiKind] = {
    "cudaDeviceSynchronize": "device_sync",
    "cudaThreadSynchronize": "device_sync",
    "cuCtxSynchronize": "device_sync",
    "cudaStreamSynchronize": "stream_sync",
    "cuStreamSynchronize": "stream_sync",
    "cudaEventSynchronize": "event_sync",
    "cuEventSynchronize": "event_sync",
}

SYNC_KINDS: frozenset[str] = frozenset(("device_sync", "stream_sync", "event_sync"))


def bare_name(name: str) -> str:
    """``cudaMemcpyAsync_v3020_ptsz`` → ``cudaMemcpyAsync``."""
    return _SUFFIX.sub("", name)


def api_kind(bare: str) -> ApiKind:
    """What an API does to the host thread that calls it, as far as its name tells.

    Waiting for an event on the device (StreamWaitEvent) and asking (Query) are ``other``: they do not block the host.
    """
    if bare in _SYNC:
        return _SYNC[bare]
    if _COPY.match(bare):
        return "async_copy" if "Async" in bare else "copy"
    if _ALLOC.match(bare):
        return "alloc"
    if bare in ("cudaGraphLaunch", "cuGraphLaunch"):
        return "graph_launch"
    return "other"


def is_device_wait(bare: str) -> bool:
    """Whether the call makes a stream wait on the device, which never blocks the host."""
    return bare in ("cudaStreamWaitEvent", "cuStreamWaitEvent")

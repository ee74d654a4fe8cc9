"""Which tables, columns and rows of an export a copy for others may hold, and which texts say nothing about anybody.

What no rule names is not harmless. Rules are written in SQL over the table, called ``source``; they rely on tables of
what the copy keeps (kept_process, kept_thread, kept_range, kept_mark, kept_stack) and on the functions clean, note and
usual, which ``scrub`` provides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nsys_sync.trace import capture_info

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Rule:
    """What is kept of a table.

    rows: an SQL condition; {NAME} in it is another table. strings: columns that refer to StringIds. texts: columns of
    text with the SQL expression that makes them harmless; computed: columns that are there in any case. without:
    columns of numbers that are not kept. All other columns are kept if they are declared as numbers, and of their
    values only the numbers.
    """

    rows: str = "1"
    strings: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()


def _clean(column: str) -> str:
    # As a blob, because a text that is not UTF-8 never reaches a function.
    return f"clean(CAST({column} AS BLOB))"


def _is(kind: str, text: str) -> str:
    return f"usual('{kind}', CAST({text} AS BLOB))"


_OF_PROCESS = "globalPid IS NULL OR globalPid IN (SELECT id FROM kept_process)"
_OF_THREAD = "globalTid IN (SELECT id FROM kept_thread)"
_OF_PID = "IN (SELECT (id >> 24) & 0xFFFFFF FROM kept_process)"
_IN_RANGE = "source.rowid IN (SELECT id FROM kept_range)"
_PAIR = {"name": "name", "value": "value"}
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
OPS = tuple(
    f"CUPTI_ACTIVITY_KIND_{name}"
    for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION", "CUDA_EVENT")
)

RULES: dict[str, Rule] = {
    RUNTIME: Rule(strings=("nameId",)),
    **dict.fromkeys(OPS, Rule(_OF_PROCESS, without=("virtualAddress",))),
    OPS[0]: Rule(_OF_PROCESS, strings=("shortName", "demangledName"), without=("mangledName",)),
    "CUDA_CALLCHAINS": Rule(
        f"id IN (SELECT callchainId FROM {{{RUNTIME}}} UNION SELECT callchainId + 1 FROM {{{RUNTIME}}})",
        strings=("symbol", "module"),
        without=("originalIP",),
    ),
    "NVTX_EVENTS": Rule(
        f"{_IN_RANGE} OR source.rowid IN (SELECT id FROM kept_mark)",
        strings=("textId",),
        texts={
            "text": f"CASE WHEN {_IN_RANGE} THEN {_clean('text')} END",
            "textId": f"CASE WHEN {_IN_RANGE} AND typeof(textId) = 'integer' THEN textId END",
        },
        computed={
            "jsonText": "(SELECT json FROM kept_mark JOIN kept_stack USING (stack) WHERE kept_mark.id = source.rowid)"
        },
        without=("jsonTextId", *(f"{kind}Value" for kind in ("uint64", "int64", "double", "uint32", "int32", "float"))),
    ),
    "PROCESSES": Rule("globalPid IN (SELECT id FROM kept_process)", texts={"name": _clean("name")}),
    "ThreadNames": Rule(
        f"{_OF_THREAD} AND nameId IN (SELECT id FROM {{StringIds}} WHERE {_is('thread', 'value')})", strings=("nameId",)
    ),
    "PROFILER_OVERHEAD": Rule(_OF_THREAD, without=("nameId",)),
    "DIAGNOSTIC_EVENT": Rule(_is("message", "text"), texts={"text": "text"}),
    "TARGET_INFO_GPU": Rule(texts={"name": _clean("name")}, without=("luid",)),
    "TARGET_INFO_CUDA_DEVICE": Rule(f"pid {_OF_PID}"),
    "TARGET_INFO_CUDA_CONTEXT_INFO": Rule(f"processId {_OF_PID}"),
    "TARGET_INFO_CUDA_STREAM": Rule(f"processId {_OF_PID}"),
    "TARGET_INFO_SESSION_START_TIME": Rule(_is("time", "utcTime"), texts={"utcTime": "utcTime"}),
    "TARGET_INFO_SYSTEM_ENV": Rule(_is("system", "name || '=' || value"), texts=_PAIR),
    "ANALYSIS_DETAILS": Rule(),
    "META_DATA_CAPTURE": Rule(_is("option", "name || '=' || value"), texts=_PAIR),
    "META_DATA_EXPORT": Rule(_is("export", "name || '=' || value"), texts=_PAIR),
    capture_info.TABLE: Rule(
        "name = 'capture' AND note(CAST(value AS BLOB)) NOT NULL",
        texts={"name": "name", "value": "note(CAST(value AS BLOB))"},
    ),
}

_OPTIONS = "COLLECT|CUDA_|LINUX_PERF_OPTIONS|OS_RUNTIME_OPTIONS|PYTHON_BACKTRACE_SAMPLING_OPTIONS|SHOW|TRACE|USE_"

#: Texts that say nothing about whose machine it was, whole, by the kind that the rules name.
USUAL: dict[str, re.Pattern[str]] = {
    kind: re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    for kind, patterns in {
        "thread": (
            r"python[\d.]{0,5}",
            r"pt_(?:autograd|nccl_watchdg|nccl_heartbt|tcpstore_uv|elastic|main_thread|data_pin)(?:_\d+)?",
            r"cuda[\da-f-]{0,11}|cuda-EvtHandlr|CUPTI worker thread|torchrun|jemalloc_bg_thd",
            r"\[NSys\]|\[NSys Comms\]|NSys PySampling|\*\d+#CommsProcesso",
        ),
        "message": (
            r"Not all [A-Za-z ]{2,40} events might have been collected\.",
            r"No [A-Za-z ]{2,40} events collected\. Does the process use [A-Za-z ]{2,40}\?",
            r"Number of [A-Za-z ]{2,40} (?:collected|produced): \t?\d+(?:, CUPTI buffers: \d+)?\.",
            r"Number of CUPTI events produced: \t?\d+, CUPTI buffers: \d+ of \d+\. Some CUPTI events might be missing",
            r"Profiling has (?:started|stopped)\.",
            r"Profiling started due to cudaProfilerStart API invoked in the application\.",
        ),
        "time": (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?",),
        "system": (r"(?:NvDriverVersion|CudaDriverVersion)=[\d.]{1,20}", r"CpuArchitecture=(?:x86_64|aarch64|arm64)"),
        "option": (
            r"CAPTURE_EVENT_TYPE=(?:Cuda|NvtxEvents|OSRuntime|Graphics)",
            rf"(?:PROCESS_\d+:)?(?:{_OPTIONS})[A-Z_]*(?::[A-Z_]+)?=(?:true|false|\d{{1,12}}|Graph|Node|ProcessTree)",
            r"(?:RUN_DURATION|START_DELAY)_MS=\d{1,12}",
        ),
        "export": (
            r"EXPORT_PRODUCT_NAME=NVIDIA Nsight Systems",
            r"EXPORT_(?:PRODUCT_VERSION|PRODUCT_DATE|SCHEMA_VERSION|SCHEMA_VERSION_(?:MAJOR|MINOR|MICRO))=[\d.]{1,20}",
            r"EXPORT_(?:PARAM|CONFIG)_[A-Z_]+=(?:true|false|\d{1,20})",
        ),
    }.items()
}


def is_usual(kind: str, text: bytes | None) -> bool:
    """Whether a text is one of ``USUAL[kind]``, whole."""
    return text is not None and USUAL[kind].fullmatch(text.decode("utf-8", "replace")) is not None

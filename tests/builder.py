"""Small traces by hand, in the tables of real Nsight Systems exports.

    t = TraceBuilder()
    p = t.process(pid=100)
    th = p.thread(1)
    th.call("cudaLaunchKernel_v7000", 0, 5, corr=1)
    t.kernel(p, 10, 30, corr=1, stream=7)
    th.sync("cudaStreamSynchronize_v3020", 12, 40, corr=2, stream=7, frames=[("step", "/proj/train.py", 10)])
    t.write(path)

All times are ns. Stacks are innermost first. What is not given gets the value that real exports have. A traced call
with frames or native symbols also gets its class-67 row, 50 ns earlier, and the Python mark at that row's start.
"""

from __future__ import annotations

import html
import json
import random
import re
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from nsys_sync.trace.capture_info import TABLE as CAPTURE_TABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

SCHEMAS = Path(__file__).parent / "builder_schema"

Frame = tuple[str, str, int]
Value = int | float | str | bytes | None

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

#: Tables that every export has, recorded or not (those of another schema are left out).
ALWAYS = {
    "StringIds",
    "ANALYSIS_FILE",
    "ProcessStreams",
    "TARGET_INFO_SYSTEM_ENV",
    "TARGET_INFO_SESSION_START_TIME",
    "ANALYSIS_DETAILS",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
}

CALL, DRIVER_CALL, BACKTRACE = 0, 1, 67
MARK, PUSH_POP, START_END, DOMAIN_CREATE = 34, 59, 60, 75
NONE_32 = 0xFFFFFFFF
VM = 1 << 48

#: Sequence of CUPTI_ACTIVITY_KIND_SYNCHRONIZATION.syncType as each exporter writes it: (event, stream wait, stream).
SYNC_TYPES = {"3.7.2": (2, 2, 3), "3.20.3": (1, 2, 2), "3.25.0": (1, 2, 3)}

#: What schema 3.25.0 adds to the columns of 3.20.3, as far as it is known.
ADDED_3_25_0 = {
    KERNEL: (
        "qmdBulkReleaseDone",
        "qmdPreexitDone",
        "qmdLastCtaDone",
        "graphId",
        "clusterX",
        "clusterY",
        "clusterZ",
        "clusterSchedulingPolicy",
        "maxPotentialClusterSize",
        "maxActiveClusters",
        "sharedMemoryRequestedPercentage",
        "tensorSizeMinusOneElements",
    ),
    "TARGET_INFO_SESSION_START_TIME": ("systemClockNs",),
}

PRODUCT_VERSIONS = {"3.7.2": "2023.4.4.54", "3.20.3": "2025.3.2.0", "3.25.0": "2026.2.1.0"}

CUDA_DOMAIN = {"3.7.2": "Python Backtrace", "3.20.3": "Python Backtrace on CUDA", "3.25.0": "Python Backtrace on CUDA"}
SAMPLING_DOMAIN = "Python Periodic Sampling"
PAYLOAD_SCHEMA_IDS = {"Python Backtrace on CUDA": 0x1_0000_0005, SAMPLING_DOMAIN: 0x1_0000_0002}

#: (srcKind, dstKind, copyKind) by the direction's usual name.
COPIES = {
    "pageable->device": (0, 2, 1),
    "pinned->device": (1, 2, 1),
    "device->pageable": (2, 0, 2),
    "device->pinned": (2, 1, 2),
    "device->device": (2, 2, 8),
}

#: Options of the capture, as nsys 2025.3.2 writes them for --cudabacktrace=sync:0 --python-backtrace=cuda.
CAPTURE_OPTIONS = {
    "DEVICE_ID": "Local (CLI)",
    "DEVICE_DISPLAY_NAME": "vm",
    "PROCESS_0:COMMAND": "/usr/bin/python3",
    "PROCESS_0:ARGUMENT_0": "/proj/train.py",
    "PROCESS_0:WORKING_DIR": "/proj",
    "PROCESS_0:COLLECT_NVTX_TRACE": "true",
    "PROCESS_0:COLLECT_CUDA_TRACE": "true",
    "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_KERNEL_BACKTRACES": "false",
    "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_MEMORY_BACKTRACES": "false",
    "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_OTHER_BACKTRACES": "false",
    "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_SYNCHRONOIZATION_BACKTRACES": "true",
    "PROCESS_0:CUDA_BACKTRACE_OPTIONS:SYNCHRONOIZATION_BACKTRACES_THRESHOLD_NS": "0",
    "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_PYTHON_BACKTRACES": "true",
    "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE": "Graph",
}


@dataclass(frozen=True)
class Schema:
    """Tables of one export version: CREATE TABLE text, columns with their default, rows of the enumerations."""

    create: Mapping[str, str]
    columns: Mapping[str, Mapping[str, Value]]
    enums: Mapping[str, Sequence[tuple[Value, ...]]]


@cache
def load_schema(version: str) -> Schema:
    """The schema of a real export (3.7.2, 3.20.3), or 3.25.0 as far as it is known."""
    script = (SCHEMAS / f"{'3.20.3' if version == '3.25.0' else version}.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        if version == "3.25.0":
            for table, names in ADDED_3_25_0.items():
                for name in names:
                    connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "{name}" INTEGER')
            connection.execute("ALTER TABLE PROFILER_OVERHEAD RENAME COLUMN returnValue TO overheadType")
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"
        create: dict[str, str] = dict(connection.execute(query))
        columns = {
            table: {
                str(name): (0 if kind == "INTEGER" else "") if required else None
                for _, name, kind, required, *_ in connection.execute(f'PRAGMA table_info("{table}")')
            }
            for table in create
        }
        enums = {
            table: connection.execute(f'SELECT * FROM "{table}"').fetchall()
            for table in create
            if table.startswith("ENUM_")
        }
    return Schema(create, columns, enums)


@cache
def known_columns(table: str) -> frozenset[str]:
    """Columns that a table has in any schema."""
    return frozenset(name for version in SYNC_TYPES for name in load_schema(version).columns.get(table, ()))


def bare(name: str) -> str:
    """An API name without version and per-thread suffix."""
    return re.sub(r"(_v\d+)?(_pt[sd][zs])?$", "", name)


class Place(TypedDict, total=False):
    """Where something runs; by default on device 0, in stream 7 of context 1."""

    device: int
    context: int
    stream: int


@dataclass(frozen=True)
class Event:
    """One record of a CUDA event."""

    id: int
    sync_id: int


@dataclass
class TraceBuilder:
    """A trace in the making.

    schema: 3.7.2, 3.20.3 or 3.25.0. payload: what Python marks carry ("json", "binary"), nothing = not exported;
    by default both, and neither in 3.7.2. nvtx_text: where NVTX names are kept, "text", "textId" or "both".
    """

    schema: str = "3.20.3"
    payload: Collection[str] | None = None
    nvtx_text: str = "text"
    tables: dict[str, list[dict[str, Value]]] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=lambda: dict(CAPTURE_OPTIONS))
    export: dict[str, str] = field(default_factory=dict)
    garbage: int = 0x6E69622F
    _strings: dict[str, int] = field(default_factory=dict)
    _chains: Iterable[int] = field(default_factory=count)
    _processes: list[Process] = field(default_factory=list)
    _places: set[tuple[int, int, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.payload is None:
            self.payload = () if self.schema == "3.7.2" else ("json", "binary")
        for text in ("[Unknown]", "[Broken backtraces]"):
            self.string(text)

    def string(self, text: str) -> int:
        """Id of a text in StringIds."""
        return self._strings.setdefault(text, len(self._strings))

    def row(self, table: str, **values: Value) -> None:
        """Any row; a table or column that the schema lacks is an error."""
        wrong = values.keys() - load_schema(self.schema).columns.get(table, {}).keys()
        if wrong:
            raise ValueError(f"{table} of schema {self.schema} has no {', '.join(sorted(wrong))}")
        self._add(table, **values)

    def _add(self, table: str, **values: Value) -> None:
        columns = load_schema(self.schema).columns
        if table not in columns:
            raise ValueError(f"exports of schema {self.schema} have no table {table}")
        unknown = values.keys() - known_columns(table)
        if unknown:
            raise ValueError(f"{table} has no {', '.join(sorted(unknown))} in any schema")
        self.tables.setdefault(table, []).append({k: v for k, v in values.items() if k in columns[table]})

    # Processes

    def process(self, pid: int = 1000, name: str = "/usr/bin/python3") -> Process:
        """A process; without threads or calls it is one of the machine's others."""
        process = Process(self, pid, VM | pid << 24)
        self._processes.append(process)
        self._add("PROCESSES", globalPid=process.gpid, pid=pid, name=name)
        return process

    def _place(self, process: Process, device: int, context: int, stream: int) -> None:
        self._places.add((process.pid, device, context, stream))

    # What ran on the GPU

    def kernel(
        self,
        process: Process,
        start: int,
        end: int,
        corr: int | None = None,
        *,
        name: str = "kernel",
        graph_node: int | None = None,
        **place: Unpack[Place],
    ) -> None:
        """A kernel; graph_node makes it part of a graph run traced by nodes."""
        text = self.string(name)
        self._op(
            KERNEL,
            process,
            start,
            end,
            corr,
            place,
            demangledName=text,
            shortName=text,
            mangledName=text,
            launchType=1,
            gridX=1,
            gridY=1,
            gridZ=1,
            blockX=32,
            blockY=1,
            blockZ=1,
            graphNodeId=graph_node,
        )

    def memcpy(
        self,
        process: Process,
        start: int,
        end: int,
        corr: int | None = None,
        *,
        kind: str | tuple[int, int, int] = "device->pageable",
        size: int = 4,
        **place: Unpack[Place],
    ) -> None:
        """A copy; kind is a name of COPIES or (srcKind, dstKind, copyKind)."""
        source, target, operation = COPIES[kind] if isinstance(kind, str) else kind
        values = {"copyKind": operation, "srcKind": source, "dstKind": target}
        self._op(MEMCPY, process, start, end, corr, place, bytes=size, copyCount=1, **values)

    def memset(
        self,
        process: Process,
        start: int,
        end: int,
        corr: int | None = None,
        *,
        size: int = 4,
        **place: Unpack[Place],
    ) -> None:
        """A memset."""
        self._op(MEMSET, process, start, end, corr, place, value=0, bytes=size, memKind=2)

    def graph(
        self,
        process: Process,
        start: int,
        end: int,
        corr: int | None = None,
        *,
        graph_exec: int = 2,
        **place: Unpack[Place],
    ) -> None:
        """A run of a CUDA graph traced as one (not in 3.7.2)."""
        self._op(GRAPH_TRACE, process, start, end, corr, place, graphId=1, graphExecId=graph_exec)

    def _op(
        self, table: str, process: Process, start: int, end: int, corr: int | None, place: Place, **values: Value
    ) -> None:
        device, context, stream = place.get("device", 0), place.get("context", 1), place.get("stream", 7)
        self._place(process, device, context, stream)
        self._add(
            table,
            start=start,
            end=end,
            deviceId=device,
            contextId=context,
            greenContextId=0,
            streamId=stream,
            correlationId=corr,
            globalPid=process.gpid,
            **values,
        )

    # What surrounds it

    def device(self, index: int = 0, name: str = "NVIDIA H200", uuid: str = "", bus: str = "0000:00:06.0") -> None:
        """Name a GPU (devices that something ran on are there anyway)."""
        self._add("TARGET_INFO_GPU", vmId=VM, id=index, name=name, busLocation=bus, uuid=uuid, cuDevice=index)

    def environment(self, name: str, value: str, process: int = 0) -> None:
        """A variable of the profiled program's environment."""
        number = sum(":ENVIRONMENT_" in str(row["name"]) for row in self.tables.get("META_DATA_CAPTURE", []))
        self._add("META_DATA_CAPTURE", name=f"PROCESS_{process}:ENVIRONMENT_{number}", value=f"{name}={value}")

    def output(self, process: Process, file: str, content: str) -> None:
        """What a process wrote to stdout or stderr."""
        self._add(
            "ProcessStreams", globalPid=process.gpid, filenameId=self.string(file), contentId=self.string(content)
        )

    def diagnostic(self, text: str, at: int = 0, process: Process | None = None, severity: int = 1) -> None:
        """A message of the profiler; severity 1 information, 2 warning, 3 error."""
        gpid = process.gpid if process else VM
        self._add(
            "DIAGNOSTIC_EVENT", timestamp=at, timestampType=1, source=1, severity=severity, text=text, globalPid=gpid
        )

    def capture_info(self, value: str) -> None:
        """The launcher's own table, holding this JSON text."""
        self.tables.setdefault(CAPTURE_TABLE, []).append({"name": "capture", "value": value})

    # Writing

    def write(
        self,
        path: Path,
        drop: Collection[str] = (),
        v2: Collection[str] = (),
        version: str | None = None,
        shuffle: int | None = None,
    ) -> Path:
        """Write the .sqlite and return its path.

        drop: tables to leave out; v2: tables to write with the suffix _V2; version: another EXPORT_SCHEMA_VERSION;
        shuffle: seed of a random order of all rows.
        """
        schema = load_schema(self.schema)
        content = self._content(self.schema if version is None else version)
        present = (ALWAYS & schema.create.keys()) | schema.enums.keys() | {name for name in content if content[name]}
        with closing(sqlite3.connect(path)) as connection:
            for table in sorted(present - set(drop)):
                create = schema.create.get(table, f'CREATE TABLE "{table}" (name TEXT NOT NULL, value TEXT)')
                name = table
                if table in v2:
                    name = f"{table}_V2"
                    create = create.replace(f"CREATE TABLE {table}", f"CREATE TABLE {name}", 1)
                connection.execute(create)
                if table in schema.enums:
                    rows: list[tuple[Value, ...]] = list(schema.enums[table])
                else:
                    defaults = schema.columns.get(table, {"name": None, "value": None})
                    rows = [tuple({**defaults, **row}.values()) for row in content.get(table, [])]
                if shuffle is not None:
                    random.Random(f"{shuffle} {table}").shuffle(rows)
                if rows:
                    marks = ", ".join("?" * len(rows[0]))
                    connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
            connection.commit()
        return path

    def _content(self, version: str) -> dict[str, list[dict[str, Value]]]:
        content = {table: list(rows) for table, rows in self.tables.items()}
        extra = TraceBuilder(self.schema)
        extra.options = {}
        pids = {process.pid: process for process in self._processes}
        for pid, device, context in sorted({place[:3] for place in self._places}):
            extra._add(
                "TARGET_INFO_CUDA_CONTEXT_INFO",
                nullStreamId=7,
                hwId=device,
                vmId=1,
                processId=pid,
                deviceId=device,
                contextId=context,
                parentContextId=0,
                isGreenContext=0,
            )
        for pid, device, context, stream in sorted(self._places):
            extra._add(
                "TARGET_INFO_CUDA_STREAM",
                streamId=stream,
                hwId=device,
                vmId=1,
                processId=pid,
                contextId=context,
                priority=0,
                flag=3 if stream == 7 else 2,
            )
        if self.schema != "3.7.2":
            mapped = {(row["pid"], row["cudaId"]) for row in self.tables.get("TARGET_INFO_CUDA_DEVICE", [])}
            for pid, device in sorted({place[:2] for place in self._places} - mapped):
                extra._add("TARGET_INFO_CUDA_DEVICE", gpuId=device, cudaId=device, pid=pid)
        named = {row["id"] for row in self.tables.get("TARGET_INFO_GPU", [])}
        for device in sorted({place[1] for place in self._places} - named):
            extra.device(device)
        for process in pids.values():
            for name, domain in process.domains.items():
                if name in PAYLOAD_SCHEMA_IDS and self.schema != "3.7.2":
                    extra._payload_schema(name, domain)
        extra._metadata(self, version)
        for table, rows in extra.tables.items():
            content[table] = content.get(table, []) + rows
        content["StringIds"] = [{"id": number, "value": text} for text, number in self._strings.items()]
        return content

    def _payload_schema(self, name: str, domain: int) -> None:
        schema_id = PAYLOAD_SCHEMA_IDS[name]
        frame_id, state_id = schema_id - 2, schema_id - 1
        self._add("NVTX_PAYLOAD_SCHEMAS", domainId=domain, schemaId=schema_id, name=name, type=2, numEntries=4)
        self._add("NVTX_PAYLOAD_SCHEMAS", domainId=domain, schemaId=frame_id, type=1, numEntries=3, payloadSize=24)
        entries: list[tuple[int, int, int | None, int, str, int | None, int | None]] = [
            (schema_id, 0, None, 18, "Thread state ID", None, None),
            (schema_id, 1, None, state_id, "Thread state", None, 8),
            (schema_id, 2, None, 16, "Frames count", None, 12),
            (schema_id, 3, 48, frame_id, "Frames", 2, 16),
            (frame_id, 0, None, 80, "Function", None, None),
            (frame_id, 1, None, 80, "File", None, 8),
            (frame_id, 2, None, 15, "Line", None, 16),
        ]
        for schema, index, flags, kind, label, detail, offset in entries:
            self._add(
                "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                domainId=domain,
                schemaId=schema,
                idx=index,
                flags=flags,
                type=kind,
                name=label,
                arrayOrUnionDetail=detail,
                offset=offset,
            )
        self._add("NVTX_PAYLOAD_ENUMS", domainId=domain, schemaId=state_id, numEntries=3, size=4)
        for index, label in enumerate(("Running", "Blocking Wait", "Uninterruptible")):
            self._add(
                "NVTX_PAYLOAD_ENUM_ENTRIES", domainId=domain, schemaId=state_id, idx=index, name=label, value=index + 1
            )

    def _metadata(self, trace: TraceBuilder, version: str) -> None:
        ends = [row.get("end") for rows in trace.tables.values() for row in rows]
        last = max((end for end in ends if isinstance(end, int) and end < 1 << 62), default=0)
        self._add(
            "ANALYSIS_DETAILS", globalVid=VM, duration=last, startTime=7_000_000_000, stopTime=7_000_000_000 + last
        )
        self._add(
            "TARGET_INFO_SESSION_START_TIME",
            utcEpochNs=1_700_000_000_000_000_000,
            utcTime="2023-11-14T22:13:20",
            localTime="2023-11-14T22:13:20",
        )
        for number, name, value in ((205, "NvDriverVersion", "580.1"), (611, "CudaDriverVersion", "13000")):
            self._add(
                "TARGET_INFO_SYSTEM_ENV",
                globalVid=VM,
                devStateName="Local (CLI)",
                name=name,
                nameEnum=number,
                value=value,
            )
        product = PRODUCT_VERSIONS[trace.schema]
        export = {
            "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
            "EXPORT_PRODUCT_VERSION": product,
            "EXPORT_SCHEMA_VERSION": version,
            **{
                f"EXPORT_SCHEMA_VERSION_{part}": number
                for part, number in zip(("MAJOR", "MINOR", "MICRO"), version.split("."), strict=False)
            },
            "EXPORT_TIME_UTC": "2023-11-14T22:14:00",
            "EXPORT_HOST": "",
            "EXPORT_USER": "",
            **trace.export,
        }
        for table, values in (("META_DATA_CAPTURE", trace.options), ("META_DATA_EXPORT", export)):
            for name, value in values.items():
                self._add(table, name=name, value=value)


@dataclass
class Process:
    """A process of the trace; gpid is its globalPid."""

    trace: TraceBuilder
    pid: int
    gpid: int
    domains: dict[str, int] = field(default_factory=dict)
    _correlations: Iterable[int] = field(default_factory=lambda: count(1))
    _events: Iterable[int] = field(default_factory=lambda: count(1))

    def thread(self, tid: int | None = None, name: str = "python3") -> Thread:
        """A thread; by default the main one."""
        thread = Thread(self, self.gpid | (self.pid if tid is None else tid))
        self.trace._add("ThreadNames", nameId=self.trace.string(name), priority=20, globalTid=thread.gtid)
        return thread

    def domain(self, name: str, gtid: int) -> int:
        """Id of an NVTX domain in this process; its create row is written once."""
        if name not in self.domains:
            self.domains[name] = len(self.domains) + 1
            self.trace._add(
                "NVTX_EVENTS",
                start=-1_000_000,
                eventType=DOMAIN_CREATE,
                globalTid=gtid,
                domainId=self.domains[name],
                **_nvtx_name(self.trace, name),
            )
        return self.domains[name]

    def correlation(self, corr: int | None) -> int:
        """The given correlation id, else a fresh one."""
        return next(iter(self._correlations)) if corr is None else corr


@dataclass
class Thread:
    """A thread of a process; gtid is its globalTid."""

    process: Process
    gtid: int

    def call(
        self,
        name: str,
        start: int,
        end: int,
        corr: int | None = None,
        frames: Sequence[Frame] | None = None,
        native: Sequence[str] = (),
    ) -> int:
        """An API call; returns its correlation id."""
        corr = self.process.correlation(corr)
        event_class = CALL if name.startswith("cuda") else DRIVER_CALL
        self._runtime(event_class, name, start, end, corr, None)
        if frames is not None or native:
            self.backtrace(bare(name), start - 50, end + 20, corr, frames, native)
        return corr

    def backtrace(
        self,
        name: str,
        start: int,
        end: int,
        corr: int,
        frames: Sequence[Frame] | None = None,
        native: Sequence[str] = (),
    ) -> None:
        """The class-67 row of a call, its call chain, and the Python mark at its start (None = no mark)."""
        trace = self.process.trace
        chain = next(iter(trace._chains))
        for depth, symbol in enumerate(native or (name,)):
            trace._add(
                "CUDA_CALLCHAINS",
                id=chain + (trace.schema == "3.7.2"),
                symbol=trace.string(symbol),
                module=trace.string("/usr/lib/libnative.so"),
                unresolved=0,
                originalIP=0x1000 + depth,
                stackDepth=depth,
            )
        self._runtime(BACKTRACE, name, start, end, corr, chain)
        if frames is not None:
            self._python_mark(CUDA_DOMAIN[trace.schema], start, frames)

    def _runtime(self, event_class: int, name: str, start: int, end: int, corr: int, chain: int | None) -> None:
        self.process.trace._add(
            RUNTIME,
            start=start,
            end=end,
            eventClass=event_class,
            globalTid=self.gtid,
            correlationId=corr,
            nameId=self.process.trace.string(name),
            returnValue=0,
            callchainId=chain,
        )

    # Calls that wait

    def sync(
        self,
        name: str,
        start: int,
        end: int,
        corr: int | None = None,
        *,
        stream: int = 7,
        context: int = 1,
        device: int = 0,
        event: Event | None = None,
        frames: Sequence[Frame] | None = None,
        native: Sequence[str] = (),
        recorded: bool = True,
    ) -> int:
        """A synchronizing call and, as exports have it, its SYNCHRONIZATION row: with the stream for stream syncs and
        stream waits, with the event for event syncs and queries, none for a device sync. recorded: False leaves it out.
        """
        corr = self.call(name, start, end, corr, frames, native)
        api = bare(name)
        by_event, wait, by_stream = SYNC_TYPES[self.process.trace.schema]
        if recorded and api not in ("cudaDeviceSynchronize", "cuCtxSynchronize"):
            on_event = "Event" in api and "Wait" not in api
            self.process.trace._place(self.process, device, context, 7 if on_event else stream)
            self.process.trace._add(
                SYNCHRONIZATION,
                start=start + 1,
                end=max(start + 1, end - 1),
                deviceId=device,
                contextId=context,
                streamId=NONE_32 if on_event else stream,
                correlationId=corr,
                globalPid=self.process.gpid,
                syncType=by_event if on_event else wait if "Wait" in api else by_stream,
                eventId=event.id if event else NONE_32,
                eventSyncId=event.sync_id if event else NONE_32,
            )
        return corr

    def record_event(
        self, start: int, end: int, stream: int = 7, context: int = 1, device: int = 0, corr: int | None = None
    ) -> Event:
        """cudaEventRecord, with its CUDA_EVENT row where the schema has that table."""
        trace = self.process.trace
        corr = self.call("cudaEventRecord_v3020", start, end, corr)
        number = next(iter(self.process._events))
        event = Event(number, number)
        trace._place(self.process, device, context, stream)
        if trace.schema != "3.7.2":
            trace._add(
                CUDA_EVENT,
                deviceId=device,
                contextId=context,
                greenContextId=0,
                streamId=stream,
                correlationId=corr,
                globalPid=self.process.gpid,
                eventId=event.id,
                eventSyncId=event.sync_id,
            )
        return event

    def wait_event(self, start: int, end: int, event: Event, stream: int = 7, context: int = 1, device: int = 0) -> int:
        """cudaStreamWaitEvent: the stream waits, the host does not."""
        return self.sync(
            "cudaStreamWaitEvent_v3020", start, end, stream=stream, context=context, device=device, event=event
        )

    # Calls that start work

    def launch(
        self,
        start: int,
        end: int,
        kernel: tuple[int, int] | None = None,
        *,
        corr: int | None = None,
        name: str = "kernel",
        **place: Unpack[Place],
    ) -> int:
        """cudaLaunchKernel and the kernel (start, end) it starts; None: the kernel's row was lost."""
        corr = self.call("cudaLaunchKernel_v7000", start, end, corr)
        if kernel:
            self.process.trace.kernel(self.process, *kernel, corr, name=name, **place)
        return corr

    def copy(
        self,
        start: int,
        end: int,
        op: tuple[int, int] | None = None,
        *,
        kind: str = "device->pageable",
        size: int = 4,
        corr: int | None = None,
        name: str = "cudaMemcpyAsync_v3020",
        frames: Sequence[Frame] | None = None,
        native: Sequence[str] = (),
        **place: Unpack[Place],
    ) -> int:
        """A copy call and its operation (start, end) on the GPU."""
        corr = self.call(name, start, end, corr, frames, native)
        if op:
            self.process.trace.memcpy(self.process, *op, corr, kind=kind, size=size, **place)
        return corr

    def graph_launch(
        self,
        start: int,
        end: int,
        run: tuple[int, int] | None = None,
        nodes: Sequence[tuple[int, int]] = (),
        *,
        corr: int | None = None,
        **place: Unpack[Place],
    ) -> int:
        """cudaGraphLaunch, with its run as one row, or as kernels with node ids, or neither."""
        corr = self.call("cudaGraphLaunch_v10000", start, end, corr)
        if run:
            self.process.trace.graph(self.process, *run, corr, **place)
        for number, node in enumerate(nodes):
            node_id = (1 << 32) + number + 1
            self.process.trace.kernel(self.process, *node, corr, name="node", graph_node=node_id, **place)
        return corr

    # NVTX

    def range(
        self,
        text: str,
        start: int,
        end: int | None,
        domain: str | None = None,
        kind: int = PUSH_POP,
        stored: str | None = None,
    ) -> None:
        """An NVTX range; domain None is the default domain, stored overrides the trace's nvtx_text."""
        self._nvtx(kind, start, end, domain, **_nvtx_name(self.process.trace, text, stored))

    def mark(self, text: str, at: int, domain: str | None = None, stored: str | None = None) -> None:
        """An NVTX mark."""
        self._nvtx(MARK, at, None, domain, **_nvtx_name(self.process.trace, text, stored))

    def payload(self, at: int, domain: str, json_text: str, end: int | None = None) -> None:
        """A mark or range of another library with a JSON payload of its own."""
        self._nvtx(MARK if end is None else PUSH_POP, at, end, domain, jsonText=json_text)

    def sample(self, at: int, frames: Sequence[Frame]) -> None:
        """A periodic Python sample."""
        self._python_mark(SAMPLING_DOMAIN, at, frames)

    def osrt(self, name: str, start: int, end: int) -> None:
        """An OS runtime call."""
        text = self.process.trace.string(name)
        self.process.trace._add(
            "OSRT_API", start=start, end=end, eventClass=27, globalTid=self.gtid, nameId=text, callchainId=0
        )

    def _nvtx(self, kind: int, start: int, end: int | None, domain: str | None, **values: Value) -> None:
        self.process.trace._add(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=kind,
            globalTid=self.gtid,
            domainId=0 if domain is None else self.process.domain(domain, self.gtid),
            **values,
        )

    def _python_mark(self, domain: str, at: int, frames: Sequence[Frame]) -> None:
        trace = self.process.trace
        ids = [
            (trace.string(html.escape(f, quote=False)), trace.string(html.escape(p, quote=False)), n)
            for f, p, n in frames
        ]
        values: dict[str, Value] = {"color": 0xFFFF_8000 + 0x5600}
        if "json" in (trace.payload or ()):
            values["jsonText"] = python_json(domain, ids)
        if "binary" in (trace.payload or ()):
            values["binaryData"] = python_blob(domain, ids, trace.garbage)
        self._nvtx(MARK, at, None, domain, **values)


def _nvtx_name(trace: TraceBuilder, text: str, stored: str | None = None) -> dict[str, Value]:
    where = stored or trace.nvtx_text
    values: dict[str, Value] = {}
    if where in ("text", "both"):
        values["text"] = text
    if where in ("textId", "both"):
        values["textId"] = trace.string(text)
    return values


def python_json(domain: str, frames: Sequence[tuple[int, int, int]]) -> str:
    """jsonText of a Python mark; frames are (function, file, line) with string ids."""
    listed = [{"Function": function, "File": file, "Line": line} for function, file, line in frames]
    body = {"Thread state ID": 1, "Thread state": "Running", "Frames count": len(frames), "Frames": listed}
    return json.dumps({domain: body}, separators=(",", ":"))


def python_blob(domain: str, frames: Sequence[tuple[int, int, int]], garbage: int = 0) -> bytes:
    """binaryData of a Python mark: a header, then the payload; garbage fills the unused high half of each line."""
    packed = b"".join(struct.pack("<QQII", *frame, garbage) for frame in frames)
    payload = struct.pack("<QII", 1, 1, len(frames)) + packed
    return struct.pack("<QQQQ", 1, PAYLOAD_SCHEMA_IDS[domain], len(payload), 32) + payload

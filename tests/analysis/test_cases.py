"""What the definitions say about single situations; docs/model.md tells the same.

Times are in µs. A sync that does not wait costs 5, a copy that does not block 8: no trace here has the three calls from
which the analysis would take a value of its own.
"""

from __future__ import annotations

from pathlib import Path

from nsys_sync.analysis.run import analyze
from tests.analysis.ask import (
    DEVICE_SYNC,
    EVENT_SYNC,
    HOST_TO_DEVICE,
    MALLOC,
    PINNED_TO_DEVICE,
    STREAM_SYNC,
    Gpu,
    ask,
    scale,
)
from tests.builder import TraceBuilder


def test_one_sync_between_two_kernels(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (10, 100))
    th.sync(STREAM_SYNC, 20, 110)
    th.launch(150, 155, (160, 200))
    # The sync takes 90 for work that ends at 100, after it began: wait 90 - 5 = 85.
    # Gap [0, 10): its launch ran until 5 (host, nothing before it), then the GPU had it (device).
    # Gap [100, 160): in the sync until 110; catching up until the launch returned at 155; then on its way.
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 200), 130, causes={"sync_wait": 10, "sync_refill": 45, "host": 5, "device": 10})
    assert answer.events == [{"wait": 85, "sync_wait": 10, "sync_refill": 45, "recoverable": 55}]
    assert answer.together == 55


def test_credit_is_what_the_host_waited(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (10, 100))
    th.sync(STREAM_SYNC, 88, 110)
    th.launch(200, 205, (205, 300))
    # Wait 22 - 5 = 17: 10 of it in the gap [100, 205), the other 7 for catching up; the rest of 95 is the host's own.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_wait": 10, "sync_refill": 7, "host": 5 + 88, "device": 5}
    assert answer.events == [{"wait": 17, "sync_wait": 10, "sync_refill": 7, "recoverable": 17}]


def test_the_gpu_works_through_a_long_sync(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 100_005))
    th.launch(5, 10, (100_005, 100_105))
    th.sync(STREAM_SYNC, 10, 100_010)
    # 100 ms in the call, and the device had work all the while: the host waited, the GPU lost nothing.
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 100_105), 100_100, causes={"host": 5})
    assert answer.events == [{"wait": 99_995}]


def test_gaps_of_minutes(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    minute = 60_000_000
    th.launch(0, 5, (10, 100))
    th.sync(STREAM_SYNC, 20, 110)
    th.launch(minute, minute + 5, (minute + 10, 2 * minute))
    th.sync(STREAM_SYNC, minute + 20, 2 * minute + 15)
    th.launch(3 * minute, 3 * minute + 5, (3 * minute + 5, 4 * minute))
    # The second wait is long enough to pay for the whole gap after it, the first pays 85 of the minute before.
    answer = ask(t, tmp_path)
    second = {"wait": minute - 10, "sync_wait": 15, "sync_refill": minute - 25, "recoverable": minute - 10}
    assert answer.events == [{"wait": 85, "sync_wait": 10, "sync_refill": 75, "recoverable": 85}, second]
    assert sum(answer.gpu.causes.values()) == 10 + (minute + 10 - 100) + (minute + 5)


def test_a_sync_with_nothing_to_wait_for_is_overhead(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.sync(STREAM_SYNC, 60, 80)
    th.launch(90, 95, (95, 100))
    # The stream was done at 50: no wait, no credit. 20 in the call are overhead, 10 + 10 + 5 around it are host time.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_overhead": 20, "host": 5 + 25}
    assert answer.events == [{"sync_overhead": 20}]
    assert answer.together == 0


def test_hand_off_to_a_silent_thread(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    main, backward = p.thread(), p.thread(2)
    main.launch(0, 5, (10, 100))
    main.sync(STREAM_SYNC, 20, 110)
    backward.launch(130, 135, (140, 200))
    # The second thread had made no call before 130: the first was working up to it, so its sync counts like its own.
    # Gap [100, 140): in the sync until 110, catching up until 135.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_wait": 10, "sync_refill": 25, "host": 5, "device": 10}
    assert answer.events == [{"wait": 85, "sync_wait": 10, "sync_refill": 25, "recoverable": 35}]


def test_credit_stays_with_its_thread_when_two_launch(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    main, other = p.thread(), p.thread(2)
    main.launch(0, 5, (10, 100))
    main.sync(STREAM_SYNC, 20, 110)
    other.launch(50, 60, (60, 70), stream=8)
    other.launch(130, 135, (140, 200))
    # The other thread called at 50, while the first was in its sync: nobody handed over to it. Its launch at 130 was
    # late by itself: all of [100, 135) is host time, and the sync, which did wait 85, gets nothing.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"host": 5 + 35, "device": 10}
    assert answer.events == [{"wait": 85}]
    # If no sync blocked, the process as a whole could still have been faster from the sync's first call on.
    assert answer.together == 35


def test_credit_is_dropped_when_the_thread_begins_to_wait_again(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    main, backward = p.thread(), p.thread(2)
    main.launch(0, 5, (10, 100))
    main.sync(STREAM_SYNC, 20, 110)
    main.sync(STREAM_SYNC, 120, 150)
    backward.launch(130, 135, (140, 200))
    # The launch at 130 comes from a thread that was silent over the first sync, but that sync's thread has begun to
    # wait again at 120 (for nothing: wait 0, and not over yet, so it handed over nothing). What was left of 85 is gone.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_wait": 10, "host": 5 + 25, "device": 10}
    assert answer.events == [{"wait": 85, "sync_wait": 10, "recoverable": 10}, {}]
    assert answer.together == 35


def test_an_allocation_inside_a_gap(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (10, 50))
    th.sync(STREAM_SYNC, 20, 60)
    th.call(MALLOC, 70, 100)
    th.launch(105, 110, (115, 130))
    # Gap [50, 115): sync until 60, host 60-70, allocating 70-100, host 100-110, then the GPU's own 5.
    # Wait 40 - 5 = 35, of which 10 went for waiting; the 20 of host time find 25 left.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_wait": 10, "sync_refill": 20, "alloc": 30, "host": 5, "device": 5 + 5}
    assert answer.events == [{"wait": 35, "sync_wait": 10, "sync_refill": 20, "recoverable": 30}]


def test_a_stream_s_work_against_the_process_s(tmp_path: Path) -> None:
    def busy_stream_beside(sync: str) -> TraceBuilder:
        t = TraceBuilder()
        th = t.process().thread()
        th.launch(0, 5, (5, 50), stream=7)
        th.launch(5, 10, (10, 200), stream=8)
        th.sync(sync, 60, 100, stream=7)
        return t

    # Stream 7 was done at 50, before the call: it waited for nothing. The device is busy until 200: all but 5 is wait.
    assert ask(busy_stream_beside(STREAM_SYNC), tmp_path).events == [{}]
    (tmp_path / "device").mkdir()
    assert ask(busy_stream_beside(DEVICE_SYNC), tmp_path / "device").events == [{"wait": 35}]


def test_an_event_waits_for_what_came_before_its_record(tmp_path: Path) -> None:
    t = TraceBuilder(schema="3.25.0")
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    event = th.record_event(5, 6)
    th.launch(6, 10, (50, 200))
    th.sync(EVENT_SYNC, 60, 100, event=event)
    # The kernel launched after the record is none of its business; the one before it was done at 50.
    assert ask(t, tmp_path).events == [{}]


def test_an_event_whose_record_is_not_in_the_trace_waits_for_the_device(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 200))
    th.sync(EVENT_SYNC, 60, 100)
    assert ask(t, tmp_path).events == [{"wait": 35}]


def test_blocking_and_other_copies_at_once(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.copy(0, 5, (40, 100), kind=PINNED_TO_DEVICE, stream=8)
    th.launch(5, 10, (50, 55), stream=9)
    th.copy(10, 70, (10, 60), kind=HOST_TO_DEVICE)
    # [10, 50) and [55, 60): a copy that blocks runs (beside another from 40 on). [60, 100): only the other one.
    # [50, 55): a kernel runs, and what runs beside it is no copy-only time.
    # The copy call took 60, a copy that does not block costs 8: wait 52, of which 45 pass in copy-only time.
    # The gap [0, 10) ends with the copy, whose call begins at 10: host time.
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 100), 5, blocking_copy=45, async_copy=40, causes={"host": 10})
    assert answer.events == [{"wait": 52, "copy_in_call": 45, "recoverable": 45}]


def test_a_pageable_copy_and_the_sync_after_it_are_one_event(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.copy(10, 90, (50, 80))
    th.sync(STREAM_SYNC, 92, 98)
    th.launch(110, 115, (115, 120))
    # .cpu(): 72 of wait in the copy (80 - 8), 0 in the sync (done at 80). 30 of it is the copy itself: credit 42.
    # Gap [80, 115): copy call until 90, 2 of host, sync until 98, host until 115. Waiting takes credit first (16), then
    # catching up (2 + 17).
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 120), 50, blocking_copy=30, causes={"sync_wait": 16, "sync_refill": 19, "host": 5})
    assert answer.events == [{"wait": 72, "sync_wait": 16, "sync_refill": 19, "copy_in_call": 30, "recoverable": 65}]


def test_a_gap_that_a_blocking_copy_ends(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.sync(STREAM_SYNC, 10, 52)
    th.copy(70, 170, (100, 150), kind=HOST_TO_DEVICE)
    # Gap [50, 100): in the sync until 52, host until 70: catching up after the sync (credit 37), for a copy does not
    # catch up after itself. [70, 100): inside the copy call, staging: its own wait (100 - 8 = 92, less 50 of copying).
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_wait": 2 + 30, "sync_refill": 18, "host": 5, "tail": 20}
    assert answer.events == [
        {"wait": 37, "sync_wait": 2, "sync_refill": 18, "recoverable": 20},
        {"wait": 92, "sync_wait": 30, "copy_in_call": 50, "recoverable": 80},
    ]


def test_several_operations_end_a_gap_at_once(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    main, other = p.thread(), p.thread(2)
    main.launch(0, 5, (10, 100))
    main.sync(STREAM_SYNC, 20, 110)
    main.launch(130, 135, (140, 200))
    other.launch(15, 18, (140, 160), stream=8)
    # Both kernels begin at 140. The one that ends first is asked: it had been launched at 15, so the gap is the GPU's.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"host": 5, "device": 5 + 40}


def test_a_nested_call_is_part_of_the_outer_one(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    outer = th.call("cudaMemcpyAsync_v3020", 10, 70)
    inner = th.call("cuMemcpyDtoHAsync_v2", 12, 68)
    assert outer != inner
    t.memcpy(th.process, 50, 60, inner)
    th.call("cuStreamSynchronize", 20, 66)
    # The operation names the inner call. One blocking copy comes out, from 10 to 70, and no sync inside it.
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 70), 45, blocking_copy=10, causes={"host": 5, "tail": 10})
    assert answer.events == [{"wait": 52, "copy_in_call": 10, "recoverable": 10}]


def test_an_operation_that_nobody_launched(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.sync(STREAM_SYNC, 20, 55)
    t.kernel(th.process, 80, 100, corr=999)
    # Nobody knows who was late: the whole gap [50, 80) is unknown, the 5 in the sync with it.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"host": 5, "unknown": 30}
    assert answer.events == [{"wait": 30}]


def test_one_process_on_two_devices(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process()
    first, second = p.thread(), p.thread(2)
    first.launch(0, 5, (5, 50), device=0, context=1)
    second.launch(0, 5, (5, 300), device=1, context=2)
    first.sync(DEVICE_SYNC, 20, 60)
    first.launch(100, 105, (105, 110), device=1, context=2, stream=8)
    first.sync(DEVICE_SYNC, 120, 200)
    first.launch(220, 225, (225, 230), device=0, context=1)
    # A device sync leaves no record: it is measured against the device on which its thread last launched. The first
    # one: device 0, busy until 50: wait 35. The second one: device 1, busy until 300: wait 75.
    # Device 0's gap [50, 225): 10 in the first sync, 80 in the second (75 of wait, 5 of overhead); 20 + 5 after the
    # second are its refill, but its credit is spent; 60 between them is before it: host, like those 25.
    answer = ask(t, tmp_path)
    assert answer.gpus[0] == Gpu((0, 230), 50, causes={"sync_wait": 10 + 75, "sync_overhead": 5, "host": 5 + 60 + 25})
    assert answer.gpus[1] == Gpu((0, 300), 295, causes={"host": 5})
    assert answer.events == [
        {"wait": 35, "sync_wait": 10, "recoverable": 10},
        {"wait": 75, "sync_wait": 75, "sync_overhead": 5, "recoverable": 75},
    ]
    # With nothing dropped the first sync's other 25 pay for catching up.
    assert answer.together == 10 + 75 + 25


def test_credit_is_spent_once_over_all_devices(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 2, (2, 50), device=0, context=1)
    th.launch(2, 4, (4, 40), device=1, context=2)
    th.sync(DEVICE_SYNC, 30, 60)
    th.launch(80, 85, (85, 90), device=0, context=1)
    th.launch(85, 90, (90, 100), device=1, context=2)
    # Measured against device 1 (launched last), busy until 40: wait 25.
    # In time order: device 1's gap [40, 90) begins first: 20 in the sync, the other 5 for catching up; its other 25 are
    # host. Device 0's gap [50, 85): 10 in the sync find no credit left, and neither do 25 after it.
    answer = ask(t, tmp_path)
    assert answer.gpus[1].causes == {"sync_wait": 20, "sync_refill": 5, "host": 4 + 25}
    assert answer.gpus[0].causes == {"sync_overhead": 10, "host": 2 + 25}
    assert answer.events == [{"wait": 25, "sync_wait": 20, "sync_refill": 5, "sync_overhead": 10, "recoverable": 25}]


def test_a_sync_on_another_device_s_context(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50), device=0, context=1)
    th.launch(5, 10, (10, 200), device=1, context=2)
    th.sync(STREAM_SYNC, 60, 100, device=1, context=2)
    th.sync(STREAM_SYNC, 110, 150, device=0, context=1)
    # Both devices have a stream 7. The sync on the second context waits for device 1, the other finds device 0 done.
    assert ask(t, tmp_path).events == [{"wait": 35}, {}]


def test_a_gap_over_several_syncs(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.sync(STREAM_SYNC, 20, 60)
    th.launch(65, 70, None)
    th.sync(STREAM_SYNC, 80, 90)
    th.copy(100, 130, (20, 40), stream=8)
    th.launch(150, 155, (160, 170))
    # The lost kernel's sync waited for nothing that is in the trace; the copy's own work was over long before.
    # Gap [50, 160): 10 in the first sync (wait 35), 10 in the second (overhead), 30 in the copy (wait 22: overhead 8).
    # Catching up counts from the copy on, 130-155: it has no credit left, and before it everything is host: 20 + 10.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_wait": 10 + 22, "sync_overhead": 10 + 8, "host": 5 + 30 + 25, "device": 5}
    assert answer.events == [
        {"wait": 35, "sync_wait": 10, "recoverable": 10},
        {"sync_overhead": 10},
        {"wait": 22, "sync_wait": 22, "sync_overhead": 8, "recoverable": 22},
    ]
    # Together: the first sync's other 25 are kept for the 25 after the copy.
    assert answer.together == 10 + 22 + 25


def test_a_sync_that_does_not_wait_hides_the_one_before_it(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.sync(STREAM_SYNC, 20, 60)
    th.sync(DEVICE_SYNC, 60, 70)
    th.launch(90, 95, (95, 100))
    answer = ask(t, tmp_path)
    # By itself neither pays for [70, 95): the last one has no credit, the first one's is dropped.
    assert answer.gpu.causes == {"sync_wait": 10, "sync_overhead": 10, "host": 5 + 25}
    assert sum(event.get("recoverable", 0) for event in answer.events) == 10
    assert answer.together == 35


def test_what_a_wait_can_pay_for_came_before_it(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.sync(STREAM_SYNC, 60, 65)
    th.copy(100, 200, (110, 120), kind=HOST_TO_DEVICE)
    # 35 of host time lie after a sync without credit and before a copy that waited 92. The copy cannot have made the
    # host late for itself, neither alone nor together: 10 inside its call, and the 10 that the GPU only copied.
    answer = ask(t, tmp_path)
    assert answer.gpu.causes == {"sync_wait": 10, "sync_overhead": 5, "host": 5 + 10 + 35, "tail": 80}
    assert answer.together == 20


def test_pieces_of_one_copy_call_that_run_at_once(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    corr = th.copy(0, 60, (10, 40), kind=HOST_TO_DEVICE)
    t.memcpy(th.process, 20, 50, corr, kind=HOST_TO_DEVICE, stream=8)
    # Two pieces of 30, together from 10 to 50: 40 of copy-only time inside the call, not 60.
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 60), 0, blocking_copy=40, causes={"sync_wait": 10, "tail": 10})
    assert answer.events == [{"wait": 52, "sync_wait": 10, "copy_in_call": 40, "recoverable": 50}]


def test_two_processes_share_a_gpu(tmp_path: Path) -> None:
    t = TraceBuilder()
    one, two = t.process(pid=100).thread(), t.process(pid=200).thread()
    one.launch(0, 5, (5, 50), corr=42)
    two.launch(45, 48, (60, 80), corr=42)
    one.sync(STREAM_SYNC, 10, 55)
    one.launch(85, 90, (90, 95))
    # Both use correlation id 42 and context 1; each operation has one launch. [50, 60) ends with the other process's
    # kernel, launched at 45: device. [80, 90) is caught up after the sync of the first, with nobody else's credit.
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 95), 70, causes={"host": 5, "device": 10, "sync_refill": 10})
    assert answer.events == [{"wait": 40, "sync_refill": 10, "recoverable": 10}]


def test_the_same_ordinal_is_another_gpu_in_another_process(tmp_path: Path) -> None:
    t = TraceBuilder()
    one, two = t.process(pid=100).thread(), t.process(pid=200).thread()
    one.launch(0, 10, (10, 40))
    two.launch(10, 20, (20, 100))
    # CUDA_VISIBLE_DEVICES=0 and =1: both call their device 0, and it is GPU 0 and GPU 1.
    t.row("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100)
    t.row("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=200)
    answer = ask(t, tmp_path)
    assert answer.gpus == {0: Gpu((0, 40), 30, causes={"host": 10}), 1: Gpu((10, 100), 80, causes={"host": 10})}


def test_graph_launches_without_their_work(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.launch(0, 5, (5, 50))
    th.graph_launch(60, 65)
    th.graph_launch(70, 75)
    th.sync(STREAM_SYNC, 80, 200)
    report = analyze(scale(t).write(tmp_path / "t.sqlite"))
    # The GPU may have run graphs all the while: its idle time is not known, and nothing that rests on it is given.
    (device,) = report.devices
    assert (device.idle_status, device.idle_ns, device.busy_ns, device.gaps) == ("withheld", None, None, None)
    assert device.idle_reason is not None
    assert device.idle_reason.startswith("2 CUDA graph launches have no recorded work")
    assert report.totals.idle_ns is report.totals.recoverable_ns is report.totals.recoverable_all_ns is None
    assert [site.recoverable_ns for site in report.sites] == [None]
    assert report.headline.slug == "withheld"


def test_graph_runs_and_graph_nodes_are_work(tmp_path: Path) -> None:
    t = TraceBuilder()
    th = t.process().thread()
    th.graph_launch(0, 5, run=(5, 45))
    th.graph_launch(50, 55, nodes=[(55, 60), (62, 70)])
    # Between two nodes of one graph the GPU idles with everything launched: device.
    answer = ask(t, tmp_path)
    assert answer.gpu == Gpu((0, 70), 53, causes={"host": 5 + 10, "device": 2})


def test_work_that_begins_while_the_capture_closes_is_not_in_it(tmp_path: Path) -> None:
    def trace(*, closed: bool) -> TraceBuilder:
        t = TraceBuilder()
        th, other = t.process().thread(), t.process(pid=2).thread()
        th.launch(0, 5, (5, 45))
        th.copy(50, 90, (60, 85), kind="device->pageable")
        if closed:
            th.range("nsys-sync:close", 100, 300)
            th.copy(110, 190, (120, 180), kind="device->pageable")
            th.sync(DEVICE_SYNC, 200, 210)
            th.launch(220, 225, (225, 245))
            other.launch(95, 100, (100, 105))
        else:
            other.launch(95, 100, (100, 105))
        return t

    (tmp_path / "closed").mkdir()
    assert ask(trace(closed=True), tmp_path / "closed") == ask(trace(closed=False), tmp_path)

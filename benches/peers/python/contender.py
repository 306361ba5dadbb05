"""The line protocol of benches/performance/worker.rs, for locks with acquire() and release()."""

import sys
import threading
import time

HELD = 30


def percentile(values, part):
    return values[round((len(values) - 1) * part)] if values else float("nan")


def run(version, make):
    """`make(name, wait, shared)` gives (acquire, release); `shared` asks for one client for all callers."""
    print("ready", version, flush=True)
    crowds = {}
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "cycles":
                count = int(words[1])
                if count not in crowds:
                    crowds[count] = [make(f"bench-{i:08}", "default", True) for i in range(count)]
                answer = cycles(crowds[count], int(words[2]) / 1e3)
            elif words[0] in ("contend", "handoff"):
                callers = [make("bench-contended", words[4], False) for _ in range(int(words[1]))]
                answer = contend(callers, int(words[2]) / 1e6, int(words[3]) / 1e3, words[0] == "handoff")
            elif words[0] == "burst":
                callers = [make("bench-contended", words[3], False) for _ in range(int(words[1]))]
                answer = burst(callers, int(words[2]) / 1e6)
            elif words[0] == "wait":
                callers = [make("bench-waited", words[2], False) for _ in range(int(words[1]) + 1)]
                if not callers[0][0]():
                    raise RuntimeError("the holder was not granted its lock")
                for acquire, _ in callers[1:]:
                    threading.Thread(target=acquire, daemon=True).start()
                answer = []
            else:
                raise RuntimeError(f"no such request: {words}")
            print("ok", *answer, flush=True)
        except Exception as e:
            print("error", repr(e).replace("\n", " "), flush=True)


def each(callers, work):
    """Runs `work` for every caller at once and gives what they return."""
    results, errors = [None] * len(callers), []
    together = threading.Barrier(len(callers))

    def one(i):
        try:
            together.wait()
            results[i] = work(i, *callers[i])
        except Exception as e:
            errors.append(e)

    if len(callers) == 1:
        one(0)
    else:
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(callers))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    if errors:
        raise errors[0]
    return results


def cycles(callers, seconds):
    def work(_, acquire, release):
        times = []
        begun = last = time.perf_counter_ns()
        end = begun + seconds * 1e9
        while last < end:
            if not acquire():
                raise RuntimeError("a lock that no other caller wants was taken")
            release()
            now = time.perf_counter_ns()
            times.append(now - last)
            last = now
        return begun, last, times

    results = each(callers, work)
    times = sorted(t for r in results for t in r[2])
    span = max(r[1] for r in results) - min(r[0] for r in results)
    return len(times), span, percentile(times, 0.5), percentile(times, 0.99)


def contend(callers, hold, seconds, polite):
    last, total = [None, 0], [0]
    end = time.perf_counter_ns() + int(seconds * 1e9)
    over = threading.Event()

    def work(me, acquire, release):
        grants, gave_up, handoffs = 0, 0, []
        while time.perf_counter_ns() < end and not over.is_set():
            if not acquire():
                gave_up += 1
                continue
            granted = time.perf_counter_ns()
            if granted >= end:
                release()
                break
            by, at = last
            if by is not None and by != me:
                handoffs.append(granted - at)
            grants += 1
            total[0] = mine = total[0] + 1
            time.sleep(hold)
            last[0], last[1] = me, time.perf_counter_ns()
            release()
            while polite and total[0] == mine and time.perf_counter_ns() < end:
                time.sleep(0.0002)
        over.set()
        return grants, gave_up, handoffs

    results = each(callers, work)
    grants = [r[0] for r in results]
    handoffs = sorted(h for r in results for h in r[2])
    return (
        sum(grants), seconds * 1e9, len(handoffs), percentile(handoffs, 0.5), percentile(handoffs, 0.99),
        min(grants), max(grants), sum(r[1] for r in results),
    )  # fmt: skip


def burst(callers, hold):
    def work(_, acquire, release):
        begun, gave_up = time.perf_counter_ns(), 0
        while not acquire():
            gave_up += 1
        time.sleep(hold)
        release()
        return begun, time.perf_counter_ns(), gave_up

    results = each(callers, work)
    span = max(r[1] for r in results) - min(r[0] for r in results)
    return span, sum(r[2] for r in results)

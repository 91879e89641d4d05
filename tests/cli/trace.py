# SPDX-License-Identifier: Apache-2.0
"""Checks a trace, and prints the contents of its tracks: python3 trace.py FILE [WORKERS]

In the Trace Event Format the slices of a track must lie beside or within each other; viewers drop slices that overlap. The
checks: every event has the fields of its kind, times ascend, slices are nested, each worker is a process, slices of a
device do not even contain each other, and counters have numbers. If the package perfetto and its trace processor are
installed, it must keep all slices, too."""
import collections, json, sys

path, workers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
trace = json.load(open(path))
events = trace["traceEvents"]
names, processes, slices, newest = {}, {}, collections.defaultdict(list), {}
for e in events:
    assert {"name", "ph", "pid", "tid"} <= set(e), e
    if e["ph"] == "M":
        assert e["name"] in ("process_name", "thread_name", "process_sort_index", "thread_sort_index"), e
        if e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
        if e["name"] == "process_name":
            processes[e["pid"]] = e["args"]["name"]
        continue
    assert e["ts"] >= newest.get(e["pid"], 0), e
    newest[e["pid"]] = e["ts"]
    if e["ph"] == "C":
        assert isinstance(e["args"]["value"], (int, float)) and len(e["args"]) == 1, e
        continue
    assert e["ph"] == "X" and e["dur"] >= 0, e
    slices[e["pid"], e["tid"]].append(e)
assert len(processes) == workers, processes
assert workers == 1 or sorted(processes.values()) == [f"worker {r}" for r in range(workers)], processes
assert set(slices) <= set(names), "a track without a name"
is_device = lambda track: " queue (" in names[track]
ns = lambda us: round(us * 1000)
for track, own in slices.items():
    open_ends = []
    for e in own:
        began, ended = ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])
        while open_ends and open_ends[-1] <= began:
            open_ends.pop()
        assert not open_ends or ended <= open_ends[-1], f"{names[track]}: {e['name']} overlaps"
        assert not open_ends or not is_device(track), f"{names[track]}: {e['name']} lies within another"
        open_ends.append(ended)
        assert not e["name"].startswith("segment"), e
for track in sorted(names):
    own = slices.get(track, [])
    kinds = collections.Counter(e["name"] for e in own)
    busy = sum(e["dur"] for e in own)
    print(f"{processes[track[0]]}: {names[track]}: {len(own)} slices, {busy / 1000:.1f} ms:",
          ", ".join(f"{n} {k}" for k, n in kinds.most_common(60)))
    if is_device(track):
        rates = [e["args"]["GFLOP/s"] for e in own if "GFLOP/s" in e["args"]]
        kernels = [e for e in own if "op" in e["args"]]
        assert kernels and rates and max(rates) < 1e6, names[track]
        assert all({"op", "shape", "dtype", "step"} <= set(e["args"]) for e in kernels)
        steps = [e["args"]["step"] for e in own]
        assert steps == sorted(steps), f"{names[track]}: steps are out of order"

try:
    from perfetto.trace_processor import TraceProcessor
    processor = TraceProcessor(trace=path)
except Exception as reason:  # the package or its program is not installed
    print(f"skipped: not read by Perfetto's trace processor ({type(reason).__name__})")
    sys.exit()
kept = list(processor.query("select count(*) as n from slice"))[0].n
errors = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
lost = [(r.name, r.value) for r in processor.query(errors)]
assert kept == sum(map(len, slices.values())) and not lost, (kept, lost)
print(f"Perfetto's trace processor keeps all {kept} slices")

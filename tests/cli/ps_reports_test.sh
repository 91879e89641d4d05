#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What parameter_server reports about its tasks: the staleness of updates, slow workers and the lengths of queues, in
# events, logs, the progress line and traces. The numbers are compared with each other, and with known values.
. "$(dirname "$0")/support.sh"
make_data "$work/data"
train="train mnist --data $work/data --epochs 2 --seed 1 --global-batch 60 --device host --strategy parameter_server --wait 200"

# reports EXPRESSION: a Python expression about the events of the last run: `epochs`, `r` the result, and `log` the rows of
# $work/log.jsonl about epochs. Before that it checks what must hold in every run, with W workers and S servers.
cat >"$work/reports.py" <<'END'
import json, os, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/out")]
epochs = [e for e in events if e["event"] == "epoch"]
r = [e for e in events if e["event"] == "result"][0]
path = sys.argv[1] + "/log.jsonl"
log = [e for e in map(json.loads, open(path)) if e["event"] == "epoch"] if os.path.exists(path) else None
W, S = r["workers"], r["servers"]
near = lambda a, b: abs(a - b) < 1e-3
bottom = [0, 1, 2, 3, 4, 8, 16, 32]
for e in epochs + [r]:
    counts, n = e["staleness_histogram"], sum(e["staleness_histogram"])
    top = [0, 1, 2, 3, 7, 15, 31, e["staleness_max"]]
    assert len(counts) == 8 and near(e["stale_share"], 1 - counts[0] / n), e
    assert sum(c * b for c, b in zip(counts, bottom)) / n <= e["staleness_mean"] + 1e-3, e
    assert sum(c * t for c, t in zip(counts, top)) / n >= e["staleness_mean"] - 1e-3, e
    last = max(i for i in range(8) if counts[i])
    assert bottom[last] <= e["staleness_max"] <= top[last], e
    assert len(e["worker_steps"]) == len(e["worker_samples_per_s"]) == W, e
    assert 1 <= e["server_pulls_max"] <= W and 1 <= e["server_pushes_max"] <= W, e
    assert 0 < e["leases_mean"] <= e["leases_max"] <= 10 * W, e
    # A slow worker is reported only after several steps. Epochs are short, and a worker may start late.
    assert -1 <= e["slowest_worker"] < W and (W > 1 or e["slowest_worker"] == -1), e
    assert W == 1 or min(e["worker_steps"]) < 3 or e["slowest_worker"] >= 0, e
    assert e["slowest_ratio"] == 0 if e["slowest_worker"] == -1 else e["slowest_ratio"] >= 1, e
for e in epochs:
    rates = [60 * s / e["epoch_s"] for s in e["worker_steps"]]
    if r["replicas"] == 1:
        assert all(abs(a - b) < 1e-3 * (a + 1) for a, b in zip(rates, e["worker_samples_per_s"])), (rates, e)
for name in ("staleness_histogram", "worker_steps"):
    assert [sum(c) for c in zip(*(e[name] for e in epochs))] == r[name], (name, r)
for name in ("staleness_max", "leases_max", "server_pulls_max", "server_pushes_max"):
    assert max(e[name] for e in epochs) == r[name], (name, r)
assert r["queue_running"] == r["queue_waiting"] == 0
drop = lambda e: {k: v for k, v in e.items() if k not in ("seconds", "weight_norm")}
assert log is None or [drop(e) for e in log] == [drop(e) for e in epochs], log
assert eval(sys.argv[2]), events
END
reports() { check "the reports fulfil: $1" python3 "$work/reports.py" "$work" "$1"; }

# shellcheck disable=SC2086 # words
{
# ---- one worker that pulls ahead: each push but the first one of an epoch is one update behind ----
ahead="$train --old-gradients plain"
expect 0 "" launch --workers 1 --ps 1 -- "$strata" $ahead --json --log "$work/log.jsonl"
reports "r['staleness_histogram'] == [2, 18] + 6 * [0] and near(r['staleness_mean'], 0.9) and r['worker_steps'] == [20]"
reports "all(e['staleness_histogram'] == [1, 9] + 6 * [0] and e['staleness_max'] == 1 for e in epochs)"
reports "2 <= r['leases_max'] <= 10 and r['server_pulls_max'] == 1 and r['stragglers'] == 0 and log[1]['worker_steps'] == [10]"
rm "$work/log.jsonl"
expect 0 "" launch --workers 1 --ps 1 -- "$strata" $ahead --json --log "$work/log.csv"
check "a CSV has the numbers" python3 - "$work/log.csv" <<'END'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert [r["stale_share"] for r in rows if r["event"] == "epoch"] == ["0.9", "0.9"], rows
assert all(r["staleness_mean"] == "" for r in rows if r["event"] != "epoch") and len(rows) == 23, len(rows)
END

# ---- several workers ----
expect 0 "" launch --workers 3 --ps 2 -- "$strata" $train --json --log "$work/log.jsonl"
reports "sum(r['staleness_histogram']) == 2 * 20 and sum(r['worker_steps']) == 20 and len(log) == 2"
rm "$work/log.jsonl"
expect 0 "" launch --workers 3 --ps 2 -- "$strata" $train --sync --json
reports "r['staleness_histogram'] == [120] + 7 * [0] and r['staleness_max'] == 0 and r['worker_steps'] == [20, 20, 20]"
reports "r['leases_max'] <= 3"

# ---- a worker whose device takes 15 times as long; a step mostly sleeps, so the speed of the machine does not matter ----
plugin=$(ls "$STRATA_BUILD_DIR"/suites/plugins/libstrata_faulty_plugin.* 2>/dev/null | head -n 1)
cat >"$work/slow.sh" <<'END'
#!/bin/sh
case $TF_CONFIG in
*'"type":"worker","index":1'*) export STRATA_FAULTY=slow:150 ;;
*'"type":"worker"'*) export STRATA_FAULTY=slow:10 ;;
esac
exec "$@"
END
chmod +x "$work/slow.sh"
slow="train regression --epochs 6 --seed 1 --batch 20 --plugin $plugin --device faulty:0 --allow-fallback host --no-tune"
slow="$slow --strategy parameter_server --wait 200"
if [ -n "$plugin" ]; then
    expect 0 "" launch --workers 3 --ps 1 -- "$work/slow.sh" "$strata" $slow --json
    check "the slow worker is named" python3 - "$work/out" <<'END'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
late = [e for e in events if e["event"] == "epoch"][2:]
named = [e for e in late if e["slowest_worker"] == 1 and e["slowest_ratio"] > 2 and e["stragglers"] == 1]
assert len(late) == 4 and len(named) >= len(late) - 1, late # at the end of an epoch the worker may be in its first step
steps = [sum(e["worker_steps"][w] for e in late) for w in range(3)]
assert 3 * steps[1] < min(steps[0], steps[2]) and sum(steps) == events[0]["step"] * len(late), steps
assert max(e["staleness_max"] for e in late) >= 8, late # the other workers make updates meanwhile
END
    expect 0 "; worker:1 is the slowest, its steps take " launch --workers 3 --ps 1 -- "$work/slow.sh" "$strata" $slow
    check "an epoch's line names it too" grep -qE "s  staleness [0-9.]+  slow worker:1 [0-9.]+x$" "$work/out"
else
    echo "skipped: a slow worker: the plugin of tests/plugin was not built"
fi

# ---- the line of progress ----
free_ports 3
base=$port
tasks="chief=127.0.0.1:$base;worker=127.0.0.1:$((base + 1));ps=127.0.0.1:$((base + 2))"
for task in ps worker; do "$strata" $train --epochs 4000 --cluster "$tasks" --task $task:0 >"$work/$task" 2>&1 & done
TERM=xterm python3 "$here/screen.py" --interrupt queue "$work/drawn" 160 \
    "$strata" $train --epochs 4000 --cluster "$tasks" --task chief >"$work/out" 2>"$work/err"
check "it is interrupted" test $? = 130
wait
check "the line has the load" grep -qaE "stale (0|1)\.[0-9] leases [0-9]+ queue [0-9]" "$work/drawn"

# ---- traces: one file for each task; the numbers must be those of the result ----
expect 0 "" launch --workers 2 --ps 2 -- "$strata" $train --json --trace "$work/t.json"
check "their numbers are those of the result" python3 - "$work" <<'END'
import json, statistics, sys
work = sys.argv[1]
r = [e for e in map(json.loads, open(work + "/out")) if e["event"] == "result"][0]
def read(name):
    events = json.load(open(f"{work}/t{name}.json"))["traceEvents"]
    process = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    all_slices = [e for e in events if e["ph"] == "X"]
    slices = lambda kind, track=None: [e for e in all_slices if e["name"] == kind and track in (None, tracks[e["tid"]])]
    counter = lambda kind: [e["args"]["value"] for e in events if e["ph"] == "C" and e["name"] == kind]
    return process, slices, counter, {e["pid"] for e in events}
chief, workers, servers = read(""), [read(f".worker{i}") for i in range(2)], [read(f".ps{i}") for i in range(2)]
assert [x[0] for x in [chief] + workers + servers] == [["chief:0"], ["worker:0"], ["worker:1"], ["ps:0"], ["ps:1"]]
pids = [x[3] for x in [chief] + workers + servers]
assert all(len(p) == 1 for p in pids) and len(set.union(*pids)) == 5, pids # so that the files can be merged
staleness = [v for s in servers for v in s[2]("staleness")]
assert len(staleness) == 40 and abs(statistics.mean(staleness) - r["staleness_mean"]) < 1e-3
assert max(staleness) == r["staleness_max"]
assert abs(statistics.mean(chief[2]("staleness")) - r["staleness_mean"]) < 1e-3 and len(chief[2]("staleness")) == 20
assert max(chief[2]("queue depth")) == r["leases_max"] and len(chief[1]("steps of an epoch")) == 2
for w, (_, slices, counter, _) in enumerate(workers):
    steps = r["worker_steps"][w]
    assert len(slices("push", "pushes under way")) == len(counter("staleness")) == steps, steps
    assert len(slices("wait for pull")) == steps + 1, steps
    assert len(slices("pull", "pulls under way")) == steps + 1
    for pull, wait in zip(slices("pull"), slices("wait for pull")):
        assert pull["ts"] <= wait["ts"] + 1 and abs(pull["ts"] + pull["dur"] - wait["ts"] - wait["dur"]) < 1, (pull, wait)
    for s in servers:
        assert len(s[1]("push", f"worker:{w}")) == steps and len(s[1]("pull", f"worker:{w}")) == steps + 1
    assert 1 <= len(chief[1]("wait for a batch", f"worker:{w}")) <= steps + 4
depths = [max(w[2]("queue depth"), default=0) for w in workers] # a worker that starts when all batches are taken has none
assert all(d <= 10 for d in depths) and max(depths) >= 2, depths
for s in servers:
    depth = s[2]("queue depth")
    assert min(depth) == 0 and 1 <= max(depth) <= 2 and len(s[1]("send values", "chief:0")) == 2
END
# The bits must be the same with and without the trace.
expect 0 "" launch --workers 2 --ps 2 -- "$strata" $train --sync --json
sha=$(tail -n 1 "$work/out" | sed 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/')
expect 0 "" launch --workers 2 --ps 2 -- "$strata" $train --sync --json --trace "$work/t.json"
json "r['weights_sha256'] == '$sha'"
# The last run is synchronous, because an asynchronous worker may start when all batches are taken, and then has no slices.
for task in "" .worker0 .worker1 .ps0 .ps1; do
    check "the trace of t$task is as its format asks for" python3 "$here/trace.py" "$work/t$task.json"
done
expect 3 "trace: " launch --workers 1 --ps 1 -- "$strata" $train --trace "$work/no-such-folder/t.json"
}
finish

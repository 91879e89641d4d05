#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata plugin-check: what it reports of right, wrong, crashing and hanging plugins, and its exit codes. And a built-in backend
# as a plugin: mnist gives the bits of the built-in one.
#   STRATA_BUILD_DIR   where the command and the plugins are
set -u
strata=$STRATA_BUILD_DIR/strata
plugins=$STRATA_BUILD_DIR/suites/plugins
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -e "$plugins/libstrata_host_plugin.so" ] || { echo "skipped: $plugins has no plugins"; exit 77; }

fail() {
    echo "$1"
    cat "$work/report"
    exit 1
}

# check FAULT CODE TEXT...: plugin-check of the faulty plugin ends with the code, and its report has each text. options: of the
# command.
options=--quick
check() {
    fault=$1 wanted=$2 limit=600
    shift 2
    [ "$fault" != hang ] || limit=10
    STRATA_FAULTY=$fault "$strata" plugin-check "$plugins/libstrata_faulty_plugin.so" --limit $limit $options \
        >"$work/report" 2>&1
    code=$?
    [ "$code" = "$wanted" ] || fail "plugin-check of the fault \"$fault\": exit code $code instead of $wanted"
    for text in "$@"; do
        grep -q -e "$text" "$work/report" || fail "plugin-check of the fault \"$fault\": the report does not say \"$text\""
    done
}

check "" 0 '^device faulty:0, Acme A1 (Acme), driver 0.1$' '^  ok  *memory' '^  ok  *training' '^  ok  *matmul f32  *6 cases' \
    '^  ok  *add f32' '^  acme runs matmul and add:$' '^ .* relu,' ' 0 wrong'
check wrong 4 \
    '^  WRONG  *add f32 .*operands f32 .*first at (.*): got .*, expected .*worst at' '^  WRONG  *matmul f32'
check short 4 '^  WRONG  *add f32 .*first at (.*): got' '^  WRONG  *matmul f32'
check skips 4 '^  ok  *add f32' '^  ok  *matmul f32' '^  WRONG  *training  *the loss of step [0-9]* is .* instead of'
check copies+unordered 4 '^  WRONG  *memory  *byte 0 of .* is not that of the last of two uploads'
check start-crash 4 '^  CRASH  *opening  *signal 6'
check start-exit 4 '^  CRASH  *opening .*exit code 3'
check start-fails 4 'no chip on board 3'
check major-2 4 'version 2.0 of the plugin interface; this Strata has version 1.0'
check null:run 4 'required slot run'
check crash-run 4 '^  CRASH  *add f32 .*operands f32 .*signal 6' '^  CRASH  *matmul f32' '^  ok  *memory'
check exit-run 4 '^  CRASH  *matmul f32 .*exit code 3'
check hang 4 '^  WRONG  *matmul f32 .*TIMEOUT.*has not ended for 1 s'
check lost:run:2 4 '^  ok  *memory' '^  WRONG  *add f32 .*DEVICE_LOST' '^  WRONG  *matmul f32 .*DEVICE_LOST'
check memory_bytes=1e18 4 '^  WRONG  *opening .*memory_bytes 1000000000000000000'
check dirty 4 '^  WRONG  *memory .* in a new buffer, after one of the same size was destroyed'
check stale 4 '^  WRONG  *memory .*byte 1048576 of an upload of .* reads back as'
check writes-source 4 '^  WRONG  *memory .*wrote to .*the source of upload'
check keeps-source 4 '^  WRONG  *memory .*after the call had returned, .* the source of upload'
options='--quick --ops add'
check writes-piece 4 '^  WRONG  *add f32 .*wrote to .*the piece of compile'
check keeps-piece 4 '^  WRONG  *add f32 .*after the call had returned, .* the piece of compile'
check early 4 '^  WRONG  *add f32 .*first at'
check noise 4 '^  WRONG  *add f32 .*the same values give other bits'
# A sanitizer has its own heap, whose memory is not counted.
if ! grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    check leaks-run 4 '^  ok  *add f32' '^  WRONG  *counts .*each leaves [0-9]* bytes of memory in use'
    check leaks-buffer 4 '^  WRONG  *counts .*buffers: each leaves 65[0-9]* bytes'
    check leaks-program 4 '^  WRONG  *counts .*programs: each leaves'
fi
options='--ops add'
check large 4 '^  WRONG  *add f32 .*operands f32 (1048583), .*1 of 1048583 elements'
options='--ops matmul'
check thousandth 4 '^  WRONG  *matmul f32 .*element (7,103) of the product of (128,128) and (128,128)'
check half 4 '^  WRONG  *matmul f32 .*differs by more than sums in f32 may'
options=--quick
check buffer-null 4 '^  WRONG  *memory .*its buffer is NULL'

# A plugin in C++ that throws where its calls may not.
if command -v c++ >/dev/null; then
    c++ -std=c++17 -shared -fPIC -I"$STRATA_SOURCE_DIR/include" "$STRATA_SOURCE_DIR/tests/plugin/faulty/thrower.cpp" \
        -o "$work/libthrower.so" || fail "the plugin that throws cannot be built"
    "$strata" plugin-check "$work/libthrower.so" >"$work/report" 2>&1
    [ $? = 4 ] && grep -q '^  CRASH  *opening  *signal 6' "$work/report" || fail "plugin-check does not see an exception"
fi

# --limit bounds the whole check, also if every case hangs.
for call in run start; do
    before=$(date +%s)
    STRATA_FAULTY=hangs:$call "$strata" plugin-check "$plugins/libstrata_faulty_plugin.so" --quick --limit 6 \
        >"$work/report" 2>&1
    [ $? = 4 ] && grep -q '^  HANG .*not answered for 1 s' "$work/report" ||
        fail "plugin-check does not see that $call hangs"
    [ $(($(date +%s) - before)) -le 100 ] || fail "plugin-check --limit 6 of a plugin whose $call hangs took longer"
done
STRATA_FAULTY=slow:50 "$strata" plugin-check "$plugins/libstrata_faulty_plugin.so" --quick --limit 3 >"$work/report" 2>&1
[ $? = 163 ] && grep -q 'ended after 3 s, before all was checked' "$work/report" ||
    fail "plugin-check does not report that its time is over"
"$strata" plugin-check "$plugins/libstrata_host_plugin.so" --quick >"$work/report" 2>&1 ||
    fail "the host as a plugin is not right"
grep -q ' 0 wrong, 0 not claimed' "$work/report" || fail "the host as a plugin does not claim every op"
"$strata" plugin-check /nowhere.so >"$work/report" 2>&1
[ $? = 4 ] || fail "plugin-check of no file succeeds"

# plugin-new: names and folders.
"$strata" plugin-new host --to "$work/x" >"$work/report" 2>&1
[ $? = 2 ] && grep -q "is Strata's own" "$work/report" || fail "plugin-new takes a name of Strata's"
"$strata" plugin-new 'a/b' --to "$work/x" >"$work/report" 2>&1
[ $? = 2 ] || fail "plugin-new takes a name with a slash"
"$strata" plugin-new own --to "$work/x" >"$work/report" 2>&1 || fail "plugin-new fails"
"$strata" plugin-new own --to "$work/x" >"$work/report" 2>&1
[ $? = 2 ] && grep -q 'File exists' "$work/report" || fail "plugin-new writes over files"

# The same bits.
train() {
    "$strata" train mnist --epochs 1 --seed 1 --batch 256 --save "$work/$1" --plugin "$2" --device "$3" >"$work/report" 2>&1 ||
        fail "mnist on $3 ($2)"
}
host=$plugins/libstrata_host_plugin.so
train built-in "$host" host
train plugin "$host" host-plugin:0
train own "$host,memory=own,fused=no" host-plugin:0
cmp -s "$work/built-in" "$work/plugin" || fail "mnist on the host as a plugin has other bits than on the host"
cmp -s "$work/built-in" "$work/own" || fail "mnist on a plugin that plans its memory has other bits than on the host"

python3 "$STRATA_SOURCE_DIR/tests/cli/files.py" data "$work/mnist" 200 50
# A program that cannot be compiled is no batch that does not fit.
STRATA_FAULTY=refuses "$strata" train mnist --data "$work/mnist" --epochs 1 --plugin "$plugins/libstrata_faulty_plugin.so" \
    --device faulty:0 --allow-fallback host >"$work/report" 2>&1 && fail "a program that cannot be compiled is trained"
grep -q "the compiler has no kernel for" "$work/report" && ! grep -q "does not fit" "$work/report" ||
    fail "a program that cannot be compiled is reported as a batch that does not fit"

# The host and a device that copies without waiting: the bits are those of a device whose copies wait.
for fault in "" copies; do
    STRATA_FAULTY=$fault "$strata" train mnist --data "$work/mnist" --epochs 2 --seed 1 --save "$work/faulty.$fault" --json \
        --plugin "$plugins/libstrata_faulty_plugin.so" --device faulty:0 --allow-fallback host >"$work/report" 2>&1 ||
        fail "mnist on a device that runs matmul and add, with copies \"$fault\""
    grep -q '"host_nodes":[1-9]' "$work/report" || fail "the host ran nothing for a device that lacks most ops"
done
cmp -s "$work/faulty." "$work/faulty.copies" || fail "copies that do not wait give other bits"
STRATA_FAULTY=copies "$strata" plugin-check "$plugins/libstrata_faulty_plugin.so" --quick >"$work/report" 2>&1 ||
    fail "plugin-check of a device that copies without waiting"
echo "plugin-check reports, plugin-new, and mnist on the host as a plugin"

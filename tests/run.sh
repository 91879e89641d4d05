#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the packages that the tests need, builds the tests and runs them. It prints one line for each suite with its numbers
# of cases, and at the end the sums. Three streams run at the same time, each one suite after the other: Criterion's suites,
# which compile kernels and keep the processor busy; the programs and scripts that mostly wait; and the other scripts, many of
# which consist of several processes that wait for each other. The reason of every skipped case is printed. A message of
# Vulkan's validation layers or of Oclgrind fails the suite that caused it.
set -u

usage() {
    cat <<'END'
usage: sh tests/run.sh [--all-drivers] [--thorough] [--filter TEXT] [--preset NAME] [--no-install]

  --all-drivers   run the conformance suite on each driver by itself: the host, PoCL, PoCL as two devices, lavapipe with core
                  and synchronization validation, Oclgrind with data races and uninitialised reads (small shapes), Intel's
                  OpenCL runtime (fetched with pip into build/, once), jaxlib behind the PJRT bridge (fetched, too); one case on
                  Mesa's rusticl (fetched with apt); and compile the samples' steps by Google's TPU compiler (libtpu, fetched)
  --thorough      nothing is left to other days or to the preset tests. Without it the drivers that take longest (Oclgrind,
                  Intel's runtime, jaxlib, the GPUs' kernels) run a third of the ops' rows, another one each day, in f32; PoCL
                  runs no rewritten graphs, and does not optimise the small models of the suites; under the preset asan,
                  models, strategies and conformance run on the host, and few scripts run
  --filter TEXT   run only suites whose name contains TEXT and, of other suites, only the cases whose name SUITE/CASE contains
                  TEXT; reports of failures print names in this form
  --preset NAME   a preset of CMakePresets.json: tests (the default), debug, asan, tsan, ...
  --no-install    install no packages

Environment: STRATA_TEST_DATA  a folder that contains mnist/, for tests on real data (default ../shared/data, if it exists)
             STRATA_TEST_LIMIT seconds that a suite may take (default 1200)
             STRATA_TEST_CACHE a folder for compiled kernels (default build/cache, which the presets share)
END
}

all_drivers="" thorough="" filter="" preset=tests packages=yes
while [ $# -gt 0 ]; do
    case $1 in
    --all-drivers) all_drivers=yes ;;
    --thorough) thorough=yes ;;
    --filter | --preset)
        [ $# -gt 1 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
        if [ "$1" = --filter ]; then filter=$2; else preset=$2; fi
        shift
        ;;
    --no-install) packages="" ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done

cd "$(dirname "$0")/.." || exit 1
root=$PWD
build=$root/build/$preset
logs=$build/logs
cache=${STRATA_TEST_CACHE:-$root/build/cache}
mkdir -p "$logs" "$cache"
limit=${STRATA_TEST_LIMIT:-1200}
if [ -z "${STRATA_TEST_DATA:-}" ] && [ -d "$root/../shared/data/mnist" ]; then
    STRATA_TEST_DATA=$(cd "$root/../shared/data" && pwd)
    export STRATA_TEST_DATA
fi

counts=$logs/counts.txt # a line for each suite: the numbers of passed, failed and skipped cases
: >"$counts"
: >"$logs/failures.txt"
count() { echo "$1 $2 $3" >>"$counts"; }
finish() {
    passed=0 failed=0 skipped=0
    while read -r n_passed n_failed n_skipped; do
        passed=$((passed + n_passed)) failed=$((failed + n_failed)) skipped=$((skipped + n_skipped))
    done <"$counts"
    if [ -s "$logs/failures.txt" ]; then
        echo "what failed, once more:"
        cat "$logs/failures.txt"
    fi
    echo "$passed passed, $failed failed, $skipped skipped"
    if [ "$passed$failed$skipped" = 000 ] && [ -n "$filter" ]; then
        echo "no suite and no case has \"$filter\" in its name; build/$preset/suites/test_X --list shows the cases of a suite"
    fi
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
    exit
}

# ---- packages and build -----------------------------------------------------------------------------------------------
if [ -n "$packages" ]; then sh samples/install-packages.sh build run test || { count 0 1 0; finish; }; fi
if ! { cmake --preset "$preset" && cmake --build --preset "$preset"; } >"$logs/build.log" 2>&1; then
    grep -vE '^(/usr/bin/|: && )|^\[' "$logs/build.log" | grep -E -A 6 'rror|FAILED|undefined' | cut -c 1-240 | head -n 60
    echo "build: FAILED; all of it is in $logs/build.log"
    count 0 1 0
    finish
fi

# ---- the environment of the suites -------------------------------------------------------------------------------------
# The tests do not use the user's caches of kernels and tuning results, nor the user's plugins.
export XDG_CACHE_HOME="$cache" XDG_DATA_HOME="$build/data"
unset STRATA_PLUGINS
export STRATA_SOURCE_DIR="$root" STRATA_BUILD_DIR="$build" CC="${CC:-cc}"
export ASAN_OPTIONS="abort_on_error=1:detect_leaks=1:allocator_may_return_null=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export LSAN_OPTIONS="suppressions=$root/tests/leaks.supp:print_suppressions=0"
export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1

# Users' programs choose a locale, where the decimal point may be a comma. So all suites of the preset tests run in such a
# locale; those of the other presets run in the locale "C". The other two locales are for tests/base/locale_test.c.
locales=$build/locale
if [ "$preset" = tests ]; then
    for locale in fa_IR tr_TR de_DE; do
        [ -e "$locales/$locale.UTF-8/LC_CTYPE" ] || { mkdir -p "$locales" &&
            localedef --no-archive -i "$locale" -f UTF-8 "$locales/$locale.UTF-8"; } >"$logs/locale.log" 2>&1
    done
    if [ -e "$locales/de_DE.UTF-8/LC_CTYPE" ]; then
        export LOCPATH="$locales" STRATA_TEST_LOCALE=de_DE.UTF-8
    else
        echo "skipped 1: the suites run without a locale with a decimal comma: $(tail -n 1 "$logs/locale.log") (locales)"
        count 0 0 1
    fi
fi

# On a machine without a GPU, only lavapipe is used as Vulkan driver.
lavapipe=$(ls /usr/share/vulkan/icd.d/lvp_icd*.json 2>/dev/null | head -n 1)
if [ -n "$lavapipe" ] && [ ! -e /dev/nvidiactl ] && ! ls /dev/dri/renderD* >/dev/null 2>&1; then
    export VK_DRIVER_FILES="$lavapipe" VK_ICD_FILENAMES="$lavapipe"
fi

validation=""
if [ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ]; then
    validation=yes
    export VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation
else
    echo "Vulkan runs without validation: the layers are not installed (vulkan-validationlayers)"
fi

# open_messages NAME: opens a named pipe into which validation layers and Oclgrind write their messages. All processes of a
# suite can write into the pipe at the same time, which they could not with a file. Suites that run at the same time use
# different pipes, so that each message can be assigned to its suite.
open_messages() {
    messages=$logs/messages-$1.pipe messages_log=$logs/messages-$1.log
    rm -f "$messages"
    mkfifo "$messages"
    exec 9<>"$messages"
    : >"$messages_log"
    cat <&9 >>"$messages_log" 9>&- &
    reader=$!
    if [ -n "$validation" ]; then
        export VK_LAYER_SETTINGS_PATH="$logs/vk_layer_settings-$1.txt"
        cat >"$VK_LAYER_SETTINGS_PATH" <<END
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn
khronos_validation.log_filename = $messages
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
END
    fi
}
close_messages() {
    kill "$reader" 2>/dev/null
    rm -f "$messages"
}

messages_mark() { # TEXT: writes a line into the log of messages, and waits until all earlier messages are in the log
    echo "-- $1" >&9
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(tail -n 1 "$messages_log")" = "-- $1" ] && return
        sleep 0.1
    done
}

# ---- running one suite ------------------------------------------------------------------------------------------------
# Reads the TAP output of Criterion. Prints the numbers of passed, failed and skipped cases, and then lines about failed and
# skipped ones. Cases that a filter excludes are not counted. When a suite ended before all its planned cases reported a result,
# the missing cases count as one failure.
tap_summary='
function flush() { for (r in reasons) show = show sprintf("    skipped %d: %s\n", reasons[r], r) }
/^1\.\.[0-9]+/     { plan = substr($0, 4) + 0; next }
/^(not )?ok /      { seen++; failing = 0 }
/^ok .*# SKIP/     { reason = $0; sub(/^.*# SKIP */, "", reason)
                     if (reason == "test was skipped") { if (filtered) next; reason = "disabled" }
                     skipped++; reasons[reason]++; next }
/^ok /             { passed++; next }
/^not ok /         { failed++; failing = 1; name = $0; sub(/^not ok - */, "", name); show = show "    FAILED " name "\n"; next }
failing && !/^ *(---|\.\.\.|assertions:|failures:)/ { if (++lines[failed] <= 20) show = show "    " $0 "\n" }
END { if (seen < plan) { failed++; show = show sprintf("    FAILED: %d of %d cases never reported\n", plan - seen, plan) }
      flush(); printf "%d %d %d\n%s", passed, failed, skipped, show }'

# cpu_seconds: prints the CPU time of all programs that this shell has run so far, in seconds. `times` prints minutes and
# seconds in user and system mode, first for the shell and then for its programs.
cpu_seconds() {
    times >"$log.times"
    awk -F '[ms ]+' 'NR == 2 { printf "%d\n", $1 * 60 + $2 + $3 * 60 + $4 }' "$log.times"
}

# run_suite COMMAND...: runs the command with the time limit. Its output goes to $log.log. Sets $code to its exit code.
run_suite() {
    timeout -k 10 "$limit" env "$@" >"$log.log" 2>&1 </dev/null 9>&-
    code=$?
}
leak_checker_crashed() { grep -q 'LeakSanitizer has encountered a fatal error' "$log.log"; }
# Whether the only leaks are those of Criterion's main process, which runs no case and sometimes leaks a few blocks. The stack
# traces of these blocks contain only functions of libcriterion.
only_criterion_leaked() {
    grep -q '^SUMMARY: AddressSanitizer: [0-9]* byte(s) leaked in' "$log.log" && grep -q '#1 .*libcriterion' "$log.log" &&
        ! grep -E '^ +#1 ' "$log.log" | grep -qv libcriterion && ! grep -qE '^ +#2 |crashed during|ERROR: Address' "$log.log"
}

# crashed_cases_again COMMAND...: runs cases again whose process crashed after the case had passed, because the leak checker
# itself crashed. Each case of a suite has its own process. Sets $code to 0 when each of these cases ended without an error. A
# real leak, or any other error, occurs again and remains a failure.
crashed_cases_again() {
    crashed=$(sed -n 's/.*The test `\(.*\)::\(.*\)` crashed during its setup or teardown.*/\1\/\2/p' "$log.log" | sort -u)
    [ -n "$crashed" ] && ! grep -q '^not ok' "$log.tap" || return
    whole_log=$log
    cp "$log.tap" "$log.whole-tap"
    for case in $crashed; do
        log=$whole_log-again
        for try in 1 2 3 4 5; do
            echo "$label: the leak checker itself crashed at $case; once more"
            run_suite "$@" --filter "$case"
            [ "$code" != 0 ] && leak_checker_crashed || break
        done
        [ "$code" = 0 ] || break
    done
    [ "$code" = 0 ] || cp "$log.log" "$whole_log.log"
    log=$whole_log
    mv "$log.whole-tap" "$log.tap"
}

# suite LABEL PROGRAM [ENV=VALUE ...]: runs PROGRAM, prints its result and counts its cases. PROGRAM is a Criterion suite
# (test_*), or a program or script, which counts as one case. $cases: the pattern of the cases that are run; empty: all.
cases=""
suite() {
    label=$1 program=$2
    shift 2
    log=$logs/$(echo "$label" | tr '/ ' '--')
    rm -f "$log.tap"
    case $label in *"$filter"*) only=$cases ;; *) only="*$filter*" ;; esac # all cases of a suite whose name matches
    start=$(date +%s)
    cpu_seconds >"$log.cpu" # not in $(...), which is another shell
    read -r cpu_before <"$log.cpu"
    case $program in
    */test_*) set -- "$@" "$program" -q "--tap=$log.tap" ${only:+--filter "$only"} ;;
    */replay_*) set -- "$@" "$program" "$root/tests/fuzz/corpus/${program##*/replay_}" ;;
    *.sh) set -- "$@" sh "$program" ;;
    *) set -- "$@" "$program" ;;
    esac
    messages_mark "$label"
    for try in 1 2 3 4 5; do
        run_suite "$@"
        # LeakSanitizer can crash when a driver's thread ends during its check. That is no error of the suite.
        if [ "$code" = 0 ] || [ $try = 5 ] || ! leak_checker_crashed; then break; fi
        case $program in */test_*) break ;; esac
        echo "$label: the leak checker itself crashed; once more"
    done
    case $program in */test_*) [ "$code" = 0 ] || ! leak_checker_crashed || crashed_cases_again "$@" ;; esac
    case $program in */test_*) [ "$code" = 0 ] || ! only_criterion_leaked || code=0 ;; esac
    messages_mark "end of $label"
    seconds=$(($(date +%s) - start))
    cpu_seconds >"$log.cpu"
    read -r cpu_after <"$log.cpu"

    if [ -s "$log.tap" ]; then
        awk -v filtered="$only" "$tap_summary" "$log.tap" >"$log.summary"
    else
        case $program:$code in
        */test_*) echo "0 1 0" ;;
        # It passed, and may have skipped some of its parts.
        *:0) echo "1 0 $(grep -c '^skipped: ' "$log.log")"; sed -n 's/^skipped: /    skipped 1: /p' "$log.log" ;;
        *:77) echo "0 0 1"; echo "    skipped 1: $(tail -n 1 "$log.log" | sed 's/^skipped: //')" ;;
        *) echo "0 1 0" ;;
        esac >"$log.summary"
    fi
    read -r n_passed n_failed n_skipped <"$log.summary"
    [ "$code" = 77 ] && code=0
    if [ "$code" != 0 ] && [ "$n_failed" = 0 ]; then n_failed=1; fi
    if [ "$n_failed" != 0 ]; then
        {
            if [ "$code" = 124 ]; then echo "    stopped after $limit s"; else echo "    exit code $code"; fi
            echo "    the end of $log.log:"
            tail -n 30 "$log.log" | sed 's/^/      /'
        } >>"$log.summary"
    fi
    said=$(sed -n "/^-- $(echo "$label" | sed 's,/,\\/,g')\$/,/^-- end of/p" "$messages_log" | grep -v '^-- ' | grep .)
    if [ -n "$said" ]; then
        n_failed=$((n_failed + 1))
        {
            echo "    FAILED: $(echo "$said" | grep -c '^[^[:space:]]') messages of the checker; the first of them:"
            echo "$said" | head -n 20 | cut -c 1-600 | sed 's/^/      /'
        } >>"$log.summary"
    fi
    if [ -n "$filter" ] && [ "$n_passed$n_failed$n_skipped" = 000 ]; then return; fi
    {
        printf '%-36s %4d passed, %d failed, %d skipped  (%d s, %d s of CPU)\n' "$label" "$n_passed" "$n_failed" "$n_skipped" \
            "$seconds" $((cpu_after - cpu_before))
        sed 1d "$log.summary"
    } >"$log.shown"
    cat "$log.shown" # as one write, because another suite may print at the same time
    if [ "$n_failed" != 0 ]; then { echo "  $label"; sed 1d "$log.summary" | tail -n 16; } >>"$logs/failures.txt"; fi
    count "$n_passed" "$n_failed" "$n_skipped"
}

# ---- the conformance suite on each driver by itself --------------------------------------------------------------------
conformance=$build/suites/test_conformance
one_dtype=STRATA_TEST_DTYPES=f32 preferred=STRATA_TEST_PREFERRED=1 # for slow drivers
some_rows="$one_dtype STRATA_TEST_ROWS=$(($(date +%s) / 86400 % 3))/3"
[ -z "$thorough" ] || one_dtype=STRATA_TEST_DTYPES= preferred=STRATA_TEST_PREFERRED= some_rows=STRATA_TEST_ROWS=
sanitized=STRATA_TEST_DTYPES=
[ "$preset$thorough" != asan ] || sanitized="STRATA_TEST_DEVICES=host $one_dtype"
# of_suite NAME: prints what the environment of this suite of Criterion gets. These train hundreds of small models, each once:
# PoCL's optimiser would need most of their time. Drivers have no sanitizer, and the suite backend calls all of what calls them.
of_suite() {
    case $1$thorough:$preset in
    model:asan | strategies:asan) echo "OCL_ICD_VENDORS=$logs/none VK_DRIVER_FILES=/dev/null VK_ICD_FILENAMES=/dev/null" ;;
    model:* | strategies:*) echo STRATA_OPENCL_OPTIONS=-cl-opt-disable ;;
    *) echo STRATA_OPENCL_OPTIONS= ;;
    esac
}
# The cases whose result may depend on the driver. The others rewrite graphs (compositions, division over a mesh, the host's
# help), with ops that these cases have compared. They run on the host and on a plugin, and with --thorough on PoCL.
of_graphs='@(compositions|with_the_hosts_help|placement)/*'
of_driver="!${of_graphs#@}"
# Intel's compiler takes ten minutes for the kernels of some tables of ops. A sample's training has the usual ones of them.
of_intel="conformance_@(ops/!(window|recurrent|update)|training/*)"

# driver NAME ENV=VALUE...: runs the conformance suite on an installed driver. If no case ran on it, that is a failure.
driver() {
    name=$1
    shift
    suite "conformance on $name" "$conformance" "$@"
    case conformance in *"$filter"*) ;; *) return ;; esac # unless a filter may exclude all its cases
    if [ "$n_passed" = 0 ] && [ "$n_failed" = 0 ]; then
        echo "    FAILED: the driver is there, but no case ran on it"
        count 0 1 0
    fi
}

no_driver() { # NAME REASON: counts a driver that is not installed as skipped
    printf '%-36s skipped: %s\n' "conformance on $1" "$2"
    count 0 0 1
}

icd_folder() { # NAME LIBRARY: prints a folder that makes an OpenCL loader see only that library
    mkdir -p "$logs/icd-$1"
    echo "$2" >"$logs/icd-$1/$1.icd"
    echo "$logs/icd-$1"
}

run_drivers() {
    driver host STRATA_TEST_DEVICES=host

    pocl=$(ls /etc/OpenCL/vendors/pocl*.icd 2>/dev/null | head -n 1)
    if [ -n "$pocl" ]; then
        only_pocl=OCL_ICD_VENDORS=$(icd_folder pocl "$(cat "$pocl")")
        # PoCL's CPU driver is named pthread up to 3.1 and cpu since 4.0; the other name gives no device at all.
        pocl_name=pthread
        env "$only_pocl" POCL_DEVICES="pthread pthread" "$build/strata" devices 2>/dev/null | grep -q 'opencl:1' || \
            pocl_name=cpu
        [ -n "$thorough" ] || cases=$of_driver
        driver PoCL STRATA_TEST_DEVICES=opencl "$only_pocl"
        cases=$of_driver
        driver "PoCL as a plugin" STRATA_TEST_DEVICES=opencl-plugin "$only_pocl" \
            "STRATA_PLUGINS=$build/suites/plugins/libstrata_opencl_plugin.so"
        driver "PoCL as two devices" STRATA_TEST_DEVICES=opencl "$only_pocl" "POCL_DEVICES=$pocl_name $pocl_name"
    else
        no_driver PoCL "not installed (pocl-opencl-icd)"
        no_driver "PoCL as two devices" "not installed (pocl-opencl-icd)"
    fi

    cases=$of_driver
    if [ -n "$lavapipe" ] && [ -n "$validation" ]; then
        driver lavapipe STRATA_TEST_DEVICES=vulkan "VK_DRIVER_FILES=$lavapipe" "VK_ICD_FILENAMES=$lavapipe"
    else
        no_driver lavapipe "not installed (mesa-vulkan-drivers, vulkan-validationlayers)"
    fi

    # GPUs use other kernels for matrix products and convolutions than CPUs. These runs test the GPUs' kernels on lavapipe and
    # Oclgrind. PoCL is left out because the optimizer of PoCL 3.1 miscompiles conv2d_filter_grad_tiles, which is right with
    # -cl-opt-disable.
    cases='conformance_@(ops/@(window|products)|matmul/*)'
    if [ -n "$lavapipe" ] && [ -n "$validation" ]; then
        suite "conformance of GPUs' kernels on lavapipe" "$conformance" STRATA_TEST_KERNELS=gpu STRATA_TEST_DEVICES=vulkan \
            $some_rows "VK_DRIVER_FILES=$lavapipe" "VK_ICD_FILENAMES=$lavapipe"
    fi
    cases=$of_driver

    oclgrind=$(ls /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/lib/*/oclgrind/liboclgrind-rt-icd.so 2>/dev/null | head -n 1)
    if [ -n "$oclgrind" ]; then
        driver Oclgrind STRATA_TEST_DEVICES=opencl STRATA_TEST_SMALL=1 $some_rows \
            "OCL_ICD_VENDORS=$(icd_folder oclgrind "$oclgrind")" OCLGRIND_DATA_RACES=1 \
            OCLGRIND_UNINITIALIZED=1 STRATA_DRIVER_THREADS=0 "OCLGRIND_LOG=$messages"
        if [ -n "$thorough" ]; then cases='conformance_ops/@(window|products)'; else cases=conformance_ops/products; fi
        suite "conformance of GPUs' kernels on Oclgrind" "$conformance" STRATA_TEST_KERNELS=gpu STRATA_TEST_DEVICES=opencl \
            STRATA_TEST_SMALL=1 $some_rows $preferred "OCL_ICD_VENDORS=$logs/icd-oclgrind" OCLGRIND_DATA_RACES=1 \
            OCLGRIND_UNINITIALIZED=1 STRATA_DRIVER_THREADS=0 "OCLGRIND_LOG=$messages"
        cases=$of_driver
        no_driver "Oclgrind, 3 kernels" \
            "it calls memory uninitialised that memset set (conv2d_filter_grad, scatter_rows), or errs (max_pool2d_grad)"
    else
        no_driver Oclgrind "not installed (oclgrind)"
    fi

    intel=$root/build/intel-opencl
    if [ ! -e "$intel/complete" ]; then
        rm -rf "$intel"
        python3 -m venv "$intel" >"$logs/intel.log" 2>&1 &&
            "$intel/bin/pip" install -q intel-opencl-rt intel-cmplr-lib-rt >>"$logs/intel.log" 2>&1 && touch "$intel/complete"
    fi
    [ -n "$thorough" ] || cases=$of_intel
    if [ -e "$intel/complete" ]; then
        driver "Intel's runtime" STRATA_TEST_DEVICES=opencl STRATA_TEST_PREFERRED=1 $some_rows "LD_LIBRARY_PATH=$intel/lib" \
            "OCL_ICD_VENDORS=$(icd_folder intel "$intel/lib/libintelocl.so")"
    else
        no_driver "Intel's runtime" "pip could not fetch it: $(tail -n 1 "$logs/intel.log")"
    fi
    cases=""
    run_rusticl
}

# Mesa's OpenCL driver is unpacked into build/, since installed it would be a device of all other suites.
run_rusticl() {
    rusticl=$root/build/rusticl
    case rusticl in *"$filter"*) ;; *) return 0 ;; esac
    if [ ! -e "$rusticl/complete" ]; then
        rm -rf "$rusticl"
        mkdir -p "$rusticl" && (cd "$rusticl" && apt-get download mesa-opencl-icd && dpkg -x mesa-opencl-icd*.deb . &&
            ls usr/lib/*/libRusticlOpenCL.so.1 /usr/lib/clc/spirv64-mesa3d-.spv && touch complete) >"$logs/rusticl.log" 2>&1
    fi
    if [ -e "$rusticl/complete" ]; then
        library=$(ls "$rusticl"/usr/lib/*/libRusticlOpenCL.so.1)
        all_tests=$filter
        filter=the_installed_driver
        suite "Mesa's rusticl" "$build/suites/test_backend" RUSTICL_ENABLE=llvmpipe "LD_LIBRARY_PATH=${library%/*}" \
            "GALLIUM_PIPE_SEARCH_DIR=${library%/*}/gallium-pipe" "OCL_ICD_VENDORS=$(icd_folder rusticl "$library")"
        filter=$all_tests
    else
        no_driver "Mesa's rusticl" "not there (mesa-opencl-icd, libclc-15): $(tail -n 1 "$logs/rusticl.log")"
    fi
}

# ---- PJRT ---------------------------------------------------------------------------------------------------------------
# fetch NAME PACKAGE...: makes a virtual environment build/NAME with these pip packages, unless it exists. Sets $fetched to its
# folder, or to nothing when pip failed.
fetch() {
    fetched=$root/build/$1
    fetch_log=$logs/$1.log
    shift
    [ ! -e "$fetched/complete" ] || return 0
    rm -rf "$fetched"
    python3 -m venv "$fetched" >"$fetch_log" 2>&1 && "$fetched/bin/pip" install -q "$@" >>"$fetch_log" 2>&1 &&
        touch "$fetched/complete" || fetched=""
}

run_pjrt() {
    plugin=STRATA_PLUGINS=pjrt:$build/suites/pjrt_plugin.so
    cases=$of_driver
    if [ -e "$build/suites/pjrt_plugin.so" ] && [ "$preset$thorough" != asan ]; then
        suite "conformance on PJRT's test plugin" "$conformance" STRATA_TEST_DEVICES=pjrt "$plugin"
    fi
    cases=""
    [ -n "$all_drivers" ] || return 0
    fetch jax jax
    if [ -n "$fetched" ]; then
        jax=STRATA_TEST_JAX_PYTHON=$fetched/bin/python
        cases=$of_driver
        driver "jaxlib, through PJRT" STRATA_TEST_DEVICES=pjrt $some_rows "$plugin" STRATA_TEST_PJRT_ENGINE=jaxlib "$jax"
        cases=""
        suite "pjrt with jaxlib" "$build/suites/test_pjrt" "$jax"
        case pjrt/replicas in *"$filter"*) suite "pjrt/replicas with jaxlib" "$root/tests/pjrt/replicas_test.sh" "$jax" ;; esac
        case frontend/plugin in
        *"$filter"*) suite "frontend/plugin with jax" "$root/tests/frontend/plugin_test.sh" "$jax" ;;
        esac
    else
        no_driver "jaxlib, through PJRT" "pip could not fetch it: $(tail -n 1 "$fetch_log")"
    fi
    fetch libtpu libtpu
    libtpu=$(ls "$fetched"/lib/python3*/site-packages/libtpu/libtpu.so 2>/dev/null | head -n 1)
    if [ -n "$fetched" ] && [ -n "$libtpu" ]; then
        case pjrt/libtpu in *"$filter"*) suite "pjrt/libtpu" "$root/tests/pjrt/libtpu_run.sh" "LIBTPU=$libtpu" ;; esac
    else
        no_driver libtpu "pip could not fetch it: $(tail -n 1 "$fetch_log")"
    fi
}

# ---- all suites, programs and scripts ----------------------------------------------------------------------------------
# Runs Criterion's suites.
run_suites() {
    for program in "$build"/suites/test_*; do
        [ -x "$program" ] || continue
        [ "$program" != "$conformance" ] || continue
        name=${program##*/test_}
        # shellcheck disable=SC2046 # a list of words
        suite "$name" "$program" $(of_suite "$name")
    done
    if [ -x "$conformance" ] && [ -z "$all_drivers" ]; then
        cases=$of_driver
        suite conformance "$conformance" $sanitized
        cases=$of_graphs
        suite "conformance of graphs" "$conformance" STRATA_TEST_DEVICES=host
        cases=""
    fi
    if [ -x "$conformance" ] && [ "$preset" != asan ]; then
        cases=$of_driver
        suite "conformance on null" "$conformance" STRATA_TEST_DEVICES=null # it runs the references of the ops
        cases=""
    fi
    host_plugin=$build/suites/plugins/libstrata_host_plugin.so
    if [ -x "$conformance" ] && [ -e "$host_plugin" ]; then
        [ "$preset$thorough" = asan ] || suite "conformance on a plugin" "$conformance" STRATA_TEST_DEVICES=host-plugin \
            "STRATA_PLUGINS=$host_plugin"
        cases=$of_driver
        suite "conformance on a plugin's plan" "$conformance" STRATA_TEST_DEVICES=host-plugin \
            "STRATA_PLUGINS=$host_plugin,memory=own"
        cases=""
    fi
    [ "$preset" = tsan ] || [ ! -x "$conformance" ] || run_pjrt
    [ -z "$all_drivers" ] || [ "$preset" = tsan ] || run_drivers
}

# The programs and scripts of lost, stopped and slow processes. They wait for most of their time and need little of a core.
waits() { # LABEL
    case $1 in
    threads_* | cli/cluster | cli/hang | cli/network | cli/ps_refused | cli/ps_replicas | cli/ps_reports | cli/tls) ;;
    *) return 1 ;;
    esac
}

# The scripts that run under AddressSanitizer: those that read files and requests of others, and one of workers. The suites call
# most functions of the other scripts.
is_sanitized() { # LABEL
    case $1 in
    cli/data | cli/mesh_workers | cli/model_file | cli/own_data | cli/parquet | cli/pictures | cli/serve | cli/tables) ;;
    cli/train | interchange/endings | interchange/interchange | interchange/keras | interchange/pytorch | python/python) ;;
    *) return 1 ;;
    esac
}

# run_programs waiting|working: runs the programs and scripts of this kind whose name contains the filter. Each counts as one
# case.
run_programs() {
    for program in "$build"/suites/threads_* "$build"/suites/replay_* tests/*/*_test.sh; do
        case $program in
        *_test.sh)
            [ "$preset" != tsan ] || continue
            label=${program#tests/} # with the folder (cli/data), since a suite of Criterion may have the same name (data)
            label=${label%_test.sh} program=$root/$program
            if [ "$preset" = asan ] && [ -z "$thorough$filter" ] && ! is_sanitized "$label"; then continue; fi
            ;;
        *)
            [ -x "$program" ] || continue
            label=${program##*/}
            ;;
        esac
        if waits "$label"; then kind=waiting; else kind=working; fi
        if [ $kind = "$1" ]; then
            case $label in *"$filter"*) suite "$label" "$program" ;; esac
        fi
    done
}

# background NAME COMMAND...: runs the command as a stream of suites beside the others. The file NAME.ended says that it ran
# all of them.
background() {
    stream=$1
    shift
    rm -f "$logs/$stream.ended"
    (
        open_messages "$stream"
        trap close_messages EXIT
        trap 'exit 130' TERM
        "$@"
        : >"$logs/$stream.ended"
    ) &
}

# Criterion's suites and the programs that wait run in the background, the other scripts in the foreground. Processes in the
# background ignore SIGINT, and some of these scripts test how the command reacts to it.
background suites run_suites
suites=$!
background waiting run_programs waiting
waiting=$!
trap 'kill $suites $waiting 2>/dev/null; close_messages' EXIT
trap 'exit 130' INT TERM
open_messages working
run_programs working
wait $suites $waiting
for stream in suites waiting; do
    [ -e "$logs/$stream.ended" ] || { echo "FAILED: the stream \"$stream\" ended before its last suite"; count 0 1 0; }
done
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The command with a plugin and with drivers that hang in a call, or call exit (tests/plugin/faulty, tests/shims): it ends with
# a message and the exit code after the limit, and what was to be saved is saved.
. "$(dirname "$0")/support.sh"

plugin=$STRATA_BUILD_DIR/suites/plugins/libstrata_faulty_plugin.so
make_data "$work/mnist" && cd "$work" || exit 1
on_plugin="train mnist --data mnist --epochs 2 --batch 64 --seed 1 --plugin $plugin --device faulty:0 --allow-fallback host"

# measure COMMAND...: runs the command, in which nothing hangs, and sets $limit to a quarter of the time that it took, and a
# second. So no honest call takes as long, however busy the machine is. Without a limit the commands below would not end.
measure() {
    began=$(date +%s%N)
    expect 0 "" "$@"
    limit=$(LC_ALL=C awk "BEGIN { s = 1 + ($(date +%s%N) - $began) / 4e9; printf \"%.2g\", s < 99 ? s : 99 }")
}

if [ -e "$plugin" ]; then
    # shellcheck disable=SC2086
    measure $on_plugin
    # Each call of a plugin has a limit. The message names the device, what the call does, the limit, and the option.
    while read -r call subject text option; do
        export STRATA_FAULTY="hangs:$call"
        text=$(echo "$text" | sed "s/_/ /g; s/LIMIT/$limit/")
        # shellcheck disable=SC2086
        expect 163 "$text" $on_plugin $option "$limit"
        stderr "$subject: the driver"
        stderr "$option"
    done <<END
entry faulty_plugin.so its_call_to_start_has_not_returned_for_LIMIT_s --driver-seconds
start faulty_plugin.so its_call_to_start_has_not_returned_for_LIMIT_s --driver-seconds
device_info faulty its_call_to_list_its_devices_has_not_returned_for_LIMIT_s --driver-seconds
device_open faulty:0 its_call_to_open_the_device_has_not_returned_for_LIMIT_s --driver-seconds
table faulty:0 its_call_to_open_the_device --driver-seconds
supports faulty:0 its_call_to_say_what_it_supports_has_not_returned_for_LIMIT_s --stall-seconds
buffer_create faulty:0 its_call_to_create_a_buffer_has_not_returned_for_LIMIT_s --stall-seconds
upload faulty:0 its_call_to_copy_memory_has_not_returned_for_LIMIT_s --stall-seconds
compile faulty:0 has_not_compiled_a_program_of --compile-seconds
run faulty:0 its_call_to_submit_a_run_has_not_returned_for_LIMIT_s --stall-seconds
wait faulty:0 its_call_to_wait_for_a_run_has_not_returned --stall-seconds
download faulty:0 its_call_to_copy_memory_has_not_returned_for_LIMIT_s --stall-seconds
buffer_destroy faulty:0 its_call_to_free_a_buffer_or_a_program --stall-seconds
program_destroy faulty:0 its_call_to_free_a_buffer_or_a_program --stall-seconds
close faulty:0 its_call_to_close_the_device_has_not_returned_for_LIMIT_s --driver-seconds
END

    # exit in a call would end the command with code 0 and no message.
    for call in start device_info device_open compile supports upload run wait close; do
        export STRATA_FAULTY="exits:$call"
        # shellcheck disable=SC2086
        expect 160 "called exit in its call to" $on_plugin
    done

    # After the first epoch a run hangs: its checkpoint, its line of JSON and its rows of the log are there, and training goes
    # on from the checkpoint.
    for fault in hangs:run:100 hang-later:100 exits:run:100; do
        rm -f checkpoint log.jsonl
        code=163
        [ "$fault" != exits:run:100 ] || code=160
        export STRATA_FAULTY="$fault"
        # shellcheck disable=SC2086
        expect $code "faulty:0" $on_plugin --stall-seconds "$limit" --json --checkpoint checkpoint --log log.jsonl \
            --trace trace.json
        stdout '"event":"epoch","epoch":1'
        check "the log of $fault is not complete" python3 - <<'END'
import json
rows = [json.loads(line) for line in open("log.jsonl")]
steps = [row for row in rows if row["event"] == "step" and row["epoch"] == 2]
assert [row["event"] for row in rows].count("epoch") == 1 and steps, rows
END
        STRATA_FAULTY="" expect 0 "continues after epoch 1" $on_plugin --checkpoint checkpoint
    done

    # A plugin that hangs does not hide the other devices.
    export STRATA_FAULTY=hangs:device_info STRATA_PLUGINS="$plugin"
    expect 0 "a driver hangs: it has not listed its devices for $limit s" devices --driver-seconds "$limit"
    stdout "host         host"
    unset STRATA_FAULTY STRATA_PLUGINS
    expect 2 "--driver-seconds is \"0\"" devices --driver-seconds 0
fi

use_shim
on_opencl="train regression --device opencl:0 --epochs 2 --no-cache --no-tune --trust"
# shellcheck disable=SC2086
measure $on_opencl
while read -r function option text; do
    export STRATA_SHIM_HANG="$function"
    # shellcheck disable=SC2086
    expect 163 "$(echo "$text" | tr _ ' ')" $on_opencl "$option" "$limit"
done <<END
clGetDeviceIDs --driver-seconds opencl:_the_driver_hangs:_its_call_to_list_its_devices
clCreateContext --driver-seconds its_call_to_open_the_device
clCreateKernel --compile-seconds its_call_to_compile
clWaitForEvents --stall-seconds its_call_to_wait_for_a_run
clReleaseContext --driver-seconds its_call_to_close_the_device
END
export STRATA_SHIM_HANG=clEnqueueNDRangeKernel STRATA_SHIM_HANG_NTH=50
# shellcheck disable=SC2086
expect 163 "opencl:0: the driver" $on_opencl --stall-seconds "$limit"
stderr "its call to submit a run has not returned for $limit s"
unset STRATA_SHIM_HANG STRATA_SHIM_HANG_NTH

use_vulkan_shim
on_vulkan="train regression --device vulkan:0 --epochs 2 --no-cache --no-tune --trust"
# shellcheck disable=SC2086
measure $on_vulkan
while read -r function nth option text; do
    export STRATA_SHIM_HANG="$function" STRATA_SHIM_HANG_NTH="$nth"
    # shellcheck disable=SC2086
    expect 163 "$(echo "$text" | tr _ ' ')" $on_vulkan "$option" "$limit"
done <<END
vkCreateDevice 1 --driver-seconds its_call_to_open_the_device
vkQueueSubmit 1 --stall-seconds its_call_to_submit_a_run
vkWaitForFences 1 --stall-seconds its_call_to_wait_for_a_run
vkCreateComputePipelines 1 --compile-seconds has_not_compiled_kernel
vkDestroyDevice 1 --driver-seconds its_call_to_close_the_device
END
finish

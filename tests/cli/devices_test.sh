#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The list of devices, and a machine whose drivers are missing or broken. Training on the host must still work.
. "$(dirname "$0")/support.sh"
make_data "$work/data"

expect 0 "host " devices
expect 0 '"id":"host"' devices --json
json 'r[-1]["id"] == "host" and r[-1]["class"] == "host" and r[-1]["skipped"] is None and r[-1]["memory_bytes"] > 1 << 20'
json 'all({"id", "backend", "name", "vendor", "driver", "class", "memory_bytes", "skipped"} <= set(row) for row in r)'
json 'all(isinstance(row["matrix_units"], str) for row in r)'
usable=$(python3 -c 'import json, sys; print(" ".join(row["id"] for row in json.load(sys.stdin) if not row["skipped"]))' \
    <"$work/out")
for id in $usable; do
    case $id in
    *.*) ;; # a part of a device; testing the whole device is enough
    *)
        expect 0 "mnist on $id" train mnist --device "$id" --no-tune --data "$work/data" --epochs 1
        ;;
    esac
done

export OCL_ICD_VENDORS=/nonexistent VK_DRIVER_FILES=/nonexistent VK_ICD_FILENAMES=/nonexistent
expect 0 "host " devices
if grep -q '^opencl' "$work/out"; then stdout "opencl       skipped: "; fi
if grep -q '^vulkan' "$work/out"; then stdout "vulkan       skipped: "; fi
expect 0 "" devices --json
json '[row["id"] for row in r if not row["skipped"]] == ["host"]'
json 'all(len(row["skipped"]) > 10 for row in r if row["id"] != "host")'
expect 0 "mnist on host" train mnist --data "$work/data" --epochs 1 --fast
stderr "host: fast changes nothing"
expect 4 "there are: host (" train mnist --device opencl:0 --data "$work/data"
if "$strata" devices | grep -q '^vulkan'; then
    reason=$("$strata" devices --json | python3 -c \
        'import json, sys; print([r["skipped"] for r in json.load(sys.stdin) if r["id"] == "vulkan"][0])')
    expect 4 "; $reason" train mnist --device vulkan:0 --data "$work/data"
fi

# A driver that is not a shared library.
mkdir "$work/vendors"
echo "this is not a shared library" >"$work/broken.so"
echo "$work/broken.so" >"$work/vendors/broken.icd"
printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.1.0"}}\n' "$work/broken.so" \
    >"$work/broken.json"
export OCL_ICD_VENDORS="$work/vendors" VK_DRIVER_FILES="$work/broken.json" VK_ICD_FILENAMES="$work/broken.json"
expect 0 "host " devices
expect 0 "" devices --json
json '[row["id"] for row in r if not row["skipped"]] == ["host"]'
expect 0 "mnist on host" train mnist --data "$work/data" --epochs 1
finish

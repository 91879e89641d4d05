#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Training on a plugin that computes an op wrongly (tests/plugin/adapter with lie=OP): its programs are compared with the host.
. "$(dirname "$0")/support.sh"
plugin=$STRATA_BUILD_DIR/suites/plugins/libstrata_host_plugin.so
[ -e "$plugin" ] || { echo "skipped: there is no $plugin"; exit 77; }

# train_on OPTIONS: the arguments of a short training on the plugin with these options.
train_on() {
    echo "train regression --epochs 1 --steps 2 --batch 16 --plugin $plugin${1:+,$1}"
}
one="--device host-plugin:0"
unwarned() {
    ! grep -q warning "$work/err" || bad "a warning of a right plugin"
}

for options in fused=no lie=adam,above=1000000; do
    expect 0 "on host-plugin:0" $(train_on "$options") $one
    unwarned
done
expect 0 "on host-plugin:0" $(train_on "") $one --precision bf16
unwarned
for options in lie=adam lie=adam,memory=own,above=2000; do
    expect 4 "host-plugin:0: a program of " $(train_on "$options") $one
    grep -q "parameters is off by .* of its largest value, compared with the host" "$work/err" || bad "no word of what is wrong"
done
expect 0 "on host-plugin:0" $(train_on lie=adam) $one --allow-fallback host
grep -q "computes wrongly: parameters is off by .*; the host runs all nodes" "$work/err" || bad "no warning of the host"
expect 0 "on host-plugin:0" $(train_on lie=adam) $one --trust
unwarned
expect 0 "on host-plugin:0, host" $(train_on "") --strategy mirrored --devices host-plugin:0,host
unwarned
expect 4 "host-plugin:0: a program of " $(train_on lie=adam) --strategy mirrored --devices host-plugin:0,host

# A plugin that is right at first, in training on one device and on two, and one that stays right.
later="train regression --epochs 1 --steps 40 --batch 16 --plugin $plugin"
for every in -1 1; do
    expect 0 "on host-plugin:0" $later $one --check-every $every --save "$work/every$every.strata"
    unwarned
done
cmp "$work/every-1.strata" "$work/every1.strata" || bad "comparing changes the training"
for where in "$one" "--strategy mirrored --devices host-plugin:0,host"; do
    expect 4 "host-plugin:0: a program of " $later,after=12 $where --check-every 8
    grep -q "is off by .* of its largest value, compared with the host" "$work/err" || bad "no word of what is wrong"
done
expect 0 "on host-plugin:0" $later,after=12 $one --check-every 8 --trust
finish

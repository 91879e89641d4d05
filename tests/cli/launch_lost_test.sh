#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Jobs of strata launch in which a task is killed before it joins, is stopped, or runs on after the others; and a job of which
# one link is cut. launch_lost.py starts them, several at a time.
. "$(dirname "$0")/support.sh"
unset TF_CONFIG STRATA_SECRET STRATA_CLUSTER STRATA_TASK STRATA_RENDEZVOUS STRATA_ENDED_TASKS
python3 "$here/files.py" data "$work/data" 1200 200
checks=$((checks + 1))
python3 "$here/launch_lost.py" "$strata" "$work" || bad "the jobs above"
finish

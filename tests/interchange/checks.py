# SPDX-License-Identifier: Apache-2.0
"""Runs a file's checks, one after the other, whatever happens to one of them."""
import sys
import traceback


def run(checks):
    """checks: functions by name. Ends the program: with 1 where a check failed."""
    failed = 0
    for name, check in checks.items():
        try:
            check()
            print("passed", name)
        except Exception:  # noqa: BLE001  each check is shown, whatever ended it
            failed += 1
            print("FAILED", name)
            traceback.print_exc(limit=-3)
    sys.exit(1 if failed else 0)

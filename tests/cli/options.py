# SPDX-License-Identifier: Apache-2.0
"""Each option with a number, of each command: what is no number or out of its range is refused and named, and the ends of the
range are taken. The ranges are those that the messages state.

usage: options.py COMMAND"""
import re
import subprocess
import sys
import tempfile

failures = numbers = 0


def said(command, name, value):
    """(exit code, output) of the command with this option; its argument is no file, so that nothing else happens."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([sys.argv[1], command, "no-such-file", name, value], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, check=False, cwd=folder)
    return run.returncode, run.stdout + run.stderr


def expect(condition, text):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", text)


def check(command, name, range_of):
    whole, least, most = range_of[1] is not None, float(range_of[2]), float(range_of[3])
    below, above = (least - 1, most + 1) if whole else (least - 0.01 - abs(least) / 9, most + 0.01 + abs(most) / 9)
    for value in "nan", "1.5" if whole else "1x", repr(below), repr(above):
        value = re.sub(r"\.0$", "", value) if whole else value
        code, text = said(command, name, value)
        expect(code == 2 and f'{name} is "{value}"; it must be' in text, f"{command} {name} {value}: {code} {text[:300]}")
    for end in range_of[2], range_of[3]:
        code, text = said(command, name, end)
        expect("it must be a" not in text, f"{command} {name} {end}: {code} {text[:300]}")


seen = set()
overview = subprocess.run([sys.argv[1], "help"], capture_output=True, text=True, check=True).stdout
for command in re.findall(r"^  ([a-z][a-z-]+) ", overview, re.M):
    text = subprocess.run([sys.argv[1], "help", command], capture_output=True, text=True, check=False).stdout
    for line, name in re.findall(r"^(  (--[a-z0-9-]+) [A-Z0-9]\S* .*)", text, re.M):
        if line in seen:
            continue
        seen.add(line)
        _, message = said(command, name, "nan")
        found = re.search(r"it must be a (whole )?number from (\S+) to ([^\s,]+)", message)
        if found:
            numbers += 1
            check(command, name, found)
print(f"{numbers} options with a number")
expect(numbers > 30, "they were not found")
sys.exit(failures > 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a benchmark and writes what it prints into RESULTS.md, with the machine, the commit, the date and the command.

    python3 tests/bench/record.py NAME COMMAND [ARGUMENT]...

RESULTS.md has a section for each NAME and in it one record for each kind of machine; a new record replaces the one of the same
machine. The exit code is the command's; a command that failed is recorded with its exit code.
"""

import datetime
import os
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
HEAD = """# Results

What the benchmarks of this folder printed. `record.py` writes each record, with the machine, the commit and the command; the
README.md beside this file says how. No other file of the project holds figures. A record is what one machine did in those
minutes: ratios to a peer that ran in turn say more than absolute numbers.
"""


def machine():
    """The name of the processor, the number of cores that this process may use, and the size of the memory."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", text)
    name = re.sub(r"\s+", " ", model[1]) if model else os.uname().machine
    wide = "AVX-512" if "avx512f" in text else "AVX2" if "avx2" in text else "no AVX2"
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return f"{name}, {wide}, {len(os.sched_getaffinity(0))} cores, {int(memory[1]) >> 20} GiB"


def commit():
    """The commit that is checked out, and whether files differ from it."""
    git = ["git", "-C", str(HERE)]
    name = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()
    others = ["--", ":(top)", f":(exclude){RESULTS.name}"]
    status = subprocess.run([*git, "status", "--porcelain", "-uno", *others], capture_output=True, text=True)
    changed = status.stdout.strip()
    return (name or "unknown") + (" with changes" if changed else "")


def run(command):
    """Runs the command, shows its stdout while it runs, and returns this text and the exit code."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.rstrip())
    return lines, process.returncode


def sections(text):
    """The parts of the file, in its order: [(heading, text before the records, [(machine, record)])]."""
    found = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, body = section.partition("\n")
        records = re.split(r"^### ", body, flags=re.M)
        found.append((heading, records[0], [tuple(r.partition("\n")[::2]) for r in records[1:]]))
    return found


def write(name, where, record):
    text = RESULTS.read_text() if RESULTS.exists() else HEAD
    found = sections(text)
    if name not in [heading for heading, _, _ in found]:
        found.append((name, "\n", []))
        found.sort(key=lambda section: (section[0].startswith("Earlier"), section[0]))
    out = [HEAD]
    for heading, before, records in found:
        if heading == name:
            records = [r for r in records if r[0] != where] + [(where, record)]
        out.append(f"## {heading}\n{before.rstrip()}\n")
        out += [f"### {kind}\n{body.rstrip()}\n" for kind, body in records]
    RESULTS.write_text("\n".join(out))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    name, command = sys.argv[1], sys.argv[2:]
    began = datetime.date.today().isoformat()
    lines, code = run(command)
    failed = f"; it ended with exit code {code}" if code else ""
    shown = "\n".join("    " + line if line else "" for line in lines)
    write(name, machine(), f"\n`{shlex.join(command)}`, commit {commit()}, {began}{failed}:\n\n{shown}\n")
    sys.exit(code)


main()

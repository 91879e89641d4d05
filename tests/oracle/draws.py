# SPDX-License-Identifier: Apache-2.0
"""Draws random cases, and makes one that fails smaller.

A case is made from a sequence of whole numbers, the choices. The simplest choice is always 0. A program of this folder has a
function check(c, folder), which asks `c` for choices, makes the case in the empty folder, and raises Differs if Strata and the
oracle do not agree. A case that fails is made smaller by leaving choices out and by lowering them, as long as it fails in the
same way. Each draw runs in a process of its own, so that a crash and a draw that hangs are found, too.

    --draws N      how many draws (default 300)
    --seed S       the seed; default: the date, as 20261128
    --only K       repeats draw K
    --choices A,B  repeats a case that was made smaller
    --jobs J       how many draws run at a time (default: the number of cores, at most 4)"""
import argparse
import concurrent.futures
import datetime
import mmap
import os
import pickle
import random
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback

SECONDS = 60  # the limit of one draw
NO_END = f"no end within {SECONDS} s"
TRIES = 300  # the limit of runs to make a case smaller


class Differs(Exception):
    """kind: what differs, in a few words. A smaller case must differ in the same way."""

    def __init__(self, kind, text=""):
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind = kind


class Skip(Exception):
    """The case is not one that can be checked."""


class Choices:
    """The source of choices: random ones, or those of a list, after which every choice is 0."""

    def __init__(self, seed=None, given=None, kept=None):
        """kept: shared memory, from which the parent process reads the choices of a child that has crashed."""
        self.random, self.given, self.made, self.notes, self.kept = random.Random(seed), given, [], [], kept

    def number(self, low, high):
        """A whole number in low..high. The simplest is low."""
        if self.given is None:
            value = self.random.randrange(high - low + 1)
        else:
            value = self.given[len(self.made)] if len(self.made) < len(self.given) else 0
            value = min(value, high - low)
        self.made.append(value)
        if self.kept is not None and 8 * len(self.made) < len(self.kept):
            struct.pack_into("q", self.kept, 8 * len(self.made), value)
            struct.pack_into("q", self.kept, 0, len(self.made))
        return low + value

    def one(self, options):
        """One of a list. The simplest is the first."""
        return options[self.number(0, len(options) - 1)]

    def chance(self, one_in):
        """True once in so many draws. The simplest is False."""
        return self.number(0, one_in - 1) == one_in - 1

    def some(self, options, most):
        """At most so many different elements of a list, in a random order."""
        rest, taken = list(options), []
        for _ in range(self.number(0, min(most, len(rest)))):
            taken.append(rest.pop(self.number(0, len(rest) - 1)))
        return taken

    def real(self, low, high, steps=1000):
        """One of so many numbers between low and high. The simplest is low."""
        return low + (high - low) * self.number(0, steps) / steps

    def seed(self):
        """A seed for a generator of many numbers, whose values are not made smaller one by one."""
        return self.number(0, 999)

    def note(self, text):
        """A line of the description of the case, which is printed if it fails."""
        self.notes.append(text)


def _run(check, choices):
    """Returns (kind or None, text, choices, notes) of one draw in this process."""
    folder = tempfile.mkdtemp(prefix="strata-draw-")
    try:
        check(choices, folder)
        return None, "", choices.made, choices.notes
    except Skip as error:
        return "skipped", str(error), choices.made, choices.notes
    except Differs as error:
        return error.kind, str(error), choices.made, choices.notes
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return (f"{type(error).__name__} in {os.path.basename(where.filename)}:{where.lineno}", traceback.format_exc(),
                choices.made, choices.notes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def isolated(check, seed=None, given=None):
    """The same in a child process, whose death and whose silence are results as well."""
    reading, writing = os.pipe()
    kept = mmap.mmap(-1, 1 << 16)
    child = os.fork()
    if not child:
        os.close(reading)
        choices, code = Choices(seed, given, kept), 0
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(_run(check, choices), pipe)
        except BaseException:
            code = 1
        os._exit(code)
    os.close(writing)
    got, deadline = b"", time.monotonic() + SECONDS
    while True:
        ready = select.select([reading], [], [], max(0, deadline - time.monotonic()))[0]
        part = os.read(reading, 1 << 16) if ready else b""
        got += part
        if not part:
            break
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    made = [struct.unpack_from("q", kept, 8 + 8 * i)[0] for i in range(struct.unpack_from("q", kept, 0)[0])]
    kept.close()
    if not ready:
        return NO_END, "", made, []
    try:
        return pickle.loads(got)
    except (EOFError, pickle.UnpicklingError):
        what = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
        return f"the process ended: {what}", "", made, []


def smaller(check, result):
    """Leaves choices out and lowers them while the case fails in the same way. Returns the result of the smallest case."""
    best, tries = result, 0

    def fails(choices):
        nonlocal best, tries
        tries += 1
        found = isolated(check, given=choices)
        # A case with as many choices that are not lower would be no progress.
        if found[0] == best[0] and (len(found[2]), found[2]) < (len(best[2]), best[2]):
            best = found
            return True
        return False
    went_on = True
    while went_on and tries < TRIES:
        went_on = False
        size = max(1, len(best[2]) // 2)
        while size and tries < TRIES:
            at = 0
            while at < len(best[2]) and tries < TRIES:
                if fails(best[2][:at] + best[2][at + size:]):
                    went_on = True
                else:
                    at += size
            size //= 2
        for at in range(len(best[2])):
            for value in (0, 1, best[2][at] // 2 if at < len(best[2]) else 0, best[2][at] - 1 if at < len(best[2]) else 0):
                if tries < TRIES and at < len(best[2]) and 0 <= value < best[2][at]:
                    if fails(best[2][:at] + [value] + best[2][at + 1:]):
                        went_on = True
                        break
    return best


def report(result, how):
    print(f"  {result[1] or result[0]}", *result[3], f"repeat it: {how}", sep="\n    ", flush=True)


def main(name, check):
    parser = argparse.ArgumentParser(description=f"random {name}")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(datetime.date.today().strftime("%Y%m%d")))
    parser.add_argument("--only", type=int)
    parser.add_argument("--choices")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    given = parser.parse_args()
    if given.choices is not None:
        result = isolated(check, given=[int(v) for v in given.choices.split(",") if v])
        report(result, f"--choices {given.choices}")
        sys.exit(result[0] not in (None, "skipped"))
    draws = range(given.draws) if given.only is None else [given.only]
    start, failed, skipped, kinds = time.monotonic(), 0, 0, {}
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as threads:
        for k, result in zip(draws, threads.map(lambda k: isolated(check, f"{given.seed}/{name}/{k}"), draws)):
            if result[0] == "skipped":
                skipped += 1
            elif result[0]:
                failed += 1
                kinds[result[0]] = kinds.get(result[0], 0) + 1
                print(f"{name}: draw {k} of seed {given.seed} differs", flush=True)
                if kinds[result[0]] > 1 or result[0] == NO_END:  # one of each kind is made smaller
                    report(result, f"{name}.py --seed {given.seed} --only {k}")
                    continue
                result = smaller(check, result)
                report(result, f"{name}.py --choices {','.join(map(str, result[2]))}")
    print(f"{name}: {len(draws)} draws of seed {given.seed}, {failed} differ, {skipped} skipped; "
          f"{time.monotonic() - start:.0f} s", flush=True)
    for kind, n in sorted(kinds.items(), key=lambda pair: -pair[1]):
        print(f"  {n} x {kind}")
    sys.exit(failed > 0)

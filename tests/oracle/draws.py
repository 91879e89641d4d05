# SPDX-License-Identifier: Apache-2.0
"""Draws random cases, and makes one that fails smaller.

A case is made from a sequence of whole numbers, the choices. The simplest choice is always 0. A program of this folder has a
function check(c, folder), which asks `c` for choices, makes the case in the empty folder, and raises Differs if Strata and the
oracle do not agree. A case that fails is made smaller by leaving choices out and by lowering them, as long as it fails in the
same way. Draws run in child processes, many in each, so that a crash and a draw that hangs are found, too.

    --draws N      how many draws (default 300)
    --seed S       the seed; default: the date, as 20261128
    --only K       repeats draw K
    --choices A,B  repeats a case that was made smaller
    --jobs J       how many draws run at a time (default: the number of cores, at most 4)"""
import argparse
import datetime
import mmap
import os
import pickle
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback

SECONDS = 300  # the limit of one draw, also on a busy machine
NO_END = f"no end within {SECONDS} s"
TRIES, SHRINK_SECONDS = 300, 120  # the limits of runs, and of the time, to make a case smaller
DRAWS_OF_A_PROCESS = 250


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


def in_process(check, limit=SECONDS):
    """Returns a function that runs a case with given choices in this process, which ends if the case crashes or hangs."""
    def run(choices):
        signal.alarm(limit)
        found = _run(check, Choices(given=choices))
        signal.alarm(0)
        return found
    return run


def isolated(check):
    """The same in a child process, whose death and whose silence are results as well."""
    def run(choices):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(reading)
                found = in_process(check)(choices)
                with os.fdopen(writing, "wb") as pipe:
                    pickle.dump(found, pipe)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            got = pipe.read()
        _, status = os.waitpid(child, 0)
        return pickle.loads(got) if status == 0 else (ending(status), "", choices, [])
    return run


def ending(status):
    """How a process ended that has not exited with 0."""
    if not os.WIFSIGNALED(status):
        return f"the process ended: exit code {status >> 8}"
    number = os.WTERMSIG(status)
    return NO_END if number == signal.SIGALRM else f"the process ended: {signal.Signals(number).name}"


def smaller(run, result):
    """Leaves choices out and lowers them while the case fails in the same way. run(choices) returns the result of a case.
    Returns the result of the smallest case."""
    best, tries, end = result, 0, time.monotonic() + SHRINK_SECONDS

    def going():
        return tries < TRIES and time.monotonic() < end

    def fails(choices):
        nonlocal best, tries
        tries += 1
        found = run(choices)
        # A case with as many choices that are not lower would be no progress.
        if found[0] == best[0] and (len(found[2]), found[2]) < (len(best[2]), best[2]):
            best = found
            return True
        return False
    went_on = True
    while went_on and going():
        went_on = False
        size = max(1, len(best[2]) // 2)
        while size and going():
            at = 0
            while at < len(best[2]) and going():
                if fails(best[2][:at] + best[2][at + size:]):
                    went_on = True
                else:
                    at += size
            size //= 2
        for at in range(len(best[2])):
            for value in (0, 1, best[2][at] // 2 if at < len(best[2]) else 0, best[2][at] - 1 if at < len(best[2]) else 0):
                if going() and at < len(best[2]) and 0 <= value < best[2][at]:
                    if fails(best[2][:at] + [value] + best[2][at + 1:]):
                        went_on = True
                        break
    return best


def report(name, where, result, how):
    print(f"{name}: {where} differs\n  {result[1] or result[0]}", *result[3], f"repeat it: {how}", sep="\n    ", flush=True)


def arguments(name):
    """The options that all parts have."""
    parser = argparse.ArgumentParser(description=f"random {name}")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(datetime.date.today().strftime("%Y%m%d")))
    parser.add_argument("--only", type=int)
    parser.add_argument("--choices")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    return parser.parse_args()


class Job:
    """A process that runs some draws one after the other, and what it reports in shared memory: the number of the draw, how
    many were skipped and differ, and the choices of the draw, which are known even if the process dies."""

    def __init__(self, numbers, run):
        self.numbers = numbers
        self.kept = mmap.mmap(-1, 1 << 16)
        self.shared = memoryview(mmap.mmap(-1, 4096)).cast("q")
        sys.stdout.flush()
        self.child = os.fork()
        if not self.child:
            try:
                run(self)
                sys.stdout.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)

    def made(self):
        """The choices of the draw."""
        return [struct.unpack_from("q", self.kept, 8 + 8 * i)[0] for i in range(struct.unpack_from("q", self.kept, 0)[0])]

    def rest(self):
        """The draws behind the one of which the process died."""
        return self.numbers[self.numbers.index(self.shared[0]) + 1:]


def main(name, check, oracle=""):
    """oracle: the other program, for the last line."""
    given = arguments(name)
    if given.choices is not None:
        result = isolated(check)([int(v) for v in given.choices.split(",") if v])
        if result[0]:
            report(name, "this case", result, f"{name}.py --choices {given.choices}")
        sys.exit(result[0] not in (None, "skipped"))
    numbers = list(range(given.draws)) if given.only is None else [given.only]
    start, failed, skipped, known = time.monotonic(), 0, 0, set()

    def differs(k, result, run):
        """Reports a draw. One of each kind is made smaller."""
        how = f"{name}.py --seed {given.seed} --only {k}"
        if result[0] not in known and result[0] != NO_END:
            result = smaller(run, result)
            how += f"; {name}.py --choices {','.join(map(str, result[2]))}"
        known.add(result[0])
        report(name, f"draw {k} of seed {given.seed}", result, how)

    def work(job):
        for k in job.numbers:
            job.shared[0] = k
            signal.alarm(SECONDS)
            result = _run(check, Choices(f"{given.seed}/{name}/{k}", kept=job.kept))
            signal.alarm(0)
            if result[0] == "skipped":
                job.shared[1] += 1
            elif result[0]:
                job.shared[2] += 1
                differs(k, result, in_process(check))
    # A process does not run all draws: what the other programs keep would grow.
    waiting = [numbers[i:i + DRAWS_OF_A_PROCESS] for i in range(0, len(numbers), DRAWS_OF_A_PROCESS)]
    if len(waiting) < given.jobs:
        waiting = [numbers[i::given.jobs] for i in range(min(given.jobs, len(numbers)))]
    running = {}
    while waiting or running:
        while waiting and len(running) < given.jobs:
            job = Job(waiting.pop(0), work)
            running[job.child] = job
        child, status = os.wait()
        job = running.pop(child)
        skipped, failed = skipped + job.shared[1], failed + job.shared[2]
        if status:
            failed += 1
            differs(job.shared[0], (ending(status), "", job.made(), []), isolated(check))
            if job.rest():
                waiting.insert(0, job.rest())
    print(f"{name}: {len(numbers)} draws of seed {given.seed}, {failed} differ, {skipped} skipped; "
          f"{time.monotonic() - start:.0f} s{oracle and ', ' + oracle}", flush=True)
    sys.exit(failed > 0)

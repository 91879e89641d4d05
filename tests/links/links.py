#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a folder of the library links to, or includes a header of, a folder on its own level or a higher one, when the
command, a sample or libstrata_interchange includes another header than its own and the public ones or links a symbol that these
do not declare or libstrata.so does not export, when nothing uses a function or variable of the library, when a folder names
what belongs to folders above it, when a file other than core/base/locale.c calls a function of the C library whose result
depends on the program's locale, and when a file waits for a time of day or compares such times.

usage: links.py SOURCE_DIR BUILD_DIR

SOURCE_DIR is the project's folder, BUILD_DIR the folder in which it was built. `nm` lists which
symbols an object defines and which it needs; the table LEVELS below has the level of each folder.
"""

import pathlib
import re
import subprocess
import sys

# The public headers and the folders of the library, one line for each level, the lowest level first: a header or folder may use
# those in the lines before its own, and no other of its own line.
LEVELS = [
    ["strata/status.h"],
    ["strata/cluster_spec.h", "strata/file.h", "strata/philox.h", "strata/plugin.h", "strata/sha256.h", "strata/tensor.h",
     "strata/text.h", "strata/version.h"],
    ["strata/cluster.h", "strata/graph.h", "strata/json.h", "strata/numbers.h"],
    ["strata/option.h", "strata/optimizers.h", "strata/trace_file.h"],
    ["core/base"],
    ["strata/device.h", "strata/ops.h"],
    ["strata/executable.h"],
    ["core/graph", "cluster/memory", "cluster/resolver", "shaders"],
    ["cluster/wire"],
    ["cluster/rpc", "cluster"],
    ["core/op"],
    ["core/compile"],
    ["strata/csv.h", "strata/events.h", "strata/losses.h", "strata/strategy.h"],
    ["strata/dataset.h", "strata/formats.h", "strata/layers.h", "strata/metrics.h", "strata/registry.h"],
    ["strata/pipeline.h"],
    ["strata/model.h"],
    ["strata/ahead.h", "strata/callbacks.h", "strata/conformance.h", "strata/coordinator.h", "strata/distribute.h",
     "strata/describe.h", "strata/interchange.h", "strata/preprocessing.h", "strata/summary.h", "strata/tokenizer.h"],
    ["strata/strata.h"],
    ["core/run"],
    ["backends/backends.def"],
    ["backends/registry.h"],
    ["backends/host"],
    ["core/data", "core/events", "core/optimizer", "core/loss", "core/layer", "backends/kernel", "backends/null",
     "backends/plugin", "backends/pjrt"],
    ["core/metric", "backends/opencl", "backends/vulkan", "backends/fallback"],
    ["core/model", "backends"],
    ["core/frontend", "core/interchange"],
    ["strategies"],
]
LEVEL_OF = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}

# Words that the files of a folder do not contain, since what they name is made of it, and is in folders above it.
NOT_NAMED = {"core/run": re.compile(r"model|histor(?:y|ies)|manifest", re.I)}


# What depends on the locale: text of numbers, letters, the order of words, dates and messages. snprintf is checked by its
# formats.
LOCALE = set(
    "printf fprintf sprintf vprintf vfprintf vsprintf vsnprintf dprintf asprintf vasprintf scanf fscanf sscanf "
    "vsscanf strtod strtof strtold atof isalpha isalnum isupper islower isspace isprint ispunct isgraph isblank "
    "toupper tolower ctype_b_loc ctype_tolower_loc ctype_toupper_loc strcasecmp strncasecmp strcasestr strcoll "
    "strxfrm strftime strptime strerror strerror_r setlocale localeconv uselocale newlocale nl_langinfo mbstowcs "
    "wcstombs mbrtowc wcrtomb towlower towupper cJSON_Parse cJSON_ParseWithLength cJSON_ParseWithOpts cJSON_Print "
    "cJSON_PrintUnformatted cJSON_PrintBuffered".split()
)
# Files that call some of them: the first is what others call, and the others choose the locale "C" before they call cJSON.
LOCALE_FILES = {"core/base/locale.c", "core/base/json.c"}
FRACTION = re.compile(r"%[-+ #0-9.*]*[lL]?[aefgAEFG]")


# Files that read the time of day, because people read it (the dates of logs, of replies of HTTP and of a profile), or because
# the next start compares it with its own (verdicts on a driver's kernels, which expire after a month). All others use
# the monotonic clock (core/base/clock.h), since the time of day may jump and differs between hosts.
TIME_OF_DAY_FILES = {"backends/kernel/verdicts.c", "core/events/events.c", "core/events/summary.c", "samples/strata/http.c",
                     "samples/strata/train_profile.c"}
TIME_OF_DAY = re.compile(
    r"CLOCK_REALTIME|CLOCK_TAI|TIME_UTC|(?<![\w>.])(?:time|ftime|gettimeofday|timespec_get|sem_timedwait|mtx_timedlock|"
    r"cnd_timedwait|pthread_mutex_timedlock|pthread_rwlock_timed\w+)\(")


def uses_time_of_day(name, text, timed):
    """The uses of the time of day in a source: calls, and conditions that are waited for with a deadline of it. timed: the
    names of the conditions for which some source of the folder waits with a deadline."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = [] if name in TIME_OF_DAY_FILES else [match.group() for match in TIME_OF_DAY.finditer(text)]
    by_default = re.findall(r"pthread_cond_init\(&?(?:\w+(?:->|\.))*(\w+), NULL\)", text)
    return found + [f"pthread_cond_init of {condition}" for condition in by_default if condition in timed]


def timed_conditions(texts):
    """The names of the conditions for which one of these sources waits with a deadline."""
    return {name for text in texts for name in re.findall(r"pthread_cond_timedwait\(&?(?:\w+(?:->|\.))*(\w+),", text)}


def locale_calls(name, wanted):
    """The functions of LOCALE that an object calls, also by the names that glibc has for them with checks."""
    plain = {re.sub(r"^__(isoc\d+_)?|_chk$", "", symbol) for symbol in wanted}
    return set() if name in LOCALE_FILES else plain & LOCALE


def formats_fraction(text):
    """The calls of snprintf in a source that format a number with a fraction, or whose format is not seen."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = []
    for match in re.finditer(r"(?<!\w)sn?printf\(", text):
        depth, at = 1, match.end()
        while depth:
            literal = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'').match(text, at)
            depth += (text[at] == "(") - (text[at] == ")") if not literal else 0
            at = literal.end() if literal else at + 1
        call = text[match.start():at]
        literals = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call))
        if FRACTION.search(literals) or not literals:
            found.append(" ".join(call.split()))
    return found


def folder_of(path):
    """The folder in LEVELS that contains a file such as core/op/softmax.c; None: there is none."""
    if path in LEVEL_OF:
        return path
    parts = path.split("/")
    for n in (2, 1):
        folder = "/".join(parts[:n])
        if folder in LEVEL_OF and len(parts) > n:
            return folder
    if parts[0] == "backends" and len(parts) > 2:
        return "backends/null"  # a new backend has its level
    return None


def goes_up(source, target):
    above, below = folder_of(source), folder_of(target)
    return above != below and (above is None or below is None or LEVEL_OF[below] >= LEVEL_OF[above])


def symbols(source, folders):
    """(symbol -> file that defines it, file -> symbols that it needs)"""
    names = {}
    for folder, path in sorted((folder, path) for folder in folders for path in folder.rglob("*.o")):
        name = str(path.relative_to(folder))[: -len(".o")]
        if not name.startswith("generated/") and (source / name).exists():  # no kernels as data, no sources that were deleted
            names[str(path)] = name
    defined, needed = {}, {name: set() for name in names.values()}
    listed = subprocess.run(["nm", "-A", *names], check=True, capture_output=True, text=True).stdout if names else ""
    for line in listed.splitlines():
        path, _, words = line.partition(":")
        kind, symbol = words.split()[-2:]
        if kind == "U":
            needed[names[path]].add(symbol)
        elif kind in "TDBRVC" and not symbol.startswith("__odr_asan."):
            defined[symbol] = names[path]
    return defined, needed


def declared(headers):
    """The functions and variables that public headers declare."""
    text = "\n".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in headers)
    return set(re.findall(r"\b(strata_\w+)(?=\(|\[|;)", text))


def reaches_inside(source, build, defined, promised):
    """What the command, the samples and libstrata_interchange include besides public headers and their own, and the symbols of
    the library that they link and no public header declares."""
    found = []
    for path in sorted([*(source / "samples").rglob("*.[ch]"), *(source / INTERCHANGE).glob("*.[ch]")]):
        name = str(path.relative_to(source))
        own = INTERCHANGE + "/" if name.startswith(INTERCHANGE) else "sample_"
        for target in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            if not (target.startswith(("strata/", "generated/onnx.pb-c.h", own)) or (path.parent / target).exists()):
                found.append(f"{name} includes {target}: it includes the public headers, strata/*.h, and its own alone")
    programs = sorted(build.glob("CMakeFiles/sample_*.dir")) + [build / "CMakeFiles/strata_interchange_objects.dir"]
    for name, wanted in sorted(symbols(source, programs)[1].items()):
        if not (name.startswith(("samples/", INTERCHANGE)) and (source / name).exists()):
            continue
        for symbol in sorted(wanted & defined.keys() - promised):
            found.append(f"{name} links {symbol}, which no public header declares")
    return found


def is_missing(source, build):
    """The symbols that libstrata_interchange needs and libstrata.so does not export."""
    library = build / "libstrata.so"
    if not library.exists():
        return []
    exported = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1] for line in exported.splitlines()}
    defined, needed = symbols(source, [build / "CMakeFiles/strata_interchange_objects.dir"])
    return [f"{name} needs {symbol}, which libstrata.so does not export" for name, wanted in sorted(needed.items())
            for symbol in sorted(wanted) if symbol.startswith("strata_") and symbol not in exported | defined.keys()
            and not symbol.startswith("strata_onnx__")]


# The folder of libstrata_interchange.
INTERCHANGE = "core/interchange"

# model.c makes a function for each row of layers.def; a residual is begun and ended by two others.
NEVER_USED = {"strata_model_add_residual"}


def is_never_used(source, build, defined, promised):
    """The symbols of the library that no other object of the build uses, and no public header declares: nothing needs them, or
    their file alone does, and they should be static. A build without tests is not checked, since some are for tests."""
    others = sorted(folder for folder in build.glob("CMakeFiles/*.dir") if any(folder.rglob("*.o")))
    if not any(folder.name.startswith("test_model") for folder in others):
        return []
    used = NEVER_USED | promised
    for folder in others:
        for wanted in symbols(source, [folder])[1].values():
            used |= wanted
    return [f"{name} defines {symbol}, which nothing else uses; delete it or make it static"
            for symbol, name in sorted(defined.items()) if symbol not in used and not name.startswith(("data/", "shaders/"))]


def names_above(source):
    """The lines of a folder's files that name what NOT_NAMED keeps out of it."""
    return [f"{path.relative_to(source)}:{number} names what is above {folder}: {line.strip()}"
            for folder, words in NOT_NAMED.items() for path in sorted((source / folder).rglob("*.[ch]"))
            for number, line in enumerate(path.read_text().splitlines(), 1) if words.search(line)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    objects = [build / "CMakeFiles" / f"{name}.dir" for name in ("strata_objects", "strata_cluster_objects")]
    library, _ = symbols(source, objects)
    defined, needed = symbols(source, objects + [build / "CMakeFiles/strata_interchange_objects.dir"])
    needed = {name: wanted for name, wanted in needed.items() if (source / name).exists()}
    if len(needed) < 100:
        sys.exit(f"there are object files of only {len(needed)} sources in {' '.join(sys.argv[2:])}")
    promised = declared(sorted((source / "include/strata").glob("*.h")))
    wrong = reaches_inside(source, build, library, promised) + is_missing(source, build)
    wrong += is_never_used(source, build, defined, promised) + names_above(source)
    for path in sorted((source / "include/strata").glob("*.h")):
        name = f"strata/{path.name}"
        if name not in LEVEL_OF:
            wrong.append(f"{name}: it has no row in LEVELS")
        for target in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            if name in LEVEL_OF and goes_up(name, target):
                wrong.append(f"{name} includes {target}, which is not below it")
    for name, wanted in sorted(needed.items()):
        if folder_of(name) is None:
            wrong.append(f"{name}: its folder has no row in LEVELS")
            continue
        for symbol in sorted(wanted):
            target = defined.get(symbol)
            if target and target != name and goes_up(name, target):
                wrong.append(f"{name} links to {target}, which is not below it: {symbol}")
        for symbol in sorted(locale_calls(name, wanted)):
            wrong.append(f"{name} calls {symbol}, which depends on the locale; core/base/locale.h and ascii.h have others")
    n_headers = 0
    for path in sorted(p for top in ("core", "backends", "strategies", "cluster") for p in (source / top).rglob("*.[ch]")):
        name = str(path.relative_to(source))
        n_headers += 1
        for call in formats_fraction(path.read_text()):
            wrong.append(f"{name} formats a number with the locale's decimal point; call strata_format: {call}")
        for target in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            if folder_of(target) and goes_up(name, target):
                wrong.append(f"{name} includes {target}, which is not below it")
    for folder in ("core", "backends", "strategies", "cluster", "samples"):
        files = {path: path.read_text() for path in sorted((source / folder).rglob("*.[ch]"))}
        for path, text in files.items():
            name = str(path.relative_to(source))
            timed = timed_conditions(other for near, other in files.items() if near.parent == path.parent)
            for use in uses_time_of_day(name, text, timed):
                wrong.append(f"{name} uses the time of day, which may jump; core/base/clock.h has another clock: {use}")
    print(f"{len(needed)} objects and the includes of {n_headers} files: {len(wrong)} are wrong")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

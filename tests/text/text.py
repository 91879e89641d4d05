#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the text of the sources and of the READMEs.

usage: text.py SOURCE_DIR [--write]

Checks six things in the files that git knows:
  long    a line has at most 128 columns. In a README, rows of tables and lines with a link may be longer.
  readme  a folder with sources has a README.md. Folders that contain only data are described by the folder above.
  path    a file, script or command `strata ...` that a README names in backticks exists. A path starts at the README's folder,
          at the project's folder or at include/; a file name without a folder lies somewhere below the README's folder.
  formula each op that a program may have is a function of include/strata/ops.h, or in its list of those that have none.
  word    the words of the glossaries in core/README.md and cluster/README.md have no other meaning where they once had one.
  figure  measured figures (GFLOP/s, samples/s, "1.2 times as fast") are in tests/bench/RESULTS.md and in no README.

debts.txt lists how many findings each file still has: more of them fail. --write writes it anew; a change may only shorten it.
"""

import pathlib
import re
import subprocess
import sys

COLUMNS = 128
SOURCES = re.compile(r"(\.(c|h|kernel|cl|comp|def|sh|cmake|py)|CMakeLists\.txt|\.ci/run)$")
NAMED = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./-]*(\.(c|h|md|sh|py|def|kernel|cl|comp|cmake)|/)$")
PLACEHOLDER = re.compile(r"(^|/)(x(_test|_fuzz)?\.|x/|[A-Z]+/)")  # `core/op/x.c` is any op's file
NUMBER = r"\b[0-9][0-9.,]*\s*"
FIGURE = re.compile(
    NUMBER + r"([TG]FLOP/s|[GM]i?B/s|(samples|images|examples|steps|tokens|pictures)(/s\b| a second)"
    r"|times (as (fast|slow|long)|faster|slower)|% (faster|slower|of (PyTorch|TensorFlow|the peak)))"
)
RESULTS = "tests/bench/RESULTS.md"
# Uses of a word with another meaning than the glossaries of core/README.md and cluster/README.md give it: the files, the use,
# and what is meant.
FALSE_WORDS = [
    (r"(core/run|core/compile|strategies)/[^/]*\.[ch]$|core/op/communication\.[ch]$", r'(?<!")\b(strata_)?channels?\b(?!")',
     "the devices of an exchange are a team; a channel is an index of an array's last axis"),
    (r"cluster/(collective|transport|engine)/.*\.[ch]$|cluster/transport\.h$",
     r"\b([Aa]n|the|each|one|next|last|this) exchange\b|(->|\.)exchange\b",
     "one step of a collective is a round; an exchange is what the devices of a team do together"),
    (r"cluster/rpc/.*\.[ch]$", r"\bchannels?\b", "two processes have a connection"),
    (r"strategies/parameter_server/", r"\bstrata_ps_(store|group)|\b(a|the|one|this|its|other) (stores?|groups?)\b(?! of a)",
     "what a server owns is a stock, and its shards are a bundle; a store is that of a job, a group the replicas of a process"),
    (r"core/data/.*\.[ch]$", r"\bslots?\b", "a slot is the memory of a run, or an optimizer's; a ring and a table have cells"),
]


def commands(source):
    """The words that may follow `strata`."""
    texts = [path.read_text() for path in sorted((source / "samples/strata").glob("*.c"))]
    return {name for text in texts for name in re.findall(r'\.name = "([a-z-]+)"', text)} | {"help"}


def exists(source, folder, name, files):
    """build/ is there when the reader has built."""
    places = [folder, source, source / "include"]
    if name == "build/" or any((place / name).exists() for place in places):
        return True
    inside = "" if folder == source else str(folder.relative_to(source)) + "/"
    return "/" not in name and any(f.startswith(inside) and f.endswith("/" + name) for f in files)


def check_readme(source, name, lines, files, known, found):
    folder = (source / name).parent
    for n, line in enumerate(lines, 1):
        if name != RESULTS and len(line) > COLUMNS and not line.startswith("|") and "](" not in line and "://" not in line:
            found.append(("long", name, f"{name}:{n}: {len(line)} columns"))
        if name != RESULTS and FIGURE.search(line):
            found.append(("figure", name, f"{name}:{n}: a measured figure, {FIGURE.search(line)[0]}"))
        for quoted in re.findall(r"`([^`]+)`", line):
            words = quoted.split()
            if words[:1] == ["strata"] and len(words) > 1 and re.fullmatch("[a-z]+", words[1]) and words[1] not in known:
                found.append(("path", name, f"{name}:{n}: there is no command strata {words[1]}"))
            for word in words:
                if NAMED.match(word) and not PLACEHOLDER.search(word) and not exists(source, folder, word, files):
                    found.append(("path", name, f"{name}:{n}: {word} does not exist"))


def check_words(source, name, found):
    for where, use, meant in FALSE_WORDS:
        if re.match(where, name) and name.endswith((".c", ".h", ".md")):
            for n, line in enumerate((source / name).read_text().splitlines(), 1):
                if re.search(use, line):
                    found.append(("word", name, f"{name}:{n}: {re.search(use, line)[0]}: {meant}"))


def check_formulas(source, found):
    """Every op of ops.def but leaves is declared in ops.h, or a line of its comments begins with the op and its inputs."""
    header = (source / "include/strata/ops.h").read_text()
    known = set(re.findall(r"\bstrata_(\w+)\(", header)) | set(re.findall(r"^ \*   (\w+) \(", header, re.M))
    rows = (source / "core/op/ops.def").read_text() + (source / "core/op/elementwise.def").read_text()
    for op in re.findall(r"^(?:STRATA_OP\(|[A-Z_]+\(\s*\d+, )(\w+)", rows, re.M):
        if op not in known | {"input", "constant", "read"}:
            found.append(("formula", "include/strata/ops.h", f"core/op/ops.def: {op} has no formula in include/strata/ops.h"))


def findings(source):
    """(kind, file or folder, message) for everything that is wrong."""
    listed = subprocess.run(["git", "-C", source, "ls-files"], check=True, capture_output=True, text=True).stdout
    files = [f for f in listed.splitlines() if (source / f).is_file()]
    known, found = commands(source), []
    for name in files:
        if SOURCES.search(name):
            for n, line in enumerate((source / name).read_text(errors="replace").splitlines(), 1):
                if len(line) > COLUMNS:
                    found.append(("long", name, f"{name}:{n}: {len(line)} columns"))
        if not name.startswith("tests/"):
            check_words(source, name, found)
        if name.endswith(".md"):
            check_readme(source, name, (source / name).read_text().splitlines(), files, known, found)
    for folder in sorted({str(pathlib.Path(f).parent) for f in files if SOURCES.search(f)}):
        if not folder.startswith(".") and not (source / folder / "README.md").exists():
            found.append(("readme", folder, f"{folder}/README.md is missing"))
    check_formulas(source, found)
    return found


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)).resolve()
    found = findings(source)
    counts = {}
    for kind, name, _ in found:
        counts[kind, name] = counts.get((kind, name), 0) + 1
    debts = source / "tests/text/debts.txt"
    if sys.argv[2:] == ["--write"]:
        debts.write_text("".join(f"{kind} {name} {n}\n" for (kind, name), n in sorted(counts.items())))
        return
    allowed = {}
    for line in debts.read_text().splitlines() if debts.exists() else []:
        kind, name, n = line.split()
        allowed[kind, name] = int(n)
    wrong = [message for kind, name, message in found if counts[kind, name] > allowed.get((kind, name), 0)]
    print(f"{len(found)} findings, {sum(allowed.values())} allowed by debts.txt, {len(wrong)} in files with more than allowed")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

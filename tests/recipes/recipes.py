#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the READMEs' lists of what something new needs, and fails where a list lacks a step.

usage: recipes.py SOURCE_DIR [BUILD_DIR]

A list is a section of a README whose heading begins with "A new". The script does the steps that it can read from the text, for
all lists in one copy of the project, which BUILD_DIR receives. A name `x` in the heading stands for the name that a reader
chooses.
  a block of C            its first line is a comment with a path: this is the file. To a file that exists, the block is added
  `B`, ... a copy of `A`  the file or folder A, with another name
  a row `R` in `F`        a row of a table, after the table's last row of the same kind
  `strata ...`            after the build, the command ends with 0. So does a script of tests/install that the list names
Then the copy is built without its tests and without Vulkan, which would compile all kernels once more, and checked by
tests/links, tests/text and tests/install/symbols_test.sh.

Without BUILD_DIR the lists are only read: each table, which is a file *.def, has to be in one of them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

# Tables of another program's functions and operations: a new row is not a new part of Strata.
NO_LISTS = {"backends/opencl/functions.def", "backends/pjrt/functions.def", "backends/vulkan/functions.def",
            "cluster/engine/mpi_library.def", "core/frontend/pjrt/functions.def", "core/frontend/pjrt/ops.def"}
NAME = re.compile(r"(?<![A-Za-z0-9])x(?![A-Za-z0-9])")


class Wrong(Exception):
    pass


class Recipe:
    """The steps of one section."""

    def __init__(self, readme, heading, text):
        self.readme, self.heading = readme, heading
        kind = re.sub(r"`.*", "", heading.removeprefix("A new ")).strip().replace(" ", "_").replace("-", "_")
        named = "`x`" in heading.lower()
        # Not longer than the names of what is copied, so that lines stay as wide as they were.
        self.name = f"x{kind[:2]}" if named else None
        own = lambda words: NAME.sub(self.name, words) if named else words
        flat = re.sub(r"\s+", " ", re.sub(r"```.*?```", "", text, flags=re.S))
        self.blocks = []
        for indent, block in re.findall(r"^( *)```c\n(.*?)^ *```$", text, re.M | re.S):
            lines = [line[len(indent):] for line in block.splitlines()]
            path = re.fullmatch(r"/\* (\S+) \*/", lines[0])
            if path:
                self.blocks.append((own(path[1]), own("\n".join(lines[1:])) + "\n"))
        self.copies = [(source, own(target)) for target, source in re.findall(r"`([^`]+)`, [^`]*a copy of `([^`]+)`", flat)]
        self.rows = [(own(row), path) for row, path in re.findall(r"a row `([^`]+)` in `([^`]+)`", flat)]
        codes = re.findall(r"`((?:[A-Z_]+=\w+ )*(?:strata |sh tests/install/)[^`]+)`", flat)
        self.commands = [own(code) for code in codes if code.startswith("sh ") or not named or NAME.search(code)]

    def follow(self, copy):
        where = f"{self.readme}, {self.heading}"
        for source, target in self.copies:
            if not (copy / source).exists():
                raise Wrong(f"{where}: there is no {source} to copy")
            for old in sorted((copy / source).rglob("*.[ch]")) if (copy / source).is_dir() else [copy / source]:
                new = copy / target / old.relative_to(copy / source) if (copy / source).is_dir() else copy / target
                new.parent.mkdir(parents=True, exist_ok=True)
                stem = pathlib.Path(source).stem
                new.write_text(re.sub(rf"(?<![A-Za-z0-9]){stem}(?![A-Za-z0-9])", self.name, old.read_text()))
            if (copy / source).is_dir():
                (copy / target / "README.md").write_text(f"# {target.rstrip('/')}: a copy\n")
        for path, text in self.blocks:
            file = copy / path
            if file.exists() and path.endswith(".h"):
                before, end = re.fullmatch(r"(.*?\n)(\n#ifdef __cplusplus\n}\n.*)", file.read_text(), re.S).groups()
                file.write_text(before + text + end)
            elif file.exists():
                file.write_text(file.read_text() + text)
            else:
                file.write_text(text)
        for row, path in self.rows:
            file = copy / path
            if not file.exists():
                raise Wrong(f"{where}: there is no {path}")
            lines = file.read_text().splitlines()
            macro = re.match(r"\w+\(", row)[0]
            like = [n for n, line in enumerate(lines) if line.lstrip().startswith(macro)]
            if not like:
                raise Wrong(f"{where}: {path} has no row like {row}")
            last = like[-1]
            while lines[last].count("(") > lines[last].count(")") and last + 1 < len(lines):
                lines[last : last + 2] = [lines[last] + "\n" + lines[last + 1]]  # a row of several lines
            lines.insert(last + 1, re.match(r"\s*", lines[last])[0] + row)
            file.write_text("\n".join(lines) + "\n")


def files_of(source):
    listed = subprocess.run(["git", "-C", source, "ls-files"], check=True, capture_output=True, text=True).stdout
    return [name for name in listed.splitlines() if (source / name).is_file()]


def recipes_of(source, files):
    found = []
    for readme in files:
        if readme.endswith("README.md") and not readme.startswith("tests/"):
            parts = re.split(r"^## (.*)$", (source / readme).read_text(), flags=re.M)
            found += [Recipe(readme, heading, text) for heading, text in zip(parts[1::2], parts[2::2])
                      if heading.startswith("A new ")]
    return found


def without_list(files, recipes):
    """The tables to which no list adds a row."""
    added = {path for recipe in recipes for _, path in recipe.rows}
    return [name for name in files if name.endswith(".def") and name not in added | NO_LISTS]


def run(command, copy, build, say=False):
    done = subprocess.run(["bash", "-c", "set -o pipefail; " + command], cwd=copy, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, PATH=f"{build}:{os.environ['PATH']}", STRATA_BUILD_DIR=str(build),
                                   STRATA_SOURCE_DIR=str(copy)))
    if say:
        print(f"  {command}: {done.returncode}", flush=True)
    return done


def make(copy, build):
    return run(f"cmake --build {build} --target sample_strata libstrata.so libstrata_interchange.so", copy, build)


def check(recipe, copy, build):
    wrong = []
    for command in recipe.commands:
        done = run(command, copy, build, say=True)
        if done.returncode:
            wrong.append(f"{recipe.readme}, {recipe.heading}: {command} ended with {done.returncode}\n{done.stdout[-2000:]}")
    return wrong


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1]).resolve()
    files = files_of(source)
    recipes = recipes_of(source, files)
    missing = without_list(files, recipes)
    for name in missing:
        print(f"{name}: no section \"A new ...\" of a README adds a row to it")
    print(f"{len(recipes)} lists of what something new needs, {len(missing)} tables without a list", flush=True)
    if len(sys.argv) == 2 or missing:
        sys.exit(bool(missing))

    copy = pathlib.Path(sys.argv[2]).resolve()
    build = copy / "build/tests"
    shutil.rmtree(copy, ignore_errors=True)
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, copy / name)
    try:
        for recipe in recipes:
            recipe.follow(copy)
    except Wrong as why:
        sys.exit(str(why))
    made = run("git init -q && git add -A && cmake -G Ninja -S . -B build/tests -DCMAKE_BUILD_TYPE=Debug -DSTRATA_TESTS=OFF "
               "-DCMAKE_C_FLAGS_DEBUG=-O0 -DSTRATA_VULKAN=OFF -DSTRATA_WERROR=ON", copy, build)
    if not made.returncode:
        made = make(copy, build)
    if made.returncode:
        sys.exit("with what the lists add, the copy does not build:\n" + made.stdout[-6000:])
    wrong = []
    for recipe in recipes:
        print(f"{recipe.readme}, {recipe.heading}", flush=True)
        wrong += check(recipe, copy, build)
    for command in ("python3 tests/links/links.py . build/tests", "python3 tests/text/text.py .",
                    "sh tests/install/symbols_test.sh"):
        done = run(command, copy, build, say=True)
        if done.returncode:
            wrong.append(f"{command}: {done.stdout[-4000:]}")

    # The check itself: a list that lacks its file does not build, one that lacks its row is not found by the command.
    loss = next((recipe for recipe in recipes if recipe.heading == "A new loss `x`"), None)
    if not wrong and loss:
        file, table = copy / loss.blocks[0][0], copy / loss.rows[0][1]
        text, rows = file.read_text(), table.read_text()
        table.write_text(rows.replace(loss.rows[0][0] + "\n", ""))
        if make(copy, build).returncode or not check(loss, copy, build):
            wrong.append("a list without its row is not found")
        table.write_text(rows)
        file.unlink()
        if not make(copy, build).returncode:
            wrong.append("a list without its file is not found")
        file.write_text(text)
    print("\n".join(wrong + [f"{len(recipes)} lists were followed, {len(wrong)} are wrong"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

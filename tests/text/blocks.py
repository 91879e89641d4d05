#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what the READMEs and the help texts show, so that no example in them becomes false.

usage: blocks.py SOURCE_DIR BUILD_DIR [README...]

Each README gets an empty copy of the project, as a fresh clone has it, in which its blocks run in the order of the text, with
the command `strata`, an installed library and the Python module of BUILD_DIR. A block is a part of the text that is indented
by four spaces or stands between fences:
  commands    its first line begins with `$ ` or with a program. Every command must end with 0. Lines between `$ ` lines are
              output: each must occur in the program's output, in this order; numbers may differ, and `...` stands for anything.
  C, Python   a program: C is written to the file that the next `cc` names, Python is run.
Other blocks are drawings, formulas and outputs. They are not run.

The manual page, strata.1, is one more README. It has the examples of all help texts, of which each is a line that begins with
`strata` or `cc`; a remark may follow after some blanks.

The three tables below are all that this script knows about the READMEs: what stands for a reader's own files, what is made
shorter, and what is left out and why. Each block that is left out is printed with its reason.
"""

import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

SECONDS = 240  # for one command; more is a failure
PROGRAMS = "strata sh cmake pip python3 cc mpirun git ctest curl cd cat head bash".split()

# What a reader replaces by something of their own: (README or "", pattern, replacement).
OWN = [
    ("strata.1", r"(MODEL|m)\.json --data (DATA|DIR)", "own/model.json --data flowers.csv"),
    ("strata.1", r"--confusion DIR", "--confusion own/mnist"),
    ("strata.1", r"--mesh stage=2$", "--mesh stage=2 --devices host,host"),
    ("strata.1", r"opencl:0(,vulkan:0|,opencl:1)?", "host"),
    ("", r"strata train \.\.\.", "strata train mnist"),
    ("", r"(train|evaluate) (mnist|mnist_cnn)( --data DIR)", r"\1 \2"),
    ("", r"--data DIR", "--data own/cifar10"),
    ("", r"--checkpoint DIR", "--checkpoint own/steps"),
    ("", r"--checkpoint FILE", "--checkpoint own/checkpoint.strata"),
    ("", r"\bPREFIX\b", "own/prefix"),
    ("core/interchange", r"model\.json", "own/model.json"),
    ("core/interchange", r"convert resnet\.onnx resnet\.strata", "convert flowers.onnx resnet.strata"),
    ("samples/systolic", r"cmake --install build ", 'cmake --install "$BUILD" '),
]
# What a README's reader has done before, by another README.
BEFORE = {
    "strata.1": [
        "strata train flowers.csv --save M.strata", "strata train mnist --save digits.strata",
        "strata train mnist --log other.jsonl", "python3 tests/cli/files.py data own/mnist 100 50"],
    "core/interchange/README.md": [
        "strata train flowers.csv --save flowers.strata", "strata convert flowers.strata model.keras"],
    "samples/systolic/tests/README.md": [
        "cmake -S samples/systolic -B build/systolic -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build/systolic"],
}
# What would take long.
SHORTER = [
    (r"(--epochs|--every) \d+", r"\1 2"),
    (r"strata train (?!.*--epochs)", "strata train --epochs 2 "),
    (r"strata train ", "strata train --steps-per-epoch 4 "),
    (r"--trials \d+", "--trials 2 --epochs 2"),
    (r"strata tune (?!.*--trials)", "strata tune --trials 2 --epochs 2 "),
    (r"strata tune ", "strata tune --steps-per-epoch 4 "),
    (r"--profile \d+:\d+", "--profile 2:4"),
    (r"--workers 3", "--workers 2"),
    (r"strata plugin-check", "strata plugin-check --quick"),
    (r"strata bench allreduce", "strata bench allreduce --seconds 0.2"),
    (r"cmake --build (\S+)", r"cmake --build \1 -j 2"),
]
# What is not run here: (README or "", pattern of a command, reason). It is left out with its output.
LEFT_OUT = [
    ("", r"^(sh|bash) (samples/quickstart|tests/|\.ci/run)|^cmake -S \. -B build ", "a stage of .ci/run, or started by hand"),
    ("", r"^git tag", "it makes a release"),
    ("", r"^sh samples/install-packages", "it installs packages of the system"),
    ("", r"^pip install", "tests/python/python_test.sh installs the module"),
    ("", r"data fetch", "it needs a network; tests/cli/fetch_test.sh serves the files"),
    ("", r"--hosts a:2|--cluster a:2222|--cluster C ", "it needs other hosts; tests/cli/launch_test.sh runs it on loopback"),
    ("core/data/format", r"arrow|STRATA_PARQUET", "it fetches a package; tests/cli/parquet_test.sh reads what pandas wrote"),
    ("", r"^mpirun", "it needs an MPI; tests/threads/mpi.c"),
    ("", r"--plugin FILE|--plugin pjrt:|imdb/lstm.json", "it needs a vendor's plugin or fetched data; tests/cli has tests"),
    ("", r"^JAX_PLATFORMS=", "tests/frontend/plugin_test.sh runs programs of JAX"),
    ("", r"^STRATA_TEST_DEVICES=", "it runs a whole suite"),
    ("strata.1", r"x\.onnx", "it needs a graph of another program; tests/interchange has such graphs"),
]
NO_COMPARISON = [r"^strata devices", r"^strata plot", r"^strata tune", r"^strata serve"]  # machines and short runs differ


def manual(strata):
    """The manual page's lines, of which only the examples are left, as blocks of a README."""
    page = subprocess.run([strata, "help", "man"], check=True, capture_output=True, text=True).stdout
    examples = [re.match(r" *((?:strata [a-z]|cc ).*?)(?:  .*)?$", line) for line in page.replace("\\-", "-").splitlines()]
    return ["    " + example[1] if example else "" for example in examples]


def blocks(lines):
    """(line number, language, lines) of each block."""
    i = 0
    while i < len(lines):
        fence = re.match(r"```(\w*)$", lines[i])
        if fence:
            end = lines.index("```", i + 1)
            yield i + 2, fence[1], lines[i + 1 : end]
            i = end + 1
        elif lines[i].startswith("    ") and not lines[i - 1].strip():
            end = i
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield i + 1, "", [line[4:] for line in lines[i:end]]
            i = end
        else:
            i += 1


def commands(block):
    """(offset, command, its lines of output) of a block of commands; nothing for another block."""
    dollars = block[0].startswith("$ ")
    if not dollars and block[0].split()[0] not in PROGRAMS:
        return []
    found = []
    for n, line in enumerate(block):
        if line.startswith("$ ") or (not dollars and line.strip()):
            found.append((n, re.sub(r"\s+#.*", "", line.removeprefix("$ ")), []))
        elif found and (found[-1][1].endswith("\\") or found[-1][1].count("'") % 2):
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line, [])
        elif found and line.strip():
            found[-1][2].append(line)
    return found


def pattern(line):
    """A line of output as a regular expression: numbers, what `...` stands for and a device's name, "(...)", may differ."""
    line = re.sub(r"\(.*?\)", "...", re.sub(r"\s+", " ", line.strip()))
    parts = [re.sub(r"\d+(\\\.\d+)?", lambda _: r"[\d.e+-]+", re.escape(part)) for part in re.split(r"\s*\.\.\.\s*", line)]
    return ".*".join(parts)


def missing(output, expected):
    """The first line of the expected ones that the output does not have, in order, or None."""
    lines = iter([re.sub(r"\s+", " ", line.strip()) for line in output.splitlines()])
    for line in expected:
        if not any(re.search(pattern(line), found) for found in lines):
            return line
    return None


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data) if isinstance(data, bytes) else path.write_text(data)


def make_files(folder):
    """What the readers have: tables of flowers, pictures, arrays, CIFAR-10's files, models of other programs, a program."""
    draw = random.Random(7)
    names = ("setosa", (5.0, 3.4, 1.5, 0.2)), ("versicolor", (5.9, 2.8, 4.3, 1.3)), ("virginica", (6.6, 3.0, 5.5, 2.0))
    rows = [",".join(f"{draw.gauss(mean, 0.2):.1f}" for mean in means) + f",{name}" for name, means in names for _ in range(50)]
    head = "sepal length,sepal width,petal length,petal width,species"
    for name in "flowers.csv", "more.csv", "new.csv":
        write(folder / name, "\n".join([head] + rows) + "\n")
    for i in range(40):
        picture = bytes(draw.randrange(128) + 64 * (i % 2) for _ in range(64))
        write(folder / "photos" / ("cat", "dog")[i % 2] / f"{i}.pgm", b"P5 8 8 255\n" + picture)
    write(folder / "main.c", '#include "digits.c"\nint main(void) {\n    static float x[28 * 28], y[10];\n'
          '    digits_predict(x, y);\n    return 0;\n}\n')
    with zipfile.ZipFile(folder / "data.npz", "w") as arrays:
        x, y = struct.pack("<240f", *[draw.gauss(0, 1) for _ in range(240)]), struct.pack("<60i", *[i % 3 for i in range(60)])
        for name, kind, shape, values in (("x", "<f4", "(60, 4)", x), ("y", "<i4", "(60,)", y)):
            header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
            arrays.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + values)
    for name in "train", "test":
        for n in range(1, 6 if name == "train" else 2):
            image = lambda label: bytes([label]) + bytes(draw.randrange(20 * label, 256) for _ in range(3072))
            part = f"data_batch_{n}.bin" if name == "train" else "test_batch.bin"
            write(folder / "own/cifar10" / part, b"".join(image(i % 10) for i in range(100)))
    write(folder / "own/model.json", '{"input": [4], "layers": [{"layer": "dense", "units": 3}, {"layer": "flatten"}], '
          '"loss": "sparse_categorical_crossentropy", "optimizer": {"name": "adam"}}')
    weights = struct.pack("<15f", *[draw.gauss(0, 1) for _ in range(15)])
    header = b'{"fc.weight":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]},"fc.bias":{"dtype":"F32","shape":[3],' \
             b'"data_offsets":[48,60]}}'
    write(folder / "names.txt", "fc.weight dense/kernel linear\nfc.bias dense/bias\n")
    write(folder / "weights.safetensors", struct.pack("<Q", len(header)) + header + weights)


def changed(readme, command):
    for folder, old, new in OWN:
        if not folder or readme in (folder, folder + "/README.md"):
            command = re.sub(old, new, command)
    for old, new in SHORTER:
        command = re.sub(old, new, command)
    return command


class Reader:
    """Someone who follows one README in an own copy of the project."""

    def __init__(self, readme, folder, environment, on_host):
        self.readme, self.folder, self.environment, self.on_host = readme, folder, environment, on_host
        self.log, self.failures, self.left_out, self.ran, self.children = folder.parent / "log", [], [], 0, []

    def run(self, number, command, expected=()):
        """Runs a command as a reader types it; `&` at its end starts it beside the next ones. An example that names no driver
        and shows none runs on the host, for which no kernels are compiled."""
        said = re.sub(r"\s+", " ", command := command.strip())[:110]
        for folder, left, reason in LEFT_OUT:
            if (not folder or self.readme.startswith(folder)) and re.search(left, command):
                self.left_out.append(f"{self.readme}:{number}: {said}: {reason}")
                return
        command, self.ran = changed(self.readme, command), self.ran + 1
        shown = (self.folder / "block.py").read_text() if command.endswith("block.py") else "\n".join([command, *expected])
        environment = self.environment if re.search("opencl|vulkan|compile", shown) else self.on_host
        with open(self.log, "w+") as log:
            child = subprocess.Popen(["bash", "-c", "set -o pipefail; " + command.rstrip("& ")], cwd=self.folder, stdout=log,
                                     stderr=subprocess.STDOUT, env=environment, stdin=subprocess.DEVNULL,
                                     start_new_session=True)
            self.children.append(child)
            if command.endswith("&"):
                for _ in range(600):
                    if "serving on" in self.log.read_text() or child.poll() is not None:
                        break
                    subprocess.run(["sleep", "0.1"], check=True)
                os.rename(self.log, str(self.log) + ".server")
                return
            try:
                code = child.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                code = f"not at all in {SECONDS} s"
            log.seek(0)
            output = log.read()
        lost = None
        if not any(re.match(left, command) for left in NO_COMPARISON):
            lost = missing(output, expected)
        if code != 0 or lost:
            why = f"it ended with {code}" if code != 0 else f"the README shows {lost!r}, the program did not print it"
            end = "\n    ".join(output.splitlines()[-12:])
            self.failures.append(f"{self.readme}:{number}: {said}\n  run as: {command}\n  {why}\n    {end}")

    def follow(self, lines):
        program = None
        for command in BEFORE.get(self.readme, []):
            self.run(0, command)
        for number, language, block in blocks(lines):
            if language == "c" and any("int main(" in line for line in block):
                program = "\n".join(block) + "\n"
            elif language == "python":
                write(self.folder / "block.py", "\n".join(block) + "\n")
                self.run(number, "${PYTHON:-python3} block.py")
            elif not language:
                for offset, command, output in commands(block):
                    source = re.match(r"cc .*?(\w+\.c)\b", command)
                    if source and program and not (self.folder / source[1]).exists():
                        write(self.folder / source[1], program)
                    if re.match(r"cat \w+\.c$", command):
                        write(self.folder / command[4:], "\n".join(output) + "\n")
                    else:
                        self.run(number + offset, command, output)
        for child in self.children:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, build = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    listed = subprocess.run(["git", "-C", source, "ls-files"], check=True, capture_output=True, text=True).stdout.splitlines()
    # What the READMEs of tests/ show are the tests themselves.
    all_readmes = [f for f in listed if f.endswith(".md") and f != "CHANGELOG.md" and not f.startswith("tests/")]
    readmes = sys.argv[3:] or all_readmes + ["strata.1"]
    failed = left_out = ran = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        prefix = work / "prefix"
        subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        library = next(prefix.rglob("libstrata.so")).parent
        # A Python with numpy, which the module needs; without one its blocks are left out.
        python = next((name for name in ("python3", "/usr/bin/python3")
                       if subprocess.run([name, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0), None)
        if not python:
            LEFT_OUT.append(("", r"^\$.PYTHON", "Python has no numpy (python3-numpy)"))
        environment = dict(os.environ, PATH=f"{prefix}/bin:{os.environ['PATH']}", LD_LIBRARY_PATH=str(library),
                           PKG_CONFIG_PATH=f"{library}/pkgconfig", CMAKE_PREFIX_PATH=str(prefix),
                           PYTHONPATH=f"{source}/include/python", STRATA_LIBRARY=f"{library}/libstrata.so",
                           PYTHON=python or "", BUILD=str(build))
        (work / "no drivers").mkdir()
        on_host = dict(environment, OCL_ICD_VENDORS=str(work / "no drivers"), VK_DRIVER_FILES=os.devnull,
                       VK_ICD_FILENAMES=os.devnull)
        pristine = work / "pristine"
        for name in listed:
            if (source / name).is_file():
                (pristine / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / name, pristine / name)
        for readme in readmes:
            is_manual = readme == "strata.1"
            lines = manual(prefix / "bin/strata") if is_manual else (source / readme).read_text().splitlines()
            if not any(language in ("c", "python") or commands(block) for _, language, block in blocks(lines)):
                continue
            clone = work / "reader/strata"
            shutil.copytree(pristine, clone, copy_function=os.link)
            make_files(clone)
            shutil.copytree(prefix, clone / "own/prefix", symlinks=True)
            inside = readme.startswith("samples/plugin")  # a folder to copy: its README is read inside of it
            reader = Reader(readme, clone / "samples/plugin" if inside else clone, environment, on_host)
            began = time.monotonic()
            reader.follow(lines)
            failed, left_out, ran = (failed + len(reader.failures), left_out + len(reader.left_out), ran + reader.ran)
            shutil.rmtree(work / "reader")
            said = f"{readme}: {reader.ran} ran, {len(reader.failures)} failed, {time.monotonic() - began:.0f} s"
            print("\n".join([said] + reader.left_out + reader.failures), flush=True)
    print(f"{ran} examples of the READMEs and of the manual page ran, {failed} failed, {left_out} left out")
    sys.exit(bool(failed) or not ran)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in the sources, one at a time, and counts how many of them the tests notice.

usage: python3 tests/mutate.py [--seed N] [--number N] [--since COMMIT] [--suites N] [--again] [--list] [PATH ...]

  PATH            folders or files of the sources whose lines are changed (default: all folders of the table SUITES)
  --number N      how many mutants are drawn, evenly from the folders (default 200)
  --seed N        the seed by which they are drawn (default 1)
  --since COMMIT  only lines that differ from this commit
  --suites N      only the first N suites of each folder; try what survives once more by --again
  --again         no new mutants: those that survived the last run
  --list          prints the mutants and runs nothing

A mutant is a copy of the sources with one fault: another operator or constant, a condition that is negated, a statement that is
deleted, two arguments that are swapped. The suites that SUITES lists for its folder run in turn, the cheapest first, until one
of them fails. Then the mutant is killed; otherwise it survived. A mutant that does not compile, warnings included, is replaced
by another one. A mutant whose object file is the same as before changes nothing and is counted as equivalent; others that
change nothing that is promised are listed, with a reason, in mutate_equivalent.txt.

The copy and its build are in build/mutate of this tree, so that the next run starts faster. Results are in
build/mutate/results.txt.
Exit code: 0 when at least 95 % of the mutants of each folder that are not equivalent were killed, 1 when not, 2 for wrong
arguments, 3 when the unchanged sources do not build or do not pass.
"""

import argparse
import ast
import fnmatch
import functools
import hashlib
import io
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build/mutate"
COPY = WORK / "tree"
BUILD = COPY / "build/tests"
RESULTS = WORK / "results.txt"
MEASURED = WORK / "measured.json"
FETCHED = ("interchange", "keras", "python-packages")
EQUIVALENT = ROOT / "tests/mutate_equivalent.txt"
WANTED = 95  # per cent
LIMIT = 60  # the least number of seconds after which a suite counts as hanging

# For each folder or file: the suites that should notice a fault, the cheapest first. The first pattern that matches a path is
# used. A suite is one of
#   NAME[=FILTER]            the Criterion suite test_NAME, without drivers: cases for drivers are skipped
#   NAME@DEVICES[=FILTER]    the same with drivers, and only on these devices (STRATA_TEST_DEVICES)
#   FOLDER/NAME              the script tests/FOLDER/NAME_test.sh
#   threads_NAME, replay_NAME
# "{ops}" is the filter of the cases of conformance/ that run the kernel of this file.
SUITES = [
    ("core/base/json*", "base replay_json interchange data model"),
    ("core/base/*", "base resolver events data op run cli/usage model cluster"),
    ("core/compile/collectives*", "compile pjrt pjrt/replicas model"),
    ("core/compile/*", "compile graph run op model conformance@host backend"),
    ("core/data/format/csv*", "data replay_csv cli/tables cli/own_data"),
    ("core/data/format/picture*", "data replay_picture cli/pictures"),
    ("core/data/prepare/*", "data replay_preprocessing cli/tables cli/own_data cli/named_arrays cli/pictures cli/serve"),
    ("core/data/text/*", "data replay_tokenizer cli/own_data cli/tables"),
    ("core/data/*", "data threads_dataset replay_npz replay_npy replay_idx replay_safetensors cli/data model cli/own_data"
     " cli/tables"),
    ("core/events/*", "events alloc=alloc/r* model cli/log cli/plot cli/graph python/python"),
    ("core/graph/*", "graph op compile run model conformance@host alloc"),
    ("core/interchange/onnx*", "interchange replay_onnx interchange/interchange interchange/endings interchange/pytorch"),
    ("core/interchange/c_*", "interchange interchange/c interchange/endings"),
    ("core/interchange/*", "interchange replay_keras interchange/keras interchange/endings interchange/interchange"),
    ("core/layer/*", "layer model interchange interchange/endings interchange/c cli/inspect cli/print"),
    ("core/loss/*", "model layer strategies"),
    ("core/metric/*", "model strategies cli/train"),
    ("core/model/*", "model interchange cluster=over_workers/* strategies alloc crash cli/checkpoint cli/callbacks"),
    ("core/op/*", "op conformance=conformance_ops/l* compile layer graph conformance@host model alloc"),
    ("core/optimizer/*", "op model strategies"),
    ("core/run/*", "run op compile plugin model conformance@host strategies alloc backend"),
    ("backends/host/*", "conformance@host={ops} op threads_host conformance@host compile backend model"),
    ("backends/kernel/*", "backend@opencl=list/* backend@opencl=hazards/* backend@opencl=cache/* backend@opencl=liar/*"
     " conformance@opencl"),
    ("backends/opencl/*", "backend@opencl=opencl*/* backend@opencl=sequence*/* conformance@opencl=conformance_runtime/*"
     " backend@opencl"),
    ("backends/vulkan/*", "backend@vulkan=vulkan*/* conformance@vulkan=conformance_runtime/* backend@vulkan"),
    ("backends/fallback/*", "backend@opencl=fallback/* conformance@opencl=with_the_hosts_help/*"),
    ("backends/plugin/*", "plugin conformance@host-plugin plugin/check"),
    ("backends/pjrt/*", "pjrt pjrt/replicas conformance@pjrt"),
    ("backends/*", "run plugin conformance@null cli/devices backend"),
    ("cluster/resolver/*", "resolver replay_tf_config replay_host_list cli/cluster cli/launch"),
    ("cluster/engine/*", "threads_mpi threads_mpi_late cluster"),
    ("cluster/rpc/*", "threads_rpc cluster=rpc*/* cluster=pipe*/* threads_hostile strategies=p*/* cli/parameter_server"),
    ("cluster/wire/*", "replay_frame replay_handshake threads_collectives threads_rpc threads_hostile cluster cli/tls"),
    ("cluster/*", "threads_collectives run threads_processes threads_survivors threads_hostile cluster strategies cli/workers"),
    ("strategies/coordinator/*", "strategies=coordinator/* strategies=remote*/* threads_coordinator"),
    ("strategies/parameter_server/*", "strategies=p*/* strategies cli/parameter_server"),
    ("strategies/*", "strategies run model cli/strategies"),
    ("shaders/cpu/*", "conformance@opencl={ops}"),
    ("shaders/matrix_units/*", "conformance@vulkan=conformance_units/*"),
    ("shaders/*.c", "backend@vulkan=shader*/* backend@vulkan=vulkan*/*"),
    ("shaders/*", "conformance@vulkan={ops} conformance@opencl={ops}"),
    ("samples/strata/serve*", "replay_serve replay_http cli/serve"),
    ("samples/strata/plugin*", "plugin/check cli/usage"),
    ("samples/strata/launch*", "cli/usage cli/launch cli/launch_lost cli/workers"),
    ("samples/strata/tune*", "cli/usage cli/tune cli/named_arrays"),
    ("samples/strata/bench*", "cli/allreduce cli/usage cli/devices"),
    ("samples/strata/chart*", "cli/plot cli/usage"),
    ("samples/strata/devices*", "cli/devices cli/usage cli/liar cli/inspect"),
    ("samples/strata/plot*", "cli/plot cli/usage cli/pictures cli/tables cli/workers"),
    ("samples/strata/graph*", "cli/graph cli/overwrite"),
    ("samples/strata/trace*", "cli/graph cli/strategies cli/ps_reports cli/overwrite"),
    ("samples/strata/compile*", "cli/compile cli/usage"),
    ("samples/strata/*", "cli/usage cli/train cli/own_data cli/tables cli/inspect cli/data cli/model_file cli/named_arrays"
     " cli/print cli/log cli/plot cli/progress cli/checkpoint cli/validation cli/pictures cli/fetch cli/graph cli/devices"
     " cli/callbacks cli/strategies cli/cluster cli/placement cli/interrupt cli/workers"),
    ("include/python/strata/*", "python/python"),
]

# The cases of conformance/ that run the kernels whose names contain one of these words.
OPS = [
    ("classification_sums binary_sums softmax", "softmax"), ("pool conv depthwise winograd window slab", "window"),
    ("batch_norm layer_norm channel moments", "norm"), ("recurrent", "recurrent"),
    ("adam adagrad sgd lamb rmsprop moving scatter_update random dropout segment first_index roots hits",
     "update"),
    ("matmul product units reduce argmax top_k sum", "products"), ("unary clip", "unary"),
    ("binary fma_chain", "binary"), ("compare where", "compare"), ("cast dequantize", "cast"),
    ("gather scatter copy fill one_hot transpose pool", "shape"),
]


def fail(text, code):
    print(f"mutate.py: {text}", file=sys.stderr)
    sys.exit(code)


def suites_of(path):
    return next((suites.split() for pattern, suites in SUITES if fnmatch.fnmatch(path, pattern)), None)


def folder_of(path):
    """What the report calls the part of the tree: core/op, backends/host, cluster, shaders/cpu, include/python."""
    parts = path.split("/")[:-1]
    return "/".join(parts[: 1 if parts[0] in ("cluster", "strategies") else 2])


# ---- tokens ------------------------------------------------------------------------------------------------------------------
C_TOKEN = re.compile(r"""(?P<skip>/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:\\\n|[^\n])*|\s+)
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<op><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""", re.X | re.S | re.M)


class Token:
    def __init__(self, kind, text, start, spaced):
        self.kind, self.text, self.start, self.end = kind, text, start, start + len(text)
        self.spaced = spaced  # whether white space is on both sides: a * between spaces is no pointer


def c_tokens(text):
    return [Token(m.lastgroup, m[0], m.start(), text[m.start() - 1:m.start()].isspace() and text[m.end():m.end() + 1].isspace())
            for m in C_TOKEN.finditer(text) if m.lastgroup != "skip"]


def python_tokens(text):
    starts, at = [0], 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        starts.append(at)
    kinds = {tokenize.NAME: "name", tokenize.NUMBER: "number", tokenize.OP: "op", tokenize.NEWLINE: "line",
             tokenize.INDENT: "line", tokenize.DEDENT: "line", tokenize.STRING: "string"}
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            start = starts[token.start[0] - 1] + token.start[1]
            found.append(Token(kinds[token.type], token.string, start, True))
    return found


# ---- mutants -----------------------------------------------------------------------------------------------------------------
OPERATORS = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "//": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
             "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "and": "or",
             "or": "and", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "++": "--", "--": "++",
             "is": "is not", "in": "not in"}
# Calls whose arguments are the text of messages: a fault there changes no result.
MESSAGES = re.compile(r"strata_(fail|format|text_\w+|log\w*|warn\w*)$|(f|s|sn|v|vsn)?printf$|assert$|_Static_assert$|warn\w*$")
# What is not freed changes no result; AddressSanitizer finds it.
FREES = re.compile(r"free|destroy|finish|release|close|clear|unmap|abandon")
# Calls whose first arguments may be swapped.
SYMMETRIC = re.compile(r"strata_(add|mul|equal|not_equal)$|\w+_equal$|fmaxf?$|fminf?$")
DECLARES = set("""const static return else do typedef extern goto case default if for while switch break continue struct enum
    union def class import from global nonlocal assert raise pass del with try except finally elif yield lambda""".split())
ASSIGNS = {"(", "=", ".", "->", "[", "++", "--", "+=", "-=", "*=", "/=", "|=", "&="}


def closing(tokens, i):
    """The index of the bracket that closes tokens[i]; None: there is none."""
    depth = 0
    for j in range(i, len(tokens)):
        if tokens[j].text in ("(", "[", "{"):
            depth += 1
        elif tokens[j].text in (")", "]", "}"):
            depth -= 1
            if not depth:
                return j
    return None


def message_ranges(tokens):
    for i, token in enumerate(tokens[:-1]):
        if token.kind == "name" and MESSAGES.match(token.text) and tokens[i + 1].text == "(":
            end = closing(tokens, i + 1)
            if end:
                yield token.start, tokens[end].end
        elif token.text == "raise":
            end = next((t for t in tokens[i:] if t.kind == "line"), token)
            yield token.start, end.end


def arguments(tokens, i):
    """The (start, end) of each argument of the call whose bracket is tokens[i]."""
    end = closing(tokens, i)
    if end is None or end == i + 1:
        return []
    parts, start, j = [], i + 1, i + 1
    while j < end:
        if tokens[j].text in ("(", "[", "{"):
            j = closing(tokens, j) or end
        elif tokens[j].text == ",":
            parts.append((tokens[start].start, tokens[j - 1].end))
            start = j + 1
        j += 1
    if start < end:
        parts.append((tokens[start].start, tokens[end - 1].end))
    return parts


def constants(token):
    text = token.text
    if text in ("true", "false"):
        return ["false" if text == "true" else "true"]
    if text in ("True", "False"):
        return ["False" if text == "True" else "True"]
    if token.kind != "number":
        return []
    digits, suffix = re.match(r"(0[xX][0-9a-fA-F]+|[0-9.eE]+(?:(?<=[eE])[+-]\d+)?)(.*)$", text).groups()
    if re.fullmatch(r"\d+", digits) and not (suffix.lower() == "f"):
        n = int(digits, 8 if len(digits) > 1 and digits[0] == "0" else 10)
        return [f"{n // 2}{suffix}"] if n > 100 else [f"{n + 1}{suffix}"] + ([f"{n - 1}{suffix}"] if n else [])
    if digits[:2].lower() == "0x":
        return [f"{int(digits, 16) + 1:#x}{suffix}"]
    value = float(digits)
    return [f"{2 * value if value else 1.0!r}{suffix}"]


def statement_end(tokens, i, python):
    """The index of the token that ends the simple statement at tokens[i]; None: it is none that can be deleted."""
    first = tokens[i]
    follows = tokens[i + 1].text if i + 1 < len(tokens) else ""
    if first.kind != "name" or (first.text in DECLARES and first.text not in ("break", "continue")) or FREES.search(first.text):
        return None
    if first.text not in ("break", "continue") and follows not in ASSIGNS:
        return None
    j = i
    while j < len(tokens):
        if tokens[j].text in ("(", "[", "{"):
            j = closing(tokens, j)
            if j is None:
                return None
        elif tokens[j].text == ";" and not python or tokens[j].kind == "line":
            return j
        elif tokens[j].text in (")", "]", "}"):
            return None
        j += 1
    return None


def mutants_of(path, text):
    """All (kind, start, end, replacement) of a file."""
    python = path.endswith(".py")
    tokens = python_tokens(text) if python else c_tokens(text)
    hidden = sorted(message_ranges(tokens))
    found = []
    skip_until = -1
    ranges = iter(hidden)
    current = next(ranges, None)
    for i, token in enumerate(tokens):
        while current and token.start >= current[1]:
            current = next(ranges, None)
        in_message = current and current[0] <= token.start < current[1]
        if token.start < skip_until or in_message:
            continue
        before = tokens[i - 1] if i else None
        after = tokens[i + 1] if i + 1 < len(tokens) else None
        if before is None or after is None:
            continue
        ends_operand = before.kind in ("name", "number") and before.text not in DECLARES or before.text in (")", "]")
        if token.text in OPERATORS and (token.kind == "op" or python):
            unary = token.text in ("++", "--") or (token.spaced and ends_operand and before.end < token.start)
            if unary and not (python and token.text == "in" and any(t.text == "for" for t in tokens[max(0, i - 12):i])):
                if not (python and after.text == "not"):
                    found.append(("operator", token.start, token.end, OPERATORS[token.text]))
        # {0}, and the sizes of buffers
        small = token.text.isdigit() and 0 < int(token.text) <= 8
        unread = before.text in ("{", "[") and after.text in ("}", "]") and not small
        for constant in () if unread else constants(token):
            found.append(("constant", token.start, token.end, constant))
        if token.text == "!" and not python and after.text != "=":
            found.append(("condition", token.start, token.end, ""))
        if token.text in ("if", "while") and not python and after.text == "(":
            end = closing(tokens, i + 1)
            if end:
                inner = text[after.end:tokens[end].start]
                found.append(("condition", after.end, tokens[end].start, f"!({inner})"))
        if token.text in ("if", "elif", "while") and python and before.kind == "line":
            depth, j = 0, i + 1
            while j < len(tokens) and not (tokens[j].text == ":" and not depth):
                depth += (tokens[j].text in ("(", "[", "{")) - (tokens[j].text in (")", "]", "}"))
                j += 1
            if j < len(tokens):
                inner = text[after.start:tokens[j].start]
                found.append(("condition", after.start, tokens[j].start, f"not ({inner})"))
        starts = before.kind == "line" if python else before.text in (";", "{", "}", ")", "else")
        if starts:
            end = statement_end(tokens, i, python)
            if end:
                found.append(("statement", token.start, tokens[end - 1].end, "pass" if python else "{}"))
        called = token.kind == "name" and after.text == "(" and token.text not in DECLARES and token.text != "calloc"
        if called and before.kind != "name" and before.text != "*" and not SYMMETRIC.match(token.text):
            given = arguments(tokens, i + 1)
            for (a0, a1), (b0, b1) in zip(given, given[1:]):
                if text[a0:a1] != text[b0:b1] and "=" not in text[a0:b1]:
                    found.append(("arguments", a0, b1, text[b0:b1] + text[a1:b0] + text[a0:a1]))
    return found


class Mutant:
    """line: its number; before, after: the lines that differ, as in the file."""

    def __init__(self, path, kind, line, before, after):
        self.path, self.kind, self.line, self.before, self.after = path, kind, line, before, after
        self.verdict, self.by, self.seconds = "", "", 0.0

    def __str__(self):
        return f"{self.path}:{self.line}: {self.kind}: {squeeze(self.before)} => {squeeze(self.after)}"

    def key(self):
        return f"{self.path}: {squeeze(self.before)} => {squeeze(self.after)}"

    def applied(self, text):
        """The file with the fault; None: the file has no such lines any more."""
        lines = text.splitlines(keepends=True)
        n = self.before.count("\n")
        at = [i for i in range(len(lines)) if "".join(lines[i:i + n]) == self.before]
        if not at:
            return None
        i = min(at, key=lambda i: abs(i - self.line + 1))
        self.line = i + 1
        return "".join(lines[:i]) + self.after + "".join(lines[i + n:])


def squeeze(text):
    return " ".join(text.split())


def make_mutant(path, text, change):
    kind, start, end, new = change
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end) + 1 or len(text)
    return Mutant(path, kind, text.count("\n", 0, start) + 1, text[first:last], text[first:start] + new + text[end:last])


# ---- which files -------------------------------------------------------------------------------------------------------------
def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True).stdout


def changed_lines(commit):
    """{path: set of line numbers} that differ from the commit."""
    lines, path = {}, None
    for line in git("diff", "-U0", commit).splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        hunk = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)
        if hunk:
            start, n = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(start, start + n))
    return lines


def source_files(paths):
    known = git("ls-files", *"core backends cluster strategies shaders samples/strata include/python/strata".split()).split()
    wanted = [os.path.relpath(pathlib.Path(p).resolve(), ROOT) for p in paths]
    files = [f for f in known if re.search(r"\.(c|kernel|py)$|^shaders/cpu/.*\.h$", f) and f != "shaders/embed.c"
             and suites_of(f) and (not wanted or any(f == w or f.startswith(w + "/") for w in wanted))]
    if not files:
        fail(f"no source file that the table SUITES knows is in {' '.join(paths)}", 2)
    return files


def drawn(files, lines, seed):
    """Yields mutants without end, each folder in turn; in a folder each kind of fault has the same chance."""
    rng = random.Random(seed)
    folders = {}
    for path in files:
        text = (ROOT / path).read_text()
        for change in mutants_of(path, text):
            mutant = make_mutant(path, text, change)
            if lines is None or mutant.line in lines.get(path, ()):
                folders.setdefault(folder_of(path), {}).setdefault(change[0], []).append(mutant)
    while folders:
        for folder in sorted(folders):
            kinds = folders[folder]
            kind = rng.choice(sorted(kinds))
            yield kinds[kind].pop(rng.randrange(len(kinds[kind])))
            if not kinds[kind]:
                del kinds[kind]
            if not kinds:
                del folders[folder]


# ---- the copy, its build and its suites --------------------------------------------------------------------------------------
def make_copy():
    """Brings the copy up to the state of this tree, also what is not committed. Files that are equal keep their time. Returns a
    hash of all files."""
    digest = hashlib.sha256()
    names = set(filter(None, git("ls-files", "-z", "-co", "--exclude-standard").split("\0")))
    for name in sorted(names):
        source, target = ROOT / name, COPY / name
        if not source.is_file() or source.is_symlink():
            continue
        data = source.read_bytes()
        digest.update(name.encode() + hashlib.sha256(data).digest())
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)
    for fetched in FETCHED:  # what scripts of the tests fetched by pip
        if (ROOT / "build" / fetched / "complete").exists() and not (COPY / "build" / fetched).exists():
            (COPY / "build").mkdir(exist_ok=True)
            (COPY / "build" / fetched).symlink_to((ROOT / "build" / fetched).resolve())
    for target in [p for p in COPY.rglob("*") if p.is_file()]:
        name = str(target.relative_to(COPY))
        if not name.startswith("build/") and (name not in names or not (ROOT / name).exists()):
            target.unlink()
    return digest.hexdigest()


def environment(drivers=""):
    e = dict(os.environ, STRATA_SOURCE_DIR=str(COPY), STRATA_BUILD_DIR=str(BUILD), CC=os.environ.get("CC", "cc"),
             XDG_CACHE_HOME=str(WORK / "cache"), XDG_DATA_HOME=str(WORK / "data"), STRATA_PLUGINS="")
    if (ROOT / "../shared/data/mnist").is_dir():
        e.setdefault("STRATA_TEST_DATA", str((ROOT / "../shared/data").resolve()))
    lavapipe = sorted(pathlib.Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    vulkan = str(lavapipe[0]) if lavapipe and not list(pathlib.Path("/dev").glob("nvidiactl")) else ""
    if not drivers:
        vulkan = str(WORK / "none")
        e["OCL_ICD_VENDORS"] = str(WORK / "none")
    else:
        e["STRATA_TEST_DEVICES"] = drivers
        plugins = {"host-plugin": f"{BUILD}/suites/plugins/libstrata_host_plugin.so",
                   "pjrt": f"pjrt:{BUILD}/suites/pjrt_plugin.so"}
        e["STRATA_PLUGINS"] = plugins.get(drivers, "")
    if vulkan:
        e["VK_DRIVER_FILES"] = e["VK_ICD_FILENAMES"] = vulkan
    if shutil.which("ccache"):
        e.update(CMAKE_C_COMPILER_LAUNCHER="ccache", CMAKE_CXX_COMPILER_LAUNCHER="ccache")
        e.setdefault("CCACHE_BASEDIR", str(COPY))
        e.setdefault("CCACHE_NOHASHDIR", "1")
    return e


def run(command, limit, env, folder=COPY):
    """(exit code, output); the exit code of a command that was stopped after the limit is None."""
    with subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace") as p:
        try:
            output, _ = p.communicate(timeout=limit)
            return p.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            try:
                os.killpg(p.pid, 9)  # also what a script left running
            except ProcessLookupError:
                pass


def build(*targets):
    return run(["cmake", "--build", BUILD, "--target", *targets], 1800, environment())


def script_targets(path):
    """What a script of the tests needs: the command, and the samples, plugins and suites that it names."""
    needed = ["sample_strata"]
    for part, folder in re.findall(r'STRATA_BUILD_DIR"?/((samples|suites)/[\w$]*)', (ROOT / path).read_text()):
        name = part.split("/")[1]
        if "$" in name:
            return ["all"]
        needed += {"samples": [f"sample_{name}"], "suites/plugins": ["plugin_host", "plugin_faulty"],
                   "suites/pjrt_plugin": ["strata_test_pjrt"]}.get(folder if folder == "samples" else part, [name])
    return needed


class Suite:
    known = {}
    measured = {}  # {suite: seconds, or None where it is skipped}, of the sources as they are

    def __init__(self, text):
        name, _, pattern = text.partition("=")
        name, _, drivers = name.partition("@")
        self.text, self.limit, self.target = text, None, []
        self.env = environment(drivers)
        if "/" in name:
            self.target = script_targets(f"tests/{name}_test.sh")
            self.command = ["sh", str(COPY / f"tests/{name}_test.sh")]
        elif name.startswith("replay_"):
            self.target, self.command = [name], [BUILD / "suites" / name, COPY / "tests/fuzz/corpus" / name[7:]]
        elif name.startswith("threads_"):
            self.target, self.command = [name], [BUILD / "suites" / name]
        else:
            self.target = [f"test_{name}"] + {"host-plugin": ["plugin_host"], "pjrt": ["strata_test_pjrt"]}.get(drivers, [])
            self.command = [BUILD / "suites" / f"test_{name}", "--fail-fast", "-q"] + (["--filter", pattern] if pattern else [])

    @classmethod
    def of(cls, text, path):
        if "{ops}" in text:
            stem = pathlib.Path(path).stem
            ops = next((case for words, case in OPS if any(w in stem for w in words.split())), "*")
            text = text.replace("{ops}", "conformance_matmul/*" if ops == "products" else f"conformance_ops/{ops}")
        return cls.known.setdefault(text, cls(text))

    def measure(self):
        """Runs it on the sources as they are. A suite that is skipped is left out; one that fails ends everything."""
        if self.text not in Suite.measured:
            code, output = build(*self.target)
            if code:
                fail(f"the unchanged sources do not build {self.target}:\n{output[-3000:]}", 3)
            for attempt in range(2):
                start = time.monotonic()
                code, output = run(self.command, 1200, self.env)
                if code in (0, 77):
                    break
            if code not in (0, 77):
                fail(f"the unchanged sources do not pass {self.text}:\n{output[-3000:]}", 3)
            Suite.measured[self.text] = None if code else time.monotonic() - start
            print(f"    {self.text}: {'skipped' if code else 'passes'} in {time.monotonic() - start:.1f} s", flush=True)
            MEASURED.write_text(json.dumps([Suite.of_sources, Suite.measured]))
        seconds = Suite.measured[self.text]
        self.skipped = seconds is None
        self.limit = max(LIMIT, 4 * (seconds or 0))


def compile_alone(path):
    """The hash of the object file of a C file, without what only a debugger reads; b"" for others. None: it does not
    compile."""
    command = commands().get(str(COPY / path))
    if not command:
        return b""
    object_file = WORK / "alone.o"
    words = shlex.split(command)
    words[words.index("-o") + 1] = str(object_file)
    if run(words, 600, environment(), BUILD)[0]:
        return None
    subprocess.run(["objcopy", "--strip-debug", object_file], check=True)
    return hashlib.sha256(object_file.read_bytes()).digest()


@functools.lru_cache
def commands():
    """{file: command that compiles it}, of the first target that has it."""
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    return {e["file"]: e["command"] for e in reversed(entries)}


@functools.lru_cache(maxsize=None)
def unchanged(path):
    """The object of the file as it is."""
    digest = compile_alone(path)
    if digest is None:
        fail(f"the unchanged {path} does not compile", 3)
    return digest


def judge(mutant, equivalent, most):
    start = time.monotonic()
    file = COPY / mutant.path
    whole = (ROOT / mutant.path).read_text() if (ROOT / mutant.path).exists() else ""
    changed = mutant.applied(whole)
    if changed is None:
        mutant.verdict = "gone"
        return
    if mutant.key() in equivalent:
        mutant.verdict, mutant.by = "equivalent", equivalent[mutant.key()]
        return
    suites = [Suite.of(text, mutant.path) for text in suites_of(mutant.path)[:most]]
    original = unchanged(mutant.path)
    try:
        file.write_text(changed)
        mutant.verdict = "survived"
        compiled = compile_alone(mutant.path)
        if compiled is None:
            mutant.verdict = "does not compile"
        elif compiled and compiled == original:
            mutant.verdict, mutant.by = "equivalent", "the same object file"
        for suite in suites if mutant.verdict == "survived" else ():
            if suite.limit is None:
                file.write_text(whole)
                suite.measure()
                file.write_text(changed)
            if suite.skipped:
                continue
            code, output = build(*suite.target)
            if code:
                mutant.verdict, mutant.by = "does not compile", suite.text
                break
            code, _ = run(suite.command, suite.limit, suite.env)
            if code not in (0, 77):
                mutant.verdict, mutant.by = "killed", suite.text + ("" if code is not None else " (hangs)")
                break
    finally:
        file.write_text(whole)
        mutant.seconds = time.monotonic() - start


# ---- results -----------------------------------------------------------------------------------------------------------------
def read_equivalent():
    """{key: reason}. A line is `PATH: BEFORE => AFTER # REASON`."""
    lines = EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []
    return dict(map(str.strip, line.rsplit(" # ", 1)) for line in lines if " => " in line and not line.startswith("#"))


def write_results(mutants):
    with RESULTS.open("w") as f:
        for m in mutants:
            f.write(repr((m.path, m.kind, m.line, m.before, m.after, m.verdict, m.by)) + "\n")


def read_results():
    if not RESULTS.exists():
        fail("--again needs the results of an earlier run, and there are none", 2)
    rows = [ast.literal_eval(line) for line in RESULTS.read_text().splitlines()]
    found = []
    for path, kind, line, before, after, verdict, by in rows:
        mutant = Mutant(path, kind, line, before, after)
        mutant.verdict, mutant.by = verdict, by
        found.append(mutant)
    return found


def report(mutants):
    """Prints the table; returns whether enough are killed in each folder."""
    enough = True
    rows = {}
    for m in mutants:
        rows.setdefault(folder_of(m.path), []).append(m.verdict)
    rows["all"] = [m.verdict for m in mutants]
    print(f"\n{'folder':28} {'mutants':>8} {'equivalent':>11} {'killed':>7} {'survived':>9} {'killed of the rest':>19}")
    for name, verdicts in rows.items():
        counts = {v: verdicts.count(v) for v in ("equivalent", "killed", "survived")}
        rest = counts["killed"] + counts["survived"]
        share = 100 * counts["killed"] / rest if rest else 100
        enough &= share >= WANTED
        print(f"{name:28} {rest + counts['equivalent']:8} {counts['equivalent']:11} {counts['killed']:7} {counts['survived']:9}"
              f" {share:18.0f}%")
    survivors = [m for m in mutants if m.verdict == "survived"]
    if survivors:
        print("\nsurvived:")
        for m in survivors:
            print(f"  {m}")
    return enough


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0], add_help=False)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--since")
    parser.add_argument("--suites", type=int)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    given = parser.parse_args()
    if given.help:
        print(__doc__)
        return 0
    files = source_files(given.paths)
    if given.again:
        mutants, wanted = read_results(), None
        source = [m for m in mutants if m.verdict == "survived"]
    else:
        mutants, wanted = [], given.number
        source = drawn(files, changed_lines(given.since) if given.since else None, given.seed)
    if given.list:
        for _, mutant in zip(range(wanted or len(source)), source):
            print(mutant)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is ended, and the copy's file is as before
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "none").mkdir(exist_ok=True)
    Suite.of_sources = make_copy()
    if MEASURED.exists():
        of_sources, measured = json.loads(MEASURED.read_text())
        Suite.measured = measured if of_sources == Suite.of_sources else {}
    if run(["cmake", "--preset", "tests"], 600, environment())[0]:
        fail(f"cmake --preset tests fails in {COPY}", 3)
    equivalent, done = read_equivalent(), 0
    for mutant in source:
        if done == wanted:
            break
        judge(mutant, equivalent, given.suites)
        if mutant.verdict in ("does not compile", "gone") and not given.again:
            continue
        done += 1
        if not given.again:
            mutants.append(mutant)
        print(f"{done:4} {mutant.verdict:10} {mutant.seconds:6.1f} s  {mutant}  [{mutant.by}]", flush=True)
        write_results(mutants)
    return 0 if report(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels that vendors_kernels listed by the vendors' compilers, and judges what they take.

    python3 tests/vendors/vendors.py FOLDER [--targets TEXT] [--kernels TEXT] [--every | --quick] [--seconds N]

FOLDER has kernels.jsonl, kernels/ and what tests/vendors.sh fetched. README.md says what is checked. Exit codes: 0, 1, 77.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import inspect
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SUITES = HERE.parent.parent / "build/tests/suites"
RADV = next(pathlib.Path("/usr/share/vulkan/icd.d").glob("radeon_icd*.json"), None)
# A preloaded library that plays the kernel's driver (Debian: mesa-drm-shim), which Mesa 26 needs where older ones have
# RADV_FORCE_FAMILY; and what it calls our targets.
SHIM = next(pathlib.Path("/usr/lib").glob("*/libamdgpu_noop_drm_shim.so"), None)
SHIM_NAMES = {"navi21": "navi21", "gfx1100": "navi31", "gfx1201": "gfx1201"}
OPTIONS = ["-cl-std=CL1.2", "-cl-denorms-are-zero", "-w"]
CLANG_KNOWS = "sm_86"  # NVIDIA's newest architecture that clang 15 knows: ptxas compiles its PTX for later ones
BATCH = 8  # kernels of one OpenCL program: a compiler spends much of its time on what every program has
LIMIT = 120  # seconds that a compiler may take for a program
# Work-items that cost models assume in a unit: FULL_WARPS * WARP of backends/kernel/gpu_tiles.c, and FULL_SUBGROUPS of
# backends/kernel/gpu_units.c.
LEAST_ITEMS, LEAST_SUBGROUPS = 256, 8

# What a compute unit (CU, SM, subslice or Xe core) has: work-items at a time, registers of 4 bytes and the step in which they
# are given to a work-item, bytes of local memory, groups. Of Intel: threads of the hardware, whose registers are fixed.
Unit = collections.namedtuple("Unit", "items registers step local groups threads", defaults=(0,))
UNITS = {
    "radv navi21": Unit(2048, 65536, 8, 65536, 32),
    "radv vega10": Unit(2560, 65536, 4, 65536, 40),
    "radv gfx1100": Unit(2048, 98304, 12, 65536, 32),
    "radv gfx1201": Unit(2048, 98304, 12, 65536, 32),
    "amdgcn gfx1030": Unit(2048, 65536, 8, 65536, 32),
    "ptxas sm_70": Unit(2048, 65536, 8, 98304, 32),
    "ptxas sm_80": Unit(2048, 65536, 8, 167936, 32),
    "ptxas sm_90": Unit(2048, 65536, 8, 233472, 32),
    "ocloc skl": Unit(0, 0, 0, 65536, 16, 56),
    "ocloc tgllp": Unit(0, 0, 0, 131072, 32, 112),
    "ocloc dg2": Unit(0, 0, 0, 131072, 32, 128),
}


class Unavailable(Exception):
    """The compiler is not here; the text says why."""


def run(command, folder, **environment):
    env = {**os.environ, "LD_LIBRARY_PATH": f"{folder}/root/usr/lib/x86_64-linux-gnu", **environment}
    return subprocess.run(["nice", "-n", "5", *map(str, command)], env=env, capture_output=True, text=True, errors="replace",
                          timeout=LIMIT, check=False)


def need(path, package):
    if not pathlib.Path(path).exists():
        raise Unavailable(f"{package} was not fetched (build/vendors/packages/ has the log)")
    return path


def opencl_file(rows, folder, to):
    path = pathlib.Path(to) / "k.cl"
    path.write_text("".join((folder / f"kernels/{row['number']}.cl").read_text() for row in rows))
    return path


def last_line(text):
    lines = [line for line in text.splitlines() if "error" in line.lower()] or text.splitlines() or ["no message"]
    return lines[0].strip()[:160]


# Each compiler: a function of rows (of one target) and the target's chip that returns {number: result}, or {} when the program
# of all rows does not compile and they must be tried one by one. A result: {"error"} or registers, spilled, local, size ...
def compile_radv(rows, chip, folder, _):
    lines = [" ".join(map(str, [folder / f"kernels/{r['number']}.spv", r["buffers"], r["lanes"], *r["constants"].values()]))
             for r in rows]
    if not RADV:
        raise Unavailable("Mesa's Vulkan driver for AMD is not installed (Debian: mesa-vulkan-drivers)")
    if SHIM and chip not in SHIM_NAMES:
        raise Unavailable(f"{SHIM.name} has no {chip}")
    device = {"LD_PRELOAD": str(SHIM), "AMDGPU_GPU_ID": SHIM_NAMES[chip]} if SHIM else {"RADV_FORCE_FAMILY": chip}
    env = {**os.environ, **device, "VK_ICD_FILENAMES": str(RADV), "VK_DRIVER_FILES": str(RADV),
           "MESA_SHADER_CACHE_DISABLE": "true"}
    done = subprocess.run([SUITES / "vendors_radv"], input="\n".join(lines) + "\n", env=env, capture_output=True, text=True,
                          timeout=600, check=False)
    answers = done.stdout.splitlines()
    if len(answers) < len(rows):
        if len(rows) > 1:
            return {}
        answers = [done.stderr.strip() or f"the driver ended with exit code {done.returncode}"]
    results = {}
    for row, answer in zip(rows, answers):
        verdict, *rest = answer.split("\t")
        if verdict == "none":
            continue
        s = dict(pair.split("=") for pair in rest)
        results[row["number"]] = {"error": f"VkResult {verdict}"} if verdict != "ok" else {
            "registers": int(s["VGPRs"]), "scalars": int(s["SGPRs"]),
            "spilled": int(s["Spilled VGPRs"]) + int(s["Spilled SGPRs"]) or int(s.get("Scratch size", 0)),
            "local": int(s["LDS size"]), "size": int(s["Code size"])}
    return results


def clang(rows, folder, to, *arguments):
    root = folder / "root/usr"
    program = need(root / "lib/llvm-15/bin/clang", "clang-15")
    source, out = opencl_file(rows, folder, to), pathlib.Path(to) / "k.s"
    command = [program, "-x", "cl", *OPTIONS, "-O3", "-Xclang", "-finclude-default-header", *arguments, "-S", "-o", out, source]
    done = run(command, folder)
    return out.read_text() if done.returncode == 0 else None, last_line(done.stderr)


def compile_amdgcn(rows, chip, folder, to):
    libraries = need(folder / "root/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "rocm-device-libs")
    text, error = clang(rows, folder, to, "-target", "amdgcn-amd-amdhsa", f"-mcpu={chip}",
                        f"--rocm-device-lib-path={libraries}")
    if text is None:
        return {rows[0]["number"]: {"error": error}} if len(rows) == 1 else {}
    results = {}
    for block in re.split(r"^  - \.args:", text, flags=re.M)[1:]:
        field = {key: value for key, value in re.findall(r"^    \.(\w+): +(\S+)", block, flags=re.M)}
        number = next(r["number"] for r in rows if r["entry"] == field["name"])
        results[number] = {"registers": int(field["vgpr_count"]), "scalars": int(field["sgpr_count"]),
                           "spilled": int(field["vgpr_spill_count"]) + int(field["sgpr_spill_count"]),
                           "local": int(field["group_segment_fixed_size"])}
    return results


def compile_ptxas(rows, chip, folder, to):
    root = folder / "root"
    ptxas = need(root / "nvidia/cuda_nvcc/bin/ptxas", "nvidia-cuda-nvcc-cu12")
    library = need(root / "usr/lib/clc/nvptx64--nvidiacl.bc", "libclc-15")
    text, error = clang(rows, folder, to, "-target", "nvptx64-nvidia-nvcl", "-nogpulib", "-Xclang", "-mlink-builtin-bitcode",
                        "-Xclang", library, "-Xclang", "-target-cpu", "-Xclang", min(chip, CLANG_KNOWS),
                        "-Xclang", "-target-feature", "-Xclang", "+ptx75")
    done = None
    if text is not None:
        os.chmod(ptxas, 0o755)
        done = run([ptxas, "-v", "-arch", chip, pathlib.Path(to) / "k.s", "-o", "/dev/null"], folder)
        error = last_line(done.stderr)
    if done is None or done.returncode:
        return {rows[0]["number"]: {"error": error}} if len(rows) == 1 else {}
    results = {}
    for block in done.stderr.split("Compiling entry function '")[1:]:
        number = next(r["number"] for r in rows if r["entry"] == block.split("'")[0])
        local = re.search(r"(\d+) bytes smem", block)
        results[number] = {"registers": int(re.search(r"Used (\d+) registers", block)[1]),
                           "spilled": int(re.search(r"(\d+) bytes spill stores", block)[1]),
                           "local": int(local[1]) if local else 0}
    return results


def compile_ocloc(rows, chip, folder, to):
    program = need(folder / "root/usr/bin/ocloc", "intel-opencl-icd")
    source, out = opencl_file(rows, folder, to), pathlib.Path(to) / "k.bin"
    done = run([program, "compile", "-file", source, "-device", chip, "--format", "zebin", "-options",
                " ".join(OPTIONS[:2]), "-output_no_suffix", "-output", out], folder)
    if done.returncode or not out.exists():
        return {rows[0]["number"]: {"error": last_line(done.stdout + done.stderr)}} if len(rows) == 1 else {}
    info = out.read_bytes().decode("latin-1")
    info = info[info.rindex("kernels:"):] if "kernels:" in info else ""
    spilled = r"kernel (\w+)\s+compiled SIMD\d+ allocated \d+ regs and spilled around (\d+)"
    spills = dict(re.findall(spilled, done.stdout + done.stderr))
    results = {}
    for block in re.split(r"^ *- name: +", info, flags=re.M)[1:]:
        name = re.match(r"\w+", block)[0]
        row = next((r for r in rows if r["entry"] == name), None)
        simd, local = re.search(r"simd_size: +(\d+)", block), re.search(r"slm_size: +(\d+)", block)
        if row and simd:
            results[row["number"]] = {"registers": 1024 // int(simd[1]), "simd": int(simd[1]),
                                      "spilled": int(spills.get(name, 0)), "local": int(local[1]) if local else 0}
    return results


COMPILERS = {"radv": compile_radv, "amdgcn": compile_amdgcn, "ptxas": compile_ptxas, "ocloc": compile_ocloc}


def version_of(compiler):
    """What changes results besides the kernel's text: how the compiler is called and read."""
    parts = (COMPILERS[compiler], clang, run)
    text = "".join(map(inspect.getsource, parts)) + repr(OPTIONS)
    if compiler == "radv":
        text += (HERE / "radv.c").read_text()
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(row, folder, version):
    ending = "spv" if row["target"].startswith("radv") else "cl"
    text = (folder / f"kernels/{row['number']}.{ending}").read_bytes()
    return hashlib.sha256(f"{version} {row['target']} {row['constants']}".encode() + text).hexdigest()


def name_of(row):
    """The same for a kernel whose text or compiler changed."""
    return f"{row['target']} {text_of(row)}"


def compile_batch(target, rows, folder):
    compiler, chip = target.split()
    with tempfile.TemporaryDirectory(dir=folder) as to:
        try:
            results = COMPILERS[compiler](rows, chip, folder, to)
        except subprocess.TimeoutExpired:
            results = {rows[0]["number"]: {"error": f"not compiled within {LIMIT} s"}} if len(rows) == 1 else {}
    for row in rows:
        if row["number"] not in results and len(rows) > 1:
            results.update(compile_batch(target, [row], folder))
    return results


def is_tiled(row):
    return "TILE_K" in row["constants"]


def uses_units(row):
    return "UNIT_M" in row["constants"]


def items_of(row):
    return row["constants"]["LOCAL_X"] * row["constants"].get("LOCAL_Y", 1)


def groups_in_unit(row, result):
    unit, items = UNITS[row["target"]], items_of(row)
    bounds = [unit.groups, unit.local // result["local"] if result["local"] else unit.groups]
    if unit.threads:
        bounds.append(unit.threads // -(-items // result["simd"]))
    else:
        registers = -(-max(result["registers"], 1) // unit.step) * unit.step
        bounds += [unit.items // items, unit.registers // (registers * items)]
    return min(bounds)


def text_of(row):
    values = " ".join(f"{k}={v}" for k, v in row["constants"].items())
    return f"{row['kernel']} {row['variant']} {values}"


def faults_of(row, result):
    """Kinds of faults, with what to print."""
    if "error" in result:
        return {"compile": result["error"]}
    faults = {}
    if result["spilled"]:
        faults["spill"] = f"spills {result['spilled']}"
    groups = groups_in_unit(row, result)
    assumed = LEAST_ITEMS if is_tiled(row) else LEAST_SUBGROUPS * row["lanes"] if uses_units(row) else 1
    least = -(-assumed // items_of(row))
    if groups < least:
        faults["occupancy"] = f"{groups} groups fit a unit, {least} are assumed"
    return faults


def excepted(exceptions, row, fault):
    for e in exceptions:
        matches = all(row["constants"].get(k) == v for k, v in e.get("constants", {}).items())
        named = all(re.fullmatch(e.get(k, ".*"), row[k]) for k in ("kernel", "variant", "target"))
        if fault == e["fault"] and named and matches:
            e["used"] = True
            return True
    return False


def work_of(row):
    return row["constants"].get("WORK_M", 1) * row["constants"].get("WORK_N", 1)


def choose(rows, every):
    """All rows, or, without `every`: of kernels with tiles each tile and transposition in f32 (for matrix units in all
    variants), and the tile that takes most registers in other variants, with the first epilogue that was listed; of others the
    first and the last constants of each variant."""
    if every:
        return rows
    groups, tiles = {}, collections.defaultdict(list)
    for row in rows:
        c = row["constants"]
        if not is_tiled(row) and not uses_units(row):
            groups.setdefault((row["target"], row["kernel"], row["variant"]), []).append(row)
        elif uses_units(row) or row["variant"].startswith("f32"):
            shape = [v for k, v in c.items() if k not in ("BIAS", "ACTIVATION", "AUX")]
            tiles[row["target"], row["kernel"], row["variant"], *shape].append(row)
        else:
            turned = [v for k, v in c.items() if k.startswith("TRANSPOSE")]
            tiles[row["target"], row["kernel"], row["variant"], *turned].append(row)
    kept = [max(several, key=work_of) for several in tiles.values()]
    return kept + [row for several in groups.values() for row in several[:1] + several[1:][-1:]]


def is_float(row):
    return row["variant"].split("_")[0] == "f32"


def choose_quick(rows, texts):
    """What changed since its last result, first; then what the samples' training steps take of the kernels with tiles, in f32,
    with one epilogue, and one variant of each other kernel, f32 where there is one."""
    changed = [row for row in rows if texts.get(name_of(row), row["key"]) != row["key"]]
    kept = {}
    for row in rows:
        if not is_tiled(row) and not uses_units(row):
            kind = row["target"], row["kernel"]
            if kind not in kept or (is_float(row) and not is_float(kept[kind])):
                kept[kind] = row
        elif row["first"] and is_float(row):
            shape = [v for k, v in row["constants"].items() if k not in ("BIAS", "ACTIVATION", "AUX")]
            kept.setdefault((row["target"], row["kernel"], *shape), row)
    return changed + [row for row in kept.values() if row not in changed]


def programs_of(rows):
    """Rows of one compiler call each, of all targets in turn, so that each has its share of a limited time."""
    of_target = collections.defaultdict(list)
    for row in rows:
        of_target[row["target"]].append(row)
    queues = [[some[at:at + BATCH] for at in range(0, len(some), BATCH)] for some in of_target.values()]
    return [program for turn in itertools.zip_longest(*queues) for program in turn if program]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--targets", default="")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    folder, end = options.folder.resolve(), time.monotonic() + options.seconds
    rows = [json.loads(line) for line in (folder / "kernels.jsonl").read_text().splitlines()]
    rows = choose([r for r in rows if options.targets in r["target"] and options.kernels in r["kernel"]], options.every)
    store = folder / "results.json"
    kept = json.loads(store.read_text()) if store.exists() else {}
    cache, texts = kept.get("results", {}), kept.get("texts", {})
    versions = {compiler: version_of(compiler) for compiler in COMPILERS}
    for row in rows:
        row["key"] = key_of(row, folder, versions[row["target"].split()[0]])
    if options.quick:
        rows = choose_quick(rows, texts)
    missing, skipped, late = [row for row in rows if row["key"] not in cache], {}, collections.Counter()

    def save():
        texts.update((name_of(row), row["key"]) for row in rows if row["key"] in cache)
        store.write_text(json.dumps({"results": cache, "texts": texts}))

    def compile_in_time(some):
        return compile_batch(some[0]["target"], some, folder) if time.monotonic() < end else None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(compile_in_time, some): some for some in programs_of(missing)}
        for n, job in enumerate(concurrent.futures.as_completed(jobs)):
            some = jobs[job]
            try:
                results = job.result()
            except Unavailable as reason:
                skipped[some[0]["target"]] = str(reason)
                continue
            if results is None:
                late[some[0]["target"]] += len(some)
                continue
            for row in some:
                cache[row["key"]] = results.get(row["number"], {"error": "the compiler told nothing of it"})
            if n % 10 == 9:
                save()
                print(f"{n + 1} of {len(jobs)} programs", file=sys.stderr)
    save()
    sys.exit(report(rows, cache, skipped, late))


def report(rows, cache, skipped, late):
    exceptions = json.loads((HERE / "exceptions.json").read_text())
    failed = set()
    table, failures, known, n = {}, [], 0, 0
    for row in rows:
        result = cache.get(row["key"])
        if not result:
            continue
        n += 1
        name = f"{row['kernel']} {row['variant']}" if uses_units(row) else row["kernel"]
        cell = table.setdefault((name, row["target"]), {"registers": 0, "spilled": 0, "local": 0, "groups": 99})
        for fault, text in faults_of(row, result).items():
            if excepted(exceptions, row, fault):
                known += 1
            else:
                failed.add(row["target"])
                failures.append(f"{row['target']}: {text_of(row)}: {text}")
        if "error" not in result:
            for name in ("registers", "spilled", "local"):
                cell[name] = max(cell[name], result[name])
            cell["groups"] = min(cell["groups"], groups_in_unit(row, result))
    targets = [t for t in UNITS if any(t == target for _, target in table)]
    print("The most of each kernel's variants: registers / spilled / bytes of local memory, and the fewest groups in a unit:")
    print("| kernel | " + " | ".join(targets) + " |\n|" + "---|" * (len(targets) + 1))
    for kernel in sorted({k for k, _ in table}):
        cells = [table.get((kernel, t)) for t in targets]
        print(f"| {kernel} | " + " | ".join("-" if not c else "{registers} / {spilled} / {local} / {groups}".format(**c)
                                            for c in cells) + " |")
    print()
    for target, reason in skipped.items():
        print(f"skipped {target}: {reason}")
    for e in exceptions:
        judged = [r for r in rows if r["key"] in cache and re.fullmatch(e["target"], r["target"]) and
                  re.fullmatch(e["kernel"], r["kernel"])]
        if e.get("used"):
            print(f"known: {e['fault']} of {e['kernel']} {e.get('constants') or e['variant']} on {e['target']}: {e['reason']}")
        elif judged:
            print(f"not needed any more: the exception {e['fault']} of {e['kernel']} on {e['target']}")
    for target, count in late.items():
        print(f"left out {count} kernels on {target}: the time was over")
    if failures:
        print("what failed, once more:")
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{n} kernels on {len(targets)} targets, {len(failures)} failures, {known} known exceptions, "
          f"{len(skipped)} targets skipped")
    print(f"{len(targets) - len(failed)} passed, {len(failed)} failed, {len(skipped)} skipped")  # targets, for .ci/run
    return 1 if failures else 0 if n else 77


main()

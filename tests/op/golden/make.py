# SPDX-License-Identifier: Apache-2.0
"""Computes the golden numbers of the ops' tests with NumPy: tests/op/golden/<op>.py computes those of tests/op/golden/<op>.txt.

    python3 tests/op/golden/make.py [op ...]        (Debian: python3-numpy; without arguments: every op)

A module <op>.py that needs another library defines its name as LIBRARY ("PyTorch"). A Python without this library does not
change the file of the module.
Each <op>.py defines cases(golden) and calls golden.add(name, array): the dtype in the file is the array's own (float32,
int32, int64, uint8, bool; float16), or the one named by dtype=, for bf16. Values are computed in float64 from inputs that
were rounded to the dtype in the file, so that an expected value is right to its last bit. golden.random(shape, low, high)
gives float32 inputs, always the same. Format of the files: tests/support/golden.h.

NumPy versions and processors differ in the last bits of exp, log and sums. A line whose new numbers are within a relative
1e-12 of those in the file stays as it is, so that a run changes only what an <op>.py changed."""
import importlib.util
import os
import sys
import zlib

folder = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != folder]  # an op may be called like a module ("random")
try:
    import numpy
except ImportError:
    sys.exit("make.py: %s has no NumPy; Debian: apt-get install python3-numpy, then /usr/bin/python3 make.py" % sys.executable)

names = {"float32": "f32", "float64": "f32", "float16": "f16", "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "bool"}


class Golden:
    def __init__(self, op):
        self.generator = numpy.random.RandomState(zlib.crc32(op.encode()))
        self.lines = []

    def random(self, shape, low=-2.0, high=2.0):
        return self.generator.uniform(low, high, shape).astype(numpy.float32)

    def integers(self, shape, low, high, dtype=numpy.int32):
        return self.generator.randint(low, high, shape).astype(dtype)

    def held(self, array, dtype):
        """The array as float64 values that the dtype f32, f16 or bf16 (cut off) can hold."""
        array = numpy.asarray(array, numpy.float32)
        if dtype == "bf16":
            array = (array.view(numpy.uint32) & numpy.uint32(0xFFFF0000)).view(numpy.float32)
        return (array.astype(numpy.float16) if dtype == "f16" else array).astype(numpy.float64)

    def add(self, name, array, dtype=None):
        array = numpy.asarray(array)
        shape = "x".join(str(d) for d in array.shape) or "()"
        real = array.dtype.kind == "f"
        values = " ".join("%.17g" % v if real else "%d" % v for v in array.ravel())
        self.lines.append(("%s %s %s %s" % (name, dtype or names[str(array.dtype)], shape, values)).rstrip())


def same_numbers(old, new):
    """Whether two lines of one name, dtype and shape have the same values but for their last bits."""
    old, new = old.split(), new.split()
    if old[:3] != new[:3] or len(old) != len(new) or old[1] not in ("f32", "f16", "bf16"):
        return old == new
    a, b = (numpy.array([float(v) for v in line[3:]]) for line in (old, new))
    largest = numpy.max(numpy.abs(b), initial=0, where=numpy.isfinite(b))
    return numpy.allclose(a, b, rtol=1e-12, atol=1e-12 * largest, equal_nan=True)


def read_lines(path):
    """The lines of a golden file by the name of their array."""
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return {line.split()[0]: line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")}


def make(op):
    spec = importlib.util.spec_from_file_location("golden_" + op, os.path.join(folder, op + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    golden = Golden(op)
    module.cases(golden)
    path = os.path.join(folder, op + ".txt")
    before = read_lines(path)
    lines = []
    for line in golden.lines:
        old = before.get(line.split()[0], "")
        lines.append(old if same_numbers(old, line) else line)
    with open(path, "w") as file:
        file.write("# Made by make.py from %s.py with %s.\n" % (op, getattr(module, "LIBRARY", "NumPy")))
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    there = sorted(f[:-3] for f in os.listdir(folder) if f.endswith(".py") and f != "make.py")
    ops = sys.argv[1:] or there
    for op in ops:
        if op not in there:
            sys.exit("make.py: there is no %s.py in tests/op/golden; there are: %s" % (op, ", ".join(there)))
    for op in ops:
        try:
            make(op)
        except ImportError as missing:
            print("%s is left as it was: %s" % (op, missing))

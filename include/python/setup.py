# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel. The package contains libstrata.so, libstrata_interchange.so and libstrata_pjrt.so, which CMake builds, and
the declarations of the headers.

STRATA_LIBRARY=FILE uses a libstrata.so that is built already, and the other libraries beside it. They must be built from this
source tree."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE / "strata"))
import _headers  # noqa: E402

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


def build_library():
    if not (ROOT / "CMakeLists.txt").exists():
        sys.exit("strata: pip builds the library from the source tree around include/python; install from there")
    build = ROOT / "build" / "python"
    for command in (["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DSTRATA_TESTS=OFF"],
                    ["cmake", "--build", build, "--parallel", str(os.cpu_count()), "--target", "strata", "strata_interchange",
                     "strata_pjrt"]):
        if subprocess.run(command).returncode:
            sys.exit("strata: the library did not build; sh samples/install-packages.sh build installs what it needs")
    return build / "libstrata.so"


class Build(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "strata"
        library = pathlib.Path(os.environ.get("STRATA_LIBRARY") or build_library())
        major = re.search(r'STRATA_VERSION_MAJOR (\d+)', (ROOT / "include" / "strata" / "version.h").read_text())[1]
        files = {f"{name}.so.{major}": library.with_name(library.name.replace("libstrata", name, 1))  # as the others need it
                 for name in ("libstrata", "libstrata_interchange")}
        files["libstrata_pjrt.so"] = library.with_name("libstrata_pjrt.so")
        for name, file in files.items():
            shutil.copyfile(file, package / name)
            subprocess.run(["strip", "--strip-unneeded", package / name], check=False)
        (package / "_api.json").write_text(json.dumps(_headers.read(ROOT / "include" / "strata")))


class Wheel(bdist_wheel):
    """The wheel is for this platform and for any Python 3, because the library is not linked to Python."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


version = re.search(r'STRATA_VERSION +"([^"]+)"', (ROOT / "include/strata/version.h").read_text())[1]
setup(version=version, cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=WithLibrary)

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes the three Debian packages of the build, unpacks them side by side, and uses what they contain.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a build with sanitizers is not for packages"
    exit 77
fi
for tool in cpack dpkg-deb dpkg-shlibdeps; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool (Debian: dpkg-dev)"; exit 77; }
done
fail() { echo "FAILED: $*"; exit 1; }

(cd "$work" && cpack -G DEB --config "$STRATA_BUILD_DIR/CPackConfig.cmake" -B "$work/made") >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
for name in strata libstrata0 libstrata-dev; do
    package=$(ls "$work/made/${name}_"*.deb) || fail "there is no package $name"
    dpkg-deb -x "$package" "$work/root"
    dpkg-deb -f "$package" Depends >"$work/$name.depends"
done
grep -q "libstrata0 (= " "$work/strata.depends" || fail "strata depends on: $(cat "$work/strata.depends")"
grep -q "libcjson1" "$work/libstrata0.depends" || fail "libstrata0 depends on: $(cat "$work/libstrata0.depends")"
for name in strata libstrata0 libstrata-dev; do
    [ -n "$(find "$work/root" -path "*/share/doc/$name/copyright")" ] || fail "$name has no copyright file"
done
if grep -qE "opencl|vulkan|clblast" "$work/libstrata0.depends"; then fail "a driver's loader is no dependency"; fi

prefix=$(dirname "$(dirname "$(find "$work/root" -path '*/bin/strata')")")
bytes=$(wc -c <"$(find "$work/root" -name 'libstrata.so.0.*' -type f)")
if grep -q '^CMAKE_BUILD_TYPE:STRING=Release' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    grep -q "one shared library of four megabytes" "$STRATA_SOURCE_DIR/README.md" && [ $(((bytes + 500000) / 1000000)) = 4 ] ||
        fail "libstrata.so has $bytes bytes, and README.md says something else"
fi
"$prefix/bin/strata" --version | grep -q "^strata [0-9]" || fail "the packaged command does not run"
"$prefix/bin/strata" train linear --device host --epochs 1 >"$work/out" 2>&1 || { cat "$work/out"; fail "it does not train"; }

# The manual page must describe every command, and troff must not report errors.
page=$prefix/share/man/man1/strata.1
for command in train evaluate predict completion; do
    grep -q "^\.SS strata $command" "$page" || fail "no $command in strata.1"
done
if command -v groff >/dev/null; then
    groff -man -Tascii -ww "$page" >/dev/null 2>"$work/troff"
    [ ! -s "$work/troff" ] || { cat "$work/troff"; fail "troff complains about strata.1"; }
fi
# bash must complete commands and options with the packaged script.
if command -v bash >/dev/null; then
    completed=$(bash -c '. "$1"; COMP_WORDS=(strata train --epoc); COMP_CWORD=2; _strata; echo "${COMPREPLY[*]}"' bash \
        "$prefix/share/bash-completion/completions/strata")
    [ "$completed" = --epochs ] || fail "--epoc is completed to: $completed"
fi
echo "three packages, unpacked and used"

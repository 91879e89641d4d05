#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the build to a folder, moves that folder, and builds and runs consumer.c with it as a user would: with
# pkg-config, and with find_package for the shared and for the static library. Every installed header must also compile
# alone, as C11 and as C++. The template of a plugin must build with it and pass its check.
#     STRATA_BUILD_DIR   the build to install      CC   its compiler      (both are set by ctest and tests/run.sh)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

if grep -q '^STRATA_SANITIZE:STRING=.' "$STRATA_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a build with sanitizers is not for installing"
    exit 77
fi

cmake --install "$STRATA_BUILD_DIR" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
mv "$work/first" "$prefix"
libdir=$(dirname "$(find "$prefix" -name libstrata.so)")

"$prefix/bin/strata" --version >/dev/null || { echo "the installed command does not run"; exit 1; }

# Only symbols that are declared with STRATA_API may be exported.
for name in libstrata libstrata_interchange; do
    foreign=$(nm -D --defined-only "$libdir/$name.so" | awk '$3 !~ /^strata_/ && $2 != "A" { print $3 }')
    [ -z "$foreign" ] || { echo "$name.so exports names without the prefix strata_:" $foreign; exit 1; }
    foreign=$(nm --defined-only "$libdir/$name.a" 2>/dev/null | awk '$2 ~ /^[TDRBCW]$/ && $3 !~ /^strata_/ { print $3 }')
    [ -z "$foreign" ] || { echo "$name.a has names without the prefix strata_:" $foreign; exit 1; }
done

export PKG_CONFIG_PATH="$libdir/pkgconfig"
# shellcheck disable=SC2046 # the flags are words
"$CC" -std=c11 -Wall -Wextra -Werror "$here/consumer.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs strata)
LD_LIBRARY_PATH=$libdir "$work/by_pkg_config"
# shellcheck disable=SC2046
c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror "$here/consumer.cpp" -o "$work/by_cxx" $(pkg-config --cflags --libs strata)
LD_LIBRARY_PATH=$libdir "$work/by_cxx"

{ cmake -G Ninja -S "$here/consumer" -B "$work/consumer" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix" &&
    cmake --build "$work/consumer"; } >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; exit 1; }
"$work/consumer/with_shared"
"$work/consumer/with_static"

# libstrata has none of libstrata_interchange, which finds libstrata beside itself.
! nm -D --defined-only "$libdir/libstrata.so" | grep -qw strata_model_save_c || { echo "libstrata.so exports it"; exit 1; }
# shellcheck disable=SC2046
"$CC" -std=c11 -Wall -Wextra -Werror "$here/convert.c" -o "$work/convert" \
    $(pkg-config --cflags --libs strata-interchange)
for program in "$work/convert" "$work/consumer/with_interchange" "$work/consumer/with_interchange_static"; do
    LD_LIBRARY_PATH=$libdir "$program" "$work/small.c" >"$work/calls" || { cat "$work/calls"; exit 1; }
    [ "$(cat "$work/calls")" = "input (1,3)
dense (1,2)" ] || { cat "$work/calls"; exit 1; }
    "$CC" -std=c99 -Wall -Werror -c "$work/small.c" -o "$work/small.o"
done

# The cluster library alone: the sample links no other part of Strata, and its processes find each other.
# shellcheck disable=SC2046
"$CC" -std=c11 -Wall -Wextra -Werror "$here/../../samples/all_reduce.c" -o "$work/all_reduce" \
    $(pkg-config --cflags --libs strata-cluster)
for program in "$work/all_reduce" "$work/consumer/with_cluster"; do
    if ldd "$program" | grep libstrata || nm "$program" | grep -w strata_model_create; then
        echo "$program needs more of Strata than strata_cluster"
        exit 1
    fi
    "$prefix/bin/strata" launch -n 3 -- "$program" >"$work/all_reduce.txt" 2>&1 || { cat "$work/all_reduce.txt"; exit 1; }
    [ "$(grep -c 'of 3 over shm: the sum of all ranks is 3; hello from rank' "$work/all_reduce.txt")" = 3 ] ||
        { cat "$work/all_reduce.txt"; exit 1; }
done

# A vendor creates a plugin from the template, outside of the source tree, and builds it with find_package and with
# pkg-config.
"$prefix/bin/strata" plugin-new demo --to "$work/demo" >"$work/demo.log" || { cat "$work/demo.log"; exit 1; }
{ cmake -G Ninja -S "$work/demo" -B "$work/demo/build" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix" &&
    cmake --build "$work/demo/build" &&
    cmake -G Ninja -S "$work/demo" -B "$work/demo/by_pkg" -DCMAKE_C_COMPILER="$CC" -DCMAKE_DISABLE_FIND_PACKAGE_Strata=ON &&
    cmake --build "$work/demo/by_pkg"; } >"$work/demo.log" 2>&1 || { cat "$work/demo.log"; exit 1; }
"$prefix/bin/strata" plugin-check "$work/demo/by_pkg/libdemo.so" --quick >"$work/demo.log" || { cat "$work/demo.log"; exit 1; }
mkdir -p "$prefix/lib/strata/plugins"
cp "$work/demo/build/libdemo.so" "$prefix/lib/strata/plugins/"
"$prefix/bin/strata" devices | grep -q '^demo:0 .*Demo A1' || { echo "PREFIX/lib/strata/plugins is not looked into"; exit 1; }

for header in "$prefix"/include/strata/*.h; do
    name=strata/$(basename "$header")
    printf '#include <%s>\n' "$name" >"$work/alone.c"
    alone="-Wall -Wextra -Werror -fsyntax-only -I$prefix/include $work/alone.c"
    # shellcheck disable=SC2086 # words
    "$CC" -std=c11 $alone || { echo "$name does not compile alone as C11"; exit 1; }
    # shellcheck disable=SC2086
    c++ -x c++ -std=c++11 $alone || { echo "$name does not compile alone as C++11"; exit 1; }
    # shellcheck disable=SC2086
    c++ -x c++ -std=c++17 -Wpedantic $alone || { echo "$name does not compile alone as C++17"; exit 1; }
done
echo "installed, moved, and used by pkg-config (C, C++) and find_package (shared, static), with libstrata_interchange, the" \
    "cluster library also alone; " \
    "headers compile alone"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compares the parts of a release: the version in the sources, and the newest version in the changelog. The changelog may
# have a section "Unreleased" above that version.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
fail() { echo "$*"; exit 1; }
of() { sed -n "s/^#define $1 *\"*\([0-9.]*\)\"*\$/\1/p" "$root/include/strata/version.h"; }

version=$(of STRATA_VERSION)
parts=$(of STRATA_VERSION_MAJOR).$(of STRATA_VERSION_MINOR).$(of STRATA_VERSION_PATCH)
[ "$version" = "$parts" ] || fail "version.h: STRATA_VERSION is $version, and its parts are $parts"
newest=$(sed -n 's/^## //p' "$root/CHANGELOG.md" | grep -v '^Unreleased$' | head -n 1)
[ "$newest" = "$version" ] || fail "the newest version in CHANGELOG.md is '$newest', and version.h says $version"
echo "version.h and CHANGELOG.md are those of $version"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build: configures a build folder if needed, and brings it up to date.
#
#   build.sh KIND [TARGET...]     KIND: see below
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/step.sh

kind=$1
shift
folder=build/$kind
# For what runs under a tool: names and lines for its reports, and half the compile time of -O2 -g.
watched=(-Doptimization=1 -Ddebug=true -Dc_args=-g1 -Dcpp_args=-g1)
case $kind in
# lib: the installed or packed tree must suit any distribution.
release) options=(-Dbuildtype=release -Dlibdir=lib) ;;
# A sanitizer's instrumentation causes false warnings in gcc. Only this build lets tests narrow
# limits.
sanitize) options=("${watched[@]}" -Db_sanitize=address,undefined -Dwerror=false
    -Dbenchmarks=disabled -Dtest_limits=true) ;;
threads) options=("${watched[@]}" -Db_sanitize=thread -Dwerror=false -Dbenchmarks=disabled) ;;
coverage) options=(-Dbuildtype=release -Dlibdir=lib -Dcoverage=true) ;;
# The fuzzer is part of clang. Only what the targets link is built.
fuzz) export CC=clang-14 CXX=clang++-14
    options=("${watched[@]}" -Db_sanitize=address,undefined -Db_lundef=false -Dwerror=false
        -Dtests=disabled -Dbenchmarks=disabled -Dfuzzing=true -Dvulkan=enabled) ;;
*) fail "there is no build called '$kind': release, sanitize, threads, coverage or fuzz" ;;
esac

# Meson puts ccache before the compilers where it is installed. Checkouts share compiled objects:
# paths are relative to the checkout, and not part of the hash of debug information.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

# Two builds in one folder would undo each other's work.
mkdir -p build
exec 9>"build/$kind.lock"
flock -n 9 || step "waiting for another build of $folder" flock 9

# Other options, another Meson, or an added language: start again, because an old folder may not be
# readable any more.
stamp=$(printf '%s\n' "$PWD" "${options[@]}" && cat .ci/requirements.txt &&
    find .env -maxdepth 1 -name "installed-*" -exec cat {} + && { command -v ccache || true; })
if [ "$stamp" != "$(cat "$folder/configured" 2>/dev/null)" ]; then
    rm -rf "$folder"
    step "configuring $folder" .env/bin/meson setup "$folder" "${options[@]}"
    printf '%s\n' "$stamp" >"$folder/configured"
fi
if ! ninja -C "$folder" -n "$@" 2>/dev/null | grep -q 'no work to do'; then
    step "building $folder" ninja -C "$folder" "$@"
fi

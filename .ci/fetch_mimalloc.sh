#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fetch_mimalloc: gets mimalloc's source into subprojects/mimalloc, from the first that has it of:
#
#   1. the distribution's source package, signed like its other packages;
#   2. the crate libmimalloc-sys, which carries the source, where cargo is installed;
#   3. neither: Meson then clones upstream's tag, as subprojects/mimalloc.wrap says.
#
# apt needs deb-src entries for 1. They are derived from the machine's own deb entries and used
# through private folders: the machine's configuration and package lists stay unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/step.sh

target=subprojects/mimalloc
build_file=subprojects/packagefiles/mimalloc/meson.build
crate=libmimalloc-sys
crate_version=0.1.44
crate_sha256=667f4fec20f29dfc6bc7357c582d91796c169ad7e2fce709468aefeb2c099870

source_entries() { # FOLDER: writes a matching deb-src entry there for every deb entry
    local SOURCELIST SOURCEPARTS file
    eval "$(apt-config shell SOURCELIST Dir::Etc::sourcelist/f \
        SOURCEPARTS Dir::Etc::sourceparts/d)"
    for file in "$SOURCELIST" "$SOURCEPARTS"/*.list; do
        [ ! -f "$file" ] || sed -nE 's/^[[:space:]]*deb([[:space:]])/deb-src\1/p' "$file"
    done >"$1/twins.list"
    for file in "$SOURCEPARTS"/*.sources; do
        [ ! -f "$file" ] || sed -E 's/^Types:.*/Types: deb-src/I' "$file" >"$1/$(basename "$file")"
    done
}

from_distribution() { # FOLDER: mimalloc's source package, unpacked in FOLDER/tree
    command -v apt-get >/dev/null || return 1
    mkdir -p "$1/tree" "$1/sources" "$1/lists/partial" "$1/cache/archives/partial"
    source_entries "$1/sources"
    local apt=(apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$1/sources"
        -o Dir::State::Lists="$1/lists" -o Dir::Cache="$1/cache" -o APT::Sandbox::User="$(id -un)")
    # An archive without sources makes the whole update fail; the lists that did arrive are enough.
    "${apt[@]}" update || true
    # Only upstream's archive, which apt checks against the signed list; the packaging adds nothing
    # that we compile.
    (cd "$1" && "${apt[@]}" source --download-only --tar-only mimalloc &&
        tar -x -C tree --strip-components=1 -f ./*.orig.tar.*)
}

from_crate() { # FOLDER: the crate's copy, in FOLDER/tree
    command -v cargo >/dev/null || return 1
    mkdir -p "$1/crate/src"
    touch "$1/crate/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\n[dependencies]\n%s = "=%s"\n' \
        "$crate" "$crate_version" >"$1/crate/Cargo.toml"
    (cd "$1/crate" && cargo vendor) || return 1
    local copy=$1/crate/vendor/$crate
    grep -q "\"package\":\"$crate_sha256\"" "$copy/.cargo-checksum.json" || return 1
    cp -r "$copy/c_src/mimalloc/v2" "$1/tree"
}

fits() { # FOLDER: true if its version is one that the build file knows (2.0.9 is 209)
    local version
    version=$(sed -nE 's/^#define MI_MALLOC_VERSION +([0-9]+).*/\1/p' "$1/include/mimalloc.h")
    [ -f "$1/src/static.c" ] && [ "${version:-0}" -ge 209 ] && [ "$version" -lt 300 ]
}

fetch() { # FOLDER: its output does not matter; 1 if no place had the source
    from_distribution "$1" && fits "$1/tree" && return 0
    rm -rf "$1/tree"
    from_crate "$1" && fits "$1/tree"
}

if [ ! -f "$target/src/static.c" ]; then
    folder=$(mktemp -d "${TMPDIR:-/tmp}/quire-mimalloc.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    if ! step "fetching mimalloc's source" fetch "$folder"; then
        printf 'dev: leaving mimalloc to Meson, which clones it\n' >&2
        exit 0
    fi
    rm -rf "$target"
    cp -r "$folder/tree" "$target"
fi
cmp -s "$build_file" "$target/meson.build" || cp "$build_file" "$target/meson.build"

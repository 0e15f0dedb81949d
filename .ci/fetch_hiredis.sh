#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fetch_hiredis: gets the source of hiredis 1.3 into subprojects/hiredis. It comes out of the source
# package of its Python binding, which carries it whole: the distribution's own package may be too
# old for TLS. pip checks the hash.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/step.sh

target=subprojects/hiredis
build_file=subprojects/packagefiles/hiredis/meson.build
version=3.2.1
sha256=5a5f64479bf04dd829fe7029fad0ea043eac4023abc6e946668cbbec3493a78d

fetch() { # FOLDER: the source, in FOLDER/tree
    printf 'hiredis==%s --hash=sha256:%s\n' "$version" "$sha256" >"$1/wanted.txt"
    .env/bin/python -m pip download -q --require-hashes --no-deps --no-binary :all: -d "$1" \
        -r "$1/wanted.txt" || return 1
    mkdir "$1/tree"
    tar -x -C "$1/tree" --strip-components=3 -f "$1/hiredis-$version.tar.gz" \
        "hiredis-$version/vendor/hiredis"
}

if [ ! -f "$target/async.c" ]; then
    folder=$(mktemp -d "${TMPDIR:-/tmp}/quire-hiredis.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    step "fetching hiredis's source" fetch "$folder" ||
        fail "pip needs the network, or PIP_INDEX_URL set to a package index that it can reach"
    rm -rf "$target"
    cp -r "$folder/tree" "$target"
fi
cmp -s "$build_file" "$target/meson.build" || cp "$build_file" "$target/meson.build"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup: installs the tools to build and test a binding or a GPU backend, which not everyone needs;
# quick if they are there. A part that is not set up is not built, and the tests' summary names it.
#
#   setup.sh ccache      ccache by apt: all checkouts on this machine then share compiled objects
#   setup.sh coverage    gcovr, into .env
#   setup.sh cuda        nvcc and nvdisasm into .env, unless a CUDA toolkit is installed
#   setup.sh hip         clang 19, lld and LLVM's tools by apt
#   setup.sh fuzz        clang 14 and its run-time libraries by apt, for ./dev fuzz
#   setup.sh go          Go by apt, if there is none
#   setup.sh python      cffi, numpy and the tools to build a wheel, into .env
#   setup.sh rust        cargo by apt, if there is none, and what our crates and example depend on
#   setup.sh valkey      hiredis's source, and OpenSSL by apt; for the tests
#                        also Valkey into .env, and redis-server
#
# Several parts may be named.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/step.sh

into_env() { # NAME REQUIREMENTS
    cmp -s "$2" ".env/installed-$1" && return 0
    step "installing the packages for $1 into .env" .env/bin/python -m pip install -q -r "$2" ||
        fail "pip needs the network, or PIP_INDEX_URL set to a package index that it can reach"
    cp "$2" ".env/installed-$1"
}

by_apt() { # PACKAGE COMMAND ADVICE
    command -v "$2" >/dev/null && return 0
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    step "installing $1" "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$1" || fail "$3"
}

set_up() { # PART
    case $1 in
    ccache) by_apt ccache ccache "install ccache, so that it is on the PATH" ;;
    coverage) into_env coverage tests/coverage/requirements.txt ;;
    fuzz)
        by_apt clang-14 clang++-14 "install clang 14, so that 'clang++-14' is on the PATH"
        fuzzer=$(clang++-14 --print-file-name=libclang_rt.fuzzer-x86_64.a)
        [ -f "$fuzzer" ] || by_apt libclang-rt-14-dev /missing \
            "install libFuzzer of clang 14, in Debian the package libclang-rt-14-dev"
        ;;
    python) into_env python bindings/python/requirements.txt ;;
    cuda)
        command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
            into_env cuda backends/cuda/requirements.txt
        command -v nvdisasm >/dev/null || [ -x /usr/local/cuda/bin/nvdisasm ] ||
            into_env disassembly tests/fakegpu/requirements.txt
        ;;
    rust)
        # Debian's own cargo is too old for the crates; the one that builds its browsers is not.
        by_apt cargo-web cargo "install Rust 1.87 or newer, so that 'cargo' is on the PATH"
        oldest=$(printf '%s\n' 1.87 "$(cargo --version | cut -d' ' -f2)" | sort -V | head -1)
        [ "$oldest" = 1.87 ] ||
            fail "setup: $(cargo --version) is too old: install Rust 1.87 or newer"
        crates=(bindings/rust examples/rust tests/bindings/script/rust tests/bench/bindings/rust)
        locks=$(cat "${crates[@]/%//Cargo.lock}")
        if [ "$locks" != "$(cat .env/installed-rust 2>/dev/null)" ]; then
            for folder in "${crates[@]}"; do
                step "fetching the dependencies of $folder" \
                    cargo fetch --quiet --locked --manifest-path "$folder/Cargo.toml" ||
                    fail "cargo needs the network, or a source replacement for crates.io"
            done
            printf '%s\n' "$locks" >.env/installed-rust
        fi
        ;;
    valkey)
        [ -f /usr/include/openssl/ssl.h ] || by_apt libssl-dev /missing \
            "install OpenSSL's headers, in Debian the package libssl-dev"
        # Under systemd the package also starts a server on loopback, which nothing here uses.
        by_apt redis-server redis-server \
            "install Redis 7, so that 'redis-server' is on the PATH"
        into_env valkey tests/valkey/requirements.txt
        .ci/fetch_hiredis.sh
        ;;
    go) by_apt golang-go go "install Go 1.19 or newer, so that 'go' is on the PATH" ;;
    hip)
        by_apt clang-19 clang++-19 "install clang 19, so that 'clang++-19' is on the PATH"
        by_apt lld-19 ld.lld-19 "install lld 19, so that 'ld.lld-19' is on the PATH"
        by_apt clang-tools-19 clang-offload-bundler-19 \
            "install clang 19's tools, so that 'clang-offload-bundler-19' is on the PATH"
        by_apt llvm-19 llvm-objdump-19 "install LLVM 19, so that 'llvm-objdump-19' is on the PATH"
        ;;
    esac
}

[ $# != 0 ] || fail "setup: name a part: ccache, cuda, fuzz, go, hip, python, rust or valkey"
for part in "$@"; do
    case $part in
    ccache | coverage | cuda | fuzz | go | hip | python | rust | valkey) ;;
    -h | --help)
        sed -n '3,/^set/s/^# \{0,1\}//p' "$0"
        exit
        ;;
    *) fail "setup: there is no part '$part'; --help lists them" ;;
    esac
done
for part in "$@"; do set_up "$part"; done

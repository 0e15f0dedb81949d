#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install: installs what the build needs if it is missing; quick and silent otherwise.
#
#   system packages   by apt, as root or through sudo (Debian 12 and later, Ubuntu 24.04 and later)
#   .env/             Meson and clang-format, at the versions of requirements.txt
#   subprojects/      mimalloc's source
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/step.sh

packages=(
    gcc g++ binutils pkgconf ninja-build git
    python3 python3-venv
    xz-utils ca-certificates                # to fetch and unpack mimalloc's source
    libxxhash-dev libcli11-dev nlohmann-json3-dev
    libmd-dev                               # SHA-256, linked into libquire
    liburing-dev                            # the disk store's fast path
    libgtest-dev libbenchmark-dev
    libvulkan-dev libvulkan-volk-dev glslc  # the vulkan backend, and its shaders
    mesa-vulkan-drivers vulkan-validationlayers     # a device without a GPU, to test it on
    spirv-tools                             # checks shaders that this machine cannot run
    clang valgrind                          # headers under both compilers; extended tests
)

missing_packages() {
    local installed
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" \
        2>/dev/null || true)
    for package in "${packages[@]}"; do
        grep -qx "installed $package" <<<"$installed" || printf '%s ' "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        # On another distribution Meson names whatever it cannot find.
        command -v ninja >/dev/null ||
            fail "ninja was not found; install these packages, under your system's names:" \
                "  ${packages[*]}"
        return
    fi
    local missing
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    # sudo may have to ask for a password: do it before the steps, which have no terminal.
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || sudo -v ||
        fail "packages are missing, and sudo did not work; as root, run:" \
            "  apt-get install $missing"
    step "reading package lists" as_root "${apt[@]}" update || true
    # shellcheck disable=SC2086 # a list of words
    step "installing $missing" as_root "${apt[@]}" install -y --no-install-recommends $missing ||
        fail "is the archive's 'universe' component enabled (Ubuntu), and is the network reachable?"
}

install_tools() {
    # Scripts in a virtual environment hold its path, so a moved checkout needs a new one.
    local stamp
    stamp=$(printf '%s\n' "$PWD" && cat .ci/requirements.txt)
    [ "$stamp" != "$(cat .env/installed 2>/dev/null)" ] || return 0
    rm -rf .env
    step "installing Meson and clang-format into .env" sh -c \
        'python3 -m venv .env && .env/bin/python -m pip install -q -r .ci/requirements.txt' ||
        fail "pip needs the network, or PIP_INDEX_URL set to a package index that it can reach"
    printf '%s\n' "$stamp" >.env/installed
}

install_packages
install_tools
.ci/fetch_mimalloc.sh

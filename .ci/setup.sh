#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup: installs what one language's binding is built and tested with; quick if it is there.
#
#   setup.sh go          Go by apt, if there is none
#   setup.sh python      into .env, from bindings/python/requirements.txt
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/step.sh

language=${1:-}
case $language in
python)
    wanted=bindings/python/requirements.txt
    cmp -s "$wanted" .env/installed-python && exit 0
    step "installing what the Python package needs into .env" \
        .env/bin/python -m pip install -q -r "$wanted" ||
        fail "pip needs the network, or PIP_INDEX_URL set to where the packages are"
    cp "$wanted" .env/installed-python
    ;;
go)
    command -v go >/dev/null && exit 0
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    step "installing golang-go" "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q install -y --no-install-recommends golang-go ||
        fail "install Go 1.19 or newer, so that 'go' is on the PATH"
    ;;
"") fail "setup: name a language: python or go" ;;
*) fail "setup: there is no language '$language'; there are python and go" ;;
esac

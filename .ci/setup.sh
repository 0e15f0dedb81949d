#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup: installs what one language's binding is built and tested with; quick if it is there.
#
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
*) fail "setup: there is no language '$language'; there is python" ;;
esac

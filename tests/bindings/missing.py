# SPDX-License-Identifier: Apache-2.0
"""missing: stands in for the tests of a binding that was not built, so that the summary names it.

    missing.py LANGUAGE setup      ./dev setup LANGUAGE was not run
    missing.py LANGUAGE shipped    this build is instrumented: bindings contain only shipped objects
"""

import sys

language, why = sys.argv[1:]
if why == "setup":
    print(f"the {language} binding is not built: ./dev setup {language} installs what it needs")
else:
    print(f"the {language} binding is tested in build/release only")
sys.exit(77)

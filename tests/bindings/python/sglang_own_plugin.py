# SPDX-License-Identifier: Apache-2.0
"""sglang_own_plugin: a plugin of pytest that puts Quire's radix cache in the place of SGLang's.

With QUIRE_SGLANG_RADIX=theirs it leaves SGLang's."""

import os

import sglang.srt.mem_cache.radix_cache as radix_cache

if os.environ["QUIRE_SGLANG_RADIX"] == "ours":
    from quire.sglang_radix import QuireRadixCache

    radix_cache.RadixCache = QuireRadixCache

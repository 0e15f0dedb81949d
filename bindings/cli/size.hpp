// SPDX-License-Identifier: Apache-2.0
//
// size: how many sequences a deployment holds and how fast it decodes, from presets or numbers; the
// library's quire_size_estimate does the arithmetic.
#pragma once

#include <string>

namespace quire::cli {

// The texts as given; empty means not given.
struct SizeOptions {
    std::string model, gpu;
    std::string layers, kv_heads, q_heads, head_dim, latent, params;
    std::string weight_dtype = "bf16", kv_dtype = "f16";
    std::string hbm, bandwidth, flops, util, reserve;
    std::string tp, ctx, batch, block_tokens;
    bool list = false;
    bool json = false;
};

void size(const SizeOptions &options);

}  // namespace quire::cli

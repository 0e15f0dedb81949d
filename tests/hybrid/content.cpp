// SPDX-License-Identifier: Apache-2.0
//
// content: see content.hpp.
#include "content.hpp"

namespace hybrid {

std::vector<uint64_t> chain_of(const Owner &owner, const std::vector<uint32_t> &tokens) {
    const bool media = owner.key_set == media_key;
    std::vector<uint64_t> chain(tokens.size() + 1);
    chain[0] = mix(mix(owner.tenant, 77), media ? 0 : owner.key_set);
    for (size_t i = 0; i < tokens.size(); ++i) {
        chain[i + 1] = mix(chain[i], tokens[i]);
        if (media && i >= owner.media_begin && i < owner.media_end)
            chain[i + 1] = mix(chain[i + 1], 4242);
    }
    return chain;
}

std::vector<uint64_t> block_content(const Config &config, uint32_t group,
                                    const std::vector<uint64_t> &chain, uint32_t place) {
    const uint32_t size = config.groups[group].block_tokens;
    const auto prefix = [&](size_t tokens) {
        return tokens < chain.size() ? chain[tokens] : mix(mix(chain.back(), tokens), 5353);
    };
    if (config.groups[group].recurrent())
        return {state_content(group, prefix(size_t{place + 1} * size))};
    std::vector<uint64_t> slots;
    for (uint32_t i = 0; i < size; ++i)
        slots.push_back(attention_content(group, prefix(size_t{place} * size + i + 1)));
    return slots;
}

}  // namespace hybrid

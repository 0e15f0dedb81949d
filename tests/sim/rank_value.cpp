// SPDX-License-Identifier: Apache-2.0
//
// rank_value: how a rank names its part of a block in its store, and what that must hold, after
// docs/tiers.md ("Names") and docs/canonical-form.md alone.
#include "rank.hpp"

namespace sim {
namespace {

constexpr size_t kHeaderBytes = 256;

uint64_t up(uint64_t size) { return (size + 63) / 64 * 64; }

uint32_t word(const std::vector<uint8_t> &bytes, size_t at) {
    uint32_t value = 0;
    memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

}  // namespace

Digest rank_fingerprint() {
    Digest print{};
    print[0] = 7;
    return print;
}

quire_store_label Rank::label(uint32_t group, const Digest &name, const Digest &tenant) const {
    const RankGroup &g = shape_.groups[group];
    const RankPart held = part(group);
    const uint32_t layers = held.layer_end - held.layer_begin;
    const uint32_t heads = held.head_end - held.head_begin;
    Hashed key;
    key.digest(name);
    const uint32_t kind = g.window != 0 ? QUIRE_GROUP_WINDOW : QUIRE_GROUP_FULL;
    for (const uint32_t value :
         {group, kind, g.window, 0u, g.layers, shape_.heads, 1u, 1u,
          static_cast<uint32_t>(QUIRE_DTYPE_F32), static_cast<uint32_t>(QUIRE_DTYPE_F32), 0u, 0u})
        key.word(value);
    if (layers != g.layers || heads != shape_.heads)
        for (const uint32_t value : {held.layer_begin, layers, held.head_begin, heads})
            key.word(value);
    const Digest digest = key.end();
    const Digest print = rank_fingerprint();
    quire_store_label to{};
    memcpy(to.key, digest.data(), sizeof to.key);
    memcpy(to.fingerprint, print.data(), sizeof to.fingerprint);
    memcpy(to.name_space, tenant.data(), sizeof to.name_space);
    return to;
}

void Rank::learn(const RankBlock &block) {
    if (!has(block.group)) return;
    known_[key_of(label(block.group, block.name, block.tenant))] = block;
}

bool Rank::is_stored(uint32_t group, const Digest &name, const Digest &tenant) const {
    return store->find(label(group, name, tenant));
}

// What is wrong with a value of the block; null: nothing.
const char *Rank::fault_of(const RankBlock &block, const std::vector<uint8_t> &bytes) const {
    const RankPart held = part(block.group);
    const uint32_t layers = held.layer_end - held.layer_begin;
    const uint32_t heads = held.head_end - held.head_begin;
    const uint32_t tokens = shape_.block_tokens;
    if (bytes.size() < kHeaderBytes || memcmp(bytes.data(), "QUIREBLK", 8) != 0)
        return "it is no block in the canonical form";
    const uint64_t ids = word(bytes, 116);
    const uint64_t planes = up(kHeaderBytes + 4 * ids);
    const uint64_t plane = up(uint64_t{heads} * tokens * 4);
    if (bytes.size() != planes + 2 * layers * plane) return "it has another size";
    if (word(bytes, 32) != block.group || word(bytes, 48) != tokens || word(bytes, 52) != tokens ||
        word(bytes, 56) != block.position || (ids != 0 && ids != tokens))
        return "its header names another block";
    if (word(bytes, 64) != shape_.groups[block.group].layers ||
        word(bytes, 68) != held.layer_begin || word(bytes, 72) != layers ||
        word(bytes, 76) != shape_.heads || word(bytes, 80) != held.head_begin ||
        word(bytes, 84) != heads)
        return "its header names another part";
    if (memcmp(bytes.data() + 128, block.tenant.data(), 32) != 0) return "it is of another tenant";
    if (memcmp(bytes.data() + 160, block.name.data(), 32) != 0) return "it has another name";
    for (uint32_t i = 0; i < tokens; ++i) {
        if (ids != 0 && word(bytes, kHeaderBytes + 4 * i) != block.tokens[i])
            return "it has other token ids";
        for (uint32_t layer = 0; layer < layers; ++layer) {
            for (uint32_t head = 0; head < heads; ++head) {
                const uint64_t k = planes + 2 * layer * plane + 4ull * (head * tokens + i);
                const Content wanted =
                    rank_content(block.tenant_number, block.chain[i], block.group,
                                 held.layer_begin + layer, held.head_begin + head);
                const Content found =
                    static_cast<Content>(word(bytes, k + plane)) << 32 | word(bytes, k);
                if (found != wanted) return "it holds other K or V";
            }
        }
    }
    return nullptr;
}

// Called by the library, so nothing may be thrown.
void Rank::check_value(const quire_store_label &to, const std::vector<uint8_t> &bytes) {
    const auto at = known_.find(key_of(to));
    char text[200];
    if (late_) return;
    if (at == known_.end()) {
        snprintf(text, sizeof text, "rank %u puts a value under a key that no full block has",
                 number);
        late_ = Finding{"rank-label", text};
        return;
    }
    const quire_store_label wanted = label(at->second.group, at->second.name, at->second.tenant);
    const char *fault = memcmp(&to, &wanted, sizeof to) != 0
                            ? "its label is of another tenant or model"
                            : fault_of(at->second, bytes);
    ++values;
    if (fault == nullptr) return;
    snprintf(text, sizeof text, "rank %u puts a value of group %u, position %u: %s", number,
             at->second.group, at->second.position, fault);
    late_ = Finding{"rank-value", text};
}

}  // namespace sim

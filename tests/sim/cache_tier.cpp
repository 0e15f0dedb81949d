// SPDX-License-Identifier: Apache-2.0
//
// cache_tier: a store below the cache (cache_tier.h), and when an item may answer that it loads.
//
// The model names every full block that it computes as docs/tiers.md says. So it knows what each
// value in the store must hold, bit by bit, and how long a run the store has of an item's tokens.
// When a load ends it does not know: the store decides that, and the library reads it when it is
// called. Bounds are checked instead: of what is found, of the deadline, of the counts.
#include "cache_tier.hpp"

#include <algorithm>
#include <initializer_list>

#include "clock.hpp"
#include "device.hpp"
#include "items.hpp"

namespace sim {
namespace {

Digest fingerprint_of(uint32_t epoch, uint32_t number) {
    Digest digest{};
    for (size_t i = 0; i < 32; ++i)
        digest[i] = static_cast<uint8_t>(mix(mix(epoch, number), 0xF1) >> 8 * (i % 8));
    return digest;
}

}  // namespace

// The planted engine keeps its fingerprint when its weights have changed.
Digest World::tier_print(uint32_t epoch, uint32_t number) const {
    return fingerprint_of(tier_->same_weights ? 1 : epoch, number);
}

bool World::has_tier() const { return tier_ && tier_->attached; }

bool World::tier_is_dead() const { return has_tier() && (tier_->dead || tier_->leaving); }

uint64_t World::now_ns() const { return clock_watch.now_ns; }

// The name of the tenant: zeros for the default one. False: it is unnamed.
bool World::tenant_digest(const Sequence &seq, Digest &digest) {
    digest = {};
    const Namespace &space = *find_namespace(seq.ns);
    if (space.id == 0) return true;
    if (space.key == 0) return false;
    Hashed key;
    key.word(space.key);
    key.word(space.key);
    digest = key.end();
    return true;
}

Digest World::first_name(const Sequence &seq, const Digest &print, const Digest &tenant) const {
    Hashed name;
    const char magic[16] = "quire tier 1";
    name.bytes.assign(magic, magic + 16);
    name.digest(print);
    name.digest(tenant);
    name.word(config.block_tokens);
    const uint32_t keys = (seq.adapter != 0) + (seq.salt != 0);
    name.word(1 + 6 * keys);
    name.word(keys);
    if (seq.adapter != 0) name.key(QUIRE_KEY_ADAPTER, seq.adapter);
    if (seq.salt != 0) name.key(QUIRE_KEY_SALT, seq.salt);
    return name.end();
}

// `tokens` are at the places from `begin` on.
Digest World::next_name(const Sequence &seq, const Digest &before, uint32_t begin,
                        const uint32_t *tokens) const {
    Hashed name;
    name.digest(before);
    for (const Span &span : seq.spans) {
        if (span.end <= begin || span.begin >= begin + config.block_tokens) continue;
        name.word(span.begin);
        name.word(span.end);
        name.word(6);
        name.key(QUIRE_KEY_MEDIA, span.bytes);
    }
    name.word(0);
    name.word(0);
    for (uint32_t i = 0; i < config.block_tokens; ++i) name.word(tokens[i]);
    return name.end();
}

quire_store_label World::value_label(const Digest &name, uint32_t g, const Digest &print,
                                     const Digest &tenant) const {
    const GroupConfig &group = config.groups[g];
    const bool latent = group.kind == QUIRE_GROUP_LATENT;
    Hashed key;
    key.digest(name);
    for (const uint32_t word :
         {g, group.kind, group.window, group.sink, 1u, config.kv_heads(group), latent ? 2u : 1u, 1u,
          static_cast<uint32_t>(QUIRE_DTYPE_F32), static_cast<uint32_t>(QUIRE_DTYPE_F32), 0u, 0u})
        key.word(word);
    const Digest digest = key.end();
    quire_store_label label{};
    std::copy(digest.begin(), digest.end(), label.key);
    std::copy(print.begin(), print.end(), label.fingerprint);
    std::copy(tenant.begin(), tenant.end(), label.name_space);
    return label;
}

// Names the full blocks of a sequence that may be published, under both fingerprints of this era.
void World::name_blocks(const Sequence &seq, uint32_t end) {
    Digest tenant{};
    if (!config.has(Feature::cache_tier) || !on_device()) return;
    if (!tier_) tier_ = std::make_unique<CacheTier>();
    if (end < config.block_tokens || !tenant_digest(seq, tenant)) return;
    for (uint32_t number = 0; number < 2; ++number) {
        const Digest print = tier_print(epoch_, number);
        Digest name = first_name(seq, print, tenant);
        for (uint32_t p = 0; p + config.block_tokens <= end; p += config.block_tokens) {
            name = next_name(seq, name, p, &seq.tokens[p]);
            for (uint32_t g = 0; g < blocks_.size(); ++g) {
                NamedBlock block;
                block.label = value_label(name, g, print, tenant);
                block.name = name;
                block.group = g;
                block.position = p;
                for (uint32_t i = p; i < p + config.block_tokens; ++i) {
                    block.contents.push_back(seq.content(i));
                    block.tokens.push_back(seq.tokens[i]);
                }
                tier_->names[key_of(block.label)] = std::move(block);
            }
        }
    }
}

// How many tokens of the item's prompt are found, in whole blocks, if the device has the first
// `have`; with `named`, if it has every block that was ever computed. 0: the store adds nothing.
// any: a block counts as found if one group's value is. Where a group has a window it is the
// most that may be found.
uint32_t World::store_run(const Sequence &seq, const PlannedItem &plan, uint32_t have, bool named,
                          bool any) {
    Digest tenant{};
    if (!has_tier() || !tenant_digest(seq, tenant)) return 0;
    std::vector<uint32_t> tokens = seq.tokens;
    std::vector<uint8_t> unknown = seq.unknown;
    tokens.insert(tokens.end(), plan.tokens.begin(), plan.tokens.end() - plan.drafts);
    unknown.insert(unknown.end(), plan.unknown.begin(), plan.unknown.end() - plan.drafts);
    const Digest print = tier_print(tier_->epoch, tier_->fingerprint);
    Digest name = first_name(seq, print, tenant);
    const uint32_t total = seq.known() + static_cast<uint32_t>(plan.tokens.size());
    const auto known =
        static_cast<uint32_t>(std::find(unknown.begin(), unknown.end(), 1) - unknown.begin());
    const uint32_t most = std::min({total - 1, known, plan.most_hits(config.block_tokens)});
    uint32_t found = 0;
    for (uint32_t p = 0; p + config.block_tokens <= most; p += config.block_tokens) {
        name = next_name(seq, name, p, &tokens[p]);
        bool in_store = true;
        bool in_part = false;
        bool on_device = p < have;
        for (uint32_t g = 0; g < blocks_.size(); ++g) {
            const uint32_t kind = config.groups[g].kind;
            if (kind == QUIRE_GROUP_WINDOW || kind == QUIRE_GROUP_CHUNKED) continue;
            const quire_store_label label = value_label(name, g, print, tenant);
            in_store &= tier_->store->find(label);
            in_part |= tier_->store->find(label);
            on_device |= named && tier_->names.count(key_of(label)) != 0;
        }
        in_store |= any && in_part;
        if (!in_store && !on_device) break;
        if (in_store) found = p + config.block_tokens;
    }
    return found;
}

// A value that is put must hold what a dense run would have in that block, in the canonical form.
void World::check_value(const quire_store_label &label, const std::vector<uint8_t> &bytes) {
    const auto at = tier_->names.find(key_of(label));
    ++tally_->tier_values;
    if (at == tier_->names.end())
        return tier_finding("tier-label", "a value is put under a key that no full block has");
    const NamedBlock &block = at->second;
    if (memcmp(&label, &block.label, sizeof label) != 0)
        return tier_finding("tier-label", "a value is put for another tenant or model");
    const auto word = [&](size_t offset) {
        uint32_t value = 0;
        memcpy(&value, bytes.data() + offset, 4);
        return value;
    };
    const GroupConfig &group = config.groups[block.group];
    const uint32_t heads = config.kv_heads(group);
    const bool latent = group.kind == QUIRE_GROUP_LATENT;
    const auto up = [](uint64_t size) { return (size + 63) / 64 * 64; };
    const uint64_t ids = bytes.size() < 256 ? 0 : word(116);
    const uint64_t k_at = up(256 + 4 * ids);
    const uint64_t row = latent ? 2 : 1;
    const uint64_t v_at = k_at + up(heads * config.block_tokens * row * 4);
    const uint64_t size = latent ? v_at : v_at + up(heads * config.block_tokens * 4ull);
    if (bytes.size() != size || memcmp(bytes.data(), "QUIREBLK", 8) != 0)
        return tier_finding("tier-value", "a value is no block in the canonical form");
    if (word(32) != block.group || word(48) != config.block_tokens ||
        word(52) != config.block_tokens || word(56) != block.position || word(76) != heads ||
        word(84) != heads || word(72) != 1 || (ids != 0 && ids != config.block_tokens) ||
        memcmp(bytes.data() + 128, label.name_space, 32) != 0 ||
        memcmp(bytes.data() + 160, block.name.data(), 32) != 0)
        return tier_finding("tier-value", "the header of a value does not fit its block");
    for (uint32_t i = 0; i < config.block_tokens; ++i) {
        if (ids != 0 && word(256 + 4 * i) != block.tokens[i])
            return tier_finding("tier-value", "a value has other token ids");
        for (uint32_t head = 0; head < heads; ++head) {
            const uint64_t slot = head * config.block_tokens + i;
            const uint32_t low = word(k_at + 4 * row * slot);
            const uint32_t high = word(latent ? k_at + 8 * slot + 4 : v_at + 4 * slot);
            if ((static_cast<Content>(high) << 32 | low) != block.contents[i])
                return tier_finding("tier-value", "a value holds other content than its block has");
        }
    }
}

// Found within a callback, from which nothing may be thrown.
void World::tier_finding(const char *promise, const char *text) {
    if (!late_finding_ && !tolerate(promise)) late_finding_ = Finding{promise, text};
}

void World::look_at_tier() {
    if (late_finding_) throw *late_finding_;
    if (!has_tier()) return;
    quire_cache_tier_stats &s = tier_->stats;
    const quire_cache_tier_stats old = s;
    s.struct_size = sizeof s;
    expect(q_->cache_get_tier_stats(cache_, &s, &error_), {QUIRE_OK}, "quire_cache_get_tier_stats");
    const uint64_t *now = &s.loads_begun;
    const uint64_t *then = &old.loads_begun;
    for (size_t i = 0; i < static_cast<size_t>(&s.blocks_evicted - now) + 1; ++i)
        if (now[i] < then[i])
            fail("tier-stats", "count %zu of the tier's statistics fell from %llu to %llu", i,
                 static_cast<unsigned long long>(then[i]), static_cast<unsigned long long>(now[i]));
    const Store::Counts &c = tier_->store->counts;
    const uint64_t done = c.puts_done - tier_->counts.puts_done;
    const uint64_t refused = c.puts_refused - tier_->counts.puts_refused;
    if (s.blocks_written > done || s.blocks_written + s.blocks_known < done)
        fail("tier-stats", "%llu blocks written and %llu known; the store answered DONE to %llu",
             static_cast<unsigned long long>(s.blocks_written),
             static_cast<unsigned long long>(s.blocks_known),
             static_cast<unsigned long long>(done));
    if (refused > s.blocks_refused + s.blocks_dropped)
        fail("tier-stats", "%llu blocks refused, %llu dropped; the store did not keep %llu",
             static_cast<unsigned long long>(s.blocks_refused),
             static_cast<unsigned long long>(s.blocks_dropped),
             static_cast<unsigned long long>(refused));
    const uint64_t ended = s.loads_missed + s.loads_failed + s.loads_late;
    if (s.loads_ready + ended > s.loads_begun || s.loads_used + s.loads_expired > s.loads_ready ||
        s.loads_used + s.loads_expired + s.loads_cancelled + ended > s.loads_begun)
        fail("tier-stats",
             "%llu loads begun, %llu ready, %llu used, %llu expired, %llu cancelled, %llu missed, "
             "failed or late",
             static_cast<unsigned long long>(s.loads_begun),
             static_cast<unsigned long long>(s.loads_ready),
             static_cast<unsigned long long>(s.loads_used),
             static_cast<unsigned long long>(s.loads_expired),
             static_cast<unsigned long long>(s.loads_cancelled),
             static_cast<unsigned long long>(ended));
    if (tier_->dead && c.puts_submitted != tier_->dead_puts)
        fail("tier-dead", "after a reset the tier writes %llu values",
             static_cast<unsigned long long>(c.puts_submitted - tier_->dead_puts));
}

uint64_t World::loads_begun() {
    look_at_tier();
    return has_tier() ? tier_->stats.loads_begun : 0;
}

// A load that is forgotten may have come to nothing before, and its sequence does not ask again.
void World::forget_loads() {
    for (auto &seq : sequences) {
        if (seq->load.live) asked_.insert(seq->id);
        seq->load = {};
    }
    if (!open) return;
    for (Undo &undo : open->undo) undo.before.load = {};
}

}  // namespace sim

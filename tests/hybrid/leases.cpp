// SPDX-License-Identifier: Apache-2.0
//
// leases: what is done to them outside steps.
#include "world.hpp"

namespace hybrid {

std::vector<uint32_t> World::live_leases() const {
    std::vector<uint32_t> live;
    for (uint32_t i = 0; i < leases.size(); ++i)
        if (leases[i].alive) live.push_back(i);
    return live;
}

// True if a step of another queue that used the lease is unfinished.
bool World::lease_busy(const Lease &lease, uint64_t queue) {
    forget_ended();
    for (const Step &step : steps)
        if (!step.finished && step.queue != queue && lease.steps.count(step.id) != 0) return true;
    return false;
}

// True if the step may name the block: its content is there, or will be before the step runs.
bool World::touchable(const LeaseBlock &block, const Step &step) {
    return block.filled_in == 0 || block.filled_in == step.id || block.filled_on == step.queue ||
           !step_unfinished(block.filled_in);
}

void World::create_lease() {
    Lease lease;
    lease.ns = live_namespace();
    lease.key_set = rng.chance(.7) ? uint32_t{no_key} : rng.range(1, 2);
    auto desc = made<quire_lease_desc>();
    desc.ns = namespaces[lease.ns].handle;
    quire_key key{};
    if (lease.key_set != no_key) {
        key.type = lease.key_set == adapter_key ? QUIRE_KEY_ADAPTER : QUIRE_KEY_SALT;
        key.bytes = "abcdefgh";
        key.size_bytes = 8;
        desc.keys = &key;
        desc.key_count = 1;
        desc.key_stride = sizeof key;
    }
    require_ok("lease_create", api->lease_create(cache, &desc, &lease.handle, message()));
    trace("lease_create namespace ", lease.ns, " keys ", lease.key_set, " -> ", hex(lease.handle));
    leases.push_back(lease);
}

void World::use_lease_outside() {
    const auto live = live_leases();
    const uint32_t choice = rng.below(6);
    if (choice < 2 && live.size() < 3) return create_lease();
    if (live.empty()) return;
    Lease &lease = leases[live[rng.below(live.size())]];
    if (choice == 2) {
        const int32_t status = api->lease_end(cache, lease.handle, message());
        trace("lease_end ", hex(lease.handle), " -> ", status);
        require_ok("lease_end", status);
        lease.alive = false;
        lease.blocks.clear();
    }
    if (choice == 3 && !lease.blocks.empty()) forget_leased(lease);
    if (choice == 4) look_without_step(lease);
}

void World::forget_leased(Lease &lease) {
    const auto [group, number] =
        std::next(lease.blocks.begin(), rng.below(lease.blocks.size()))->first;
    uint32_t forgotten = 99;
    const auto before = snapshot();
    const int32_t status =
        api->lease_forget(cache, lease.handle, group, &number, 1, &forgotten, message());
    trace("lease_forget ", hex(lease.handle), " group ", group, " block ", number, " -> ", status,
          " forgotten ", forgotten);
    if (status < 0) {
        const std::string why = error.message;
        unchanged(before, "refused_changed", "forget");
        if (!config.all_forget) fail("forget", status, " ", why);
        return;
    }
    if (forgotten > 1) fail("forgotten", forgotten, " of one block");
    published_exactly = false;
    count(join("forget ", forgotten));
}

// A look without a step must find what was computed, and nothing that a failed step left.
void World::look_without_step(Lease &lease) {
    constexpr uint32_t kTokens = 20;
    const uint32_t stream = rng.below(3);
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < kTokens; ++i) tokens.push_back(stream_token(stream, i));
    execute_all();
    std::vector<int32_t> numbers(kTokens / config.span * config.place_blocks() + 9, -6);
    auto result = made<quire_lease_result>();
    const auto before = snapshot();
    const int32_t status = api->lease_match(cache, 0, lease.handle, tokens.data(), kTokens,
                                            QUIRE_MATCH_LOOK, numbers.data(), &result, message());
    if (status < 0 && !config.all_forget) fail("match0", status, " ", error.message);
    unchanged(before, "look_changed", "match LOOK");
    if (status != 0) return;
    const auto chain = chain_of({namespaces[lease.ns].serial, lease.key_set, 0, 0}, tokens);
    const auto blocks = config.blocks_of_places(result.blocks);
    for (uint32_t at = 0; at < blocks.size(); ++at) {
        if (numbers[at] == 0) continue;
        const auto [group, place] = blocks[at];
        const auto wanted = block_content(config, group, chain, place);
        const Block &found = block(group, numbers[at], "match0");
        for (size_t i = 0; i < wanted.size(); ++i) {
            const Cell &cell = found[i];
            if (cell.marks != 0 ? spoilt(cell.marks, clock + 1) : cell.content != wanted[i])
                fail("match_content", "match without a step: block ", place, " of group ", group,
                     " (kind ", config.groups[group].kind, ") block ", numbers[at], " slot ", i,
                     " holds ", cell.marks != 0 ? "what a failed step left" : "other content");
        }
    }
    count(join("match step 0 found ", result.blocks != 0 ? ">0" : "0"));
}

}  // namespace hybrid

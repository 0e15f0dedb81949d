// SPDX-License-Identifier: Apache-2.0
//
// follower: a cache that applies the logs of the first one's steps must have the same copies,
// tables and counts, and refuse a damaged log.
#include <cstring>

#include "open_step.hpp"

namespace hybrid {

void OpenStep::apply_log() {
    const quire_api *api = world_.api;
    std::vector<char> log(1 << 16);
    uint64_t size = 0;
    world_.require_ok("step_log", api->step_log(world_.cache, step_.handle, log.data(), log.size(),
                                                &size, world_.message()));
    auto desc = made<quire_step_desc>();
    desc.queue_tag = step_.queue;
    if (world_.rng.chance(.1)) {
        const char bit = static_cast<char>(1 << world_.rng.below(8));
        auto damaged = log;
        damaged[world_.rng.below(size)] ^= bit;
        uint64_t handle = 0;
        const int32_t status = api->log_apply(world_.follower, damaged.data(), size, &desc, nullptr,
                                              &handle, world_.message());
        if (status >= 0) fail("log_damaged", "a damaged log was accepted");
        if (status == QUIRE_E_INTERNAL) fail("log_damaged_stop", world_.error.message);
    }
    world_.require_ok("log_apply", api->log_apply(world_.follower, log.data(), size, &desc, nullptr,
                                                  &step_.follower_handle, world_.message()));
    std::vector<quire_block_copy> copies(3000);
    uint32_t count = 0;
    world_.require_ok("copies_f",
                      api->step_copies(world_.follower, step_.follower_handle, copies.data(), 3000,
                                       sizeof copies[0], &count, world_.message()));
    if (count != step_.copies.size() ||
        memcmp(copies.data(), step_.copies.data(), count * sizeof copies[0]) != 0)
        fail("follower_copies", "leader ", step_.copies.size(), " copies, follower ", count);
    for (const Sequence &sequence : world_.sequences)
        if (sequence.alive) compare_follower(sequence);
    world_.count("log applied");
}

void OpenStep::compare_follower(const Sequence &sequence) {
    const auto own = world_.info(sequence.handle);
    auto followed = made<quire_seq_info>();
    if (world_.api->seq_get_info(world_.follower, sequence.handle, &followed, world_.message()) <
        0) {
        world_.count("follower does not know a sequence");
        if (own.blocks_held != 0)
            fail("follower_seq", "the follower lacks a sequence: ", world_.error.message);
        return;
    }
    if (followed.computed_tokens != own.computed_tokens ||
        followed.known_tokens != own.known_tokens)
        fail("follower_info", "computed ", own.computed_tokens, "/", followed.computed_tokens,
             " known ", own.known_tokens, "/", followed.known_tokens);
    for (uint32_t g = 0; g < world_.config.group_count(); ++g)
        if (world_.table(world_.cache, 0, sequence.handle, g) !=
            world_.table(world_.follower, 0, sequence.handle, g))
            fail("follower_table", "sequence ", hex(sequence.handle), " group ", g);
}

}  // namespace hybrid

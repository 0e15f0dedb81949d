// SPDX-License-Identifier: Apache-2.0

#include "core/replica/follower.hpp"

namespace quire {

Status Follower::create(uint64_t geometry_digest, const Geometry &geometry,
                        uint32_t max_sequences) {
    geometry_ = geometry_digest;
    group_count_ = geometry.group_count;
    pool_count_ = geometry.pool_count();
    if (!sequences_.create(max_sequences)) return no_host_memory();
    for (uint32_t p = 0; p < pool_count_; ++p) {
        const GroupGeometry &group = geometry.groups[p];
        if (!refs_[p].create(group.blocks)) return no_host_memory();
        if (!host_refs_[p].create(group.host_blocks)) return no_host_memory();
    }
    active_ = true;
    return Status{};
}

Status Follower::check_header(const LogHeader &header) const {
    if (header.geometry != geometry_) {
        return fail(QUIRE_E_ARG,
                    "foreign log: its leader has other groups, layers, scales, block counts, host "
                    "blocks or max_sequences");
    }
    if (number_ != 0 && header.leader != leader_) {
        return fail(QUIRE_E_ARG,
                    "foreign log: it comes from another leader than the logs before it");
    }
    if (header.number <= number_) {
        return fail(QUIRE_E_ARG, "repeated log: number {} was already applied, the last one was {}",
                    header.number, number_);
    }
    if (header.number != number_ + 1) {
        return fail(QUIRE_E_ARG, "missing log: number {} is next, but this is {}", number_ + 1,
                    header.number);
    }
    return Status{};
}

void Follower::add(bool swapped, uint32_t group, uint32_t id) {
    const uint32_t pool = pool_of(group);
    Array<uint32_t> &refs = swapped ? host_refs_[pool] : refs_[pool];
    if (refs[id]++ == 0) ++(swapped ? host_held_ : held_)[pool];
}

void Follower::remove(bool swapped, uint32_t group, uint32_t id) {
    const uint32_t pool = pool_of(group);
    Array<uint32_t> &refs = swapped ? host_refs_[pool] : refs_[pool];
    if (--refs[id] == 0) --(swapped ? host_held_ : held_)[pool];
}

void Follower::count(const SequenceChange &change) {
    bool was = change.before.swapped(), is = change.after.swapped();
    sum_ += digest_change(change, group_count_);
    walk_entries(
        change, group_count_, [&](uint32_t g, uint32_t, uint32_t id) { remove(was, g, id); },
        [&](uint32_t g, uint32_t, uint32_t id) { add(is, g, id); });
}

void Follower::uncount(const SequenceChange &change) {
    bool was = change.before.swapped(), is = change.after.swapped();
    sum_ -= digest_change(change, group_count_);
    walk_entries(
        change, group_count_, [&](uint32_t g, uint32_t, uint32_t id) { add(was, g, id); },
        [&](uint32_t g, uint32_t, uint32_t id) { remove(is, g, id); });
}

uint64_t Follower::digest() const { return digest_state(sum_, held_, host_held_, group_count_); }

void Follower::applied(const LogHeader &header) {
    leader_ = header.leader;
    number_ = header.number;
}

}  // namespace quire

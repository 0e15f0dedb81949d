// SPDX-License-Identifier: Apache-2.0
//
// lead_index: the linked nodes of the prefix tree by their parent and their first tokens, for hits
// that end within a block.
//
// A chain holds the nodes of one bucket, the last one added first.
//
// Invariants: (1) a node is on the chain of its hash, once, or on none; (2) the neighbours of a
// node on a chain name it.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/block_pool.hpp"

namespace quire {

class LeadIndex {
 public:
    explicit LeadIndex(const HostAllocator *host) : buckets_(host), links_(host) {}

    // Makes room for this many nodes. Hashes stay, chains become empty. False: no memory, and
    // nothing changed.
    [[nodiscard]] bool reserve(uint32_t node_capacity) {
        Array<uint32_t> buckets(buckets_.host());
        Array<Link> links(buckets_.host());
        if (!buckets.create(next_power_of_two(node_capacity)) || !links.create(node_capacity))
            return false;
        for (uint32_t &bucket : buckets) bucket = kNone;
        for (uint64_t i = 0; i < links_.size(); ++i) links[i].hash = links_[i].hash;
        buckets_.swap(buckets);
        links_.swap(links);
        return true;
    }
    bool is_open() const { return links_.size() != 0; }

    // The hash of the node's parent and first tokens. REQUIRES: it is on no chain.
    void name(uint32_t node, uint64_t hash) { links_[node].hash = hash; }
    void add(uint32_t node) {
        uint32_t *head = &bucket(links_[node].hash);
        links_[node].prev = kNone;
        links_[node].next = *head;
        if (*head != kNone) links_[*head].prev = node;
        *head = node;
    }
    void remove(uint32_t node) {
        const Link link = links_[node];
        (link.prev != kNone ? links_[link.prev].next : bucket(link.hash)) = link.next;
        if (link.next != kNone) links_[link.next].prev = link.prev;
    }
    // Nodes with this hash, and others of its bucket; kNone: no more.
    uint32_t first(uint64_t hash) const { return buckets_[hash & (buckets_.size() - 1)]; }
    uint32_t next(uint32_t node) const { return links_[node].next; }
    // True if the chain of the node's hash has it.
    bool has(uint32_t node) const {
        const Link link = links_[node];
        return (link.prev != kNone ? links_[link.prev].next : first(link.hash)) == node &&
               (link.next == kNone || links_[link.next].prev == node);
    }

 private:
    struct Link {
        uint64_t hash = 0;
        uint32_t prev = kNone;
        uint32_t next = kNone;
    };

    uint32_t &bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

    Array<uint32_t> buckets_;
    Array<Link> links_;
};

}  // namespace quire

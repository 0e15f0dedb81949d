// SPDX-License-Identifier: Apache-2.0
//
// Cached content by scope: what is forgotten with a namespace, and what gives way when the
// namespace's keys take too much host memory.

#include "core/blocks/journal.hpp"

namespace quire {

// REQUIRES: the caller shares the scope.
void Journal::forget_nodes(uint32_t scope) {
    const Scopes &scopes = tree_.scopes();
    while (scopes.first_node(scope) != kNone) {
        const uint32_t node = scopes.first_node(scope);
        leases_only() ? forget_block(node) : void(forget(node));
    }
}

void Journal::forget_account(uint32_t account) {
    Scopes &scopes = tree_.scopes();
    while (scopes.oldest_idle(account) != kNone) {
        uint32_t scope = scopes.oldest_idle(account);
        scopes.share(scope);
        forget_nodes(scope);
        scopes.release(scope);
        QUIRE_ASSERT(scopes.oldest_idle(account) != scope);
    }
    QUIRE_ASSERT(scopes.used_bytes(account) == 0);
}

bool Journal::is_unused_scope(uint32_t scope) const {
    uint32_t node = tree_.scopes().first_node(scope);
    if (leases_only()) {
        const BlockPool &pool = *pools_[0];
        while (node != kNone && pool[node].state == BlockState::cached)
            node = block_tree_.next_of(node);
        return node == kNone;
    }
    while (node != kNone && is_unused(node)) node = tree_.next_of_scope(node);
    return node == kNone;
}

bool Journal::trim_account(uint32_t account) {
    Scopes &scopes = tree_.scopes();
    if (scopes.used_bytes(account) <= scopes.limit_bytes(account)) [[likely]]
        return true;
    uint64_t over = scopes.used_bytes(account) - scopes.limit_bytes(account), found = 0;
    uint32_t end = scopes.oldest_idle(account);
    for (; end != kNone && found < over; end = scopes.next_idle(end)) {
        if (is_unused_scope(end)) found += scopes.mark_leaving(end);
    }
    uint32_t scope = scopes.oldest_idle(account);
    if (scope != kNone) scopes.share(scope);
    while (scope != kNone && scope != end) {
        // Forgetting a node may free others above it, and a scope goes with its last node.
        uint32_t next = scopes.next_idle(scope);
        if (next != kNone) scopes.share(next);
        if (scopes.is_leaving(scope)) {
            scopes.unmark_leaving(scope);
            if (found >= over) forget_nodes(scope);
        }
        scopes.release(scope);
        scope = next;
    }
    if (scope != kNone) scopes.release(scope);
    return found >= over;
}

}  // namespace quire

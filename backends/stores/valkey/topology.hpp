// SPDX-License-Identifier: Apache-2.0
//
// topology: which node owns which of the 16,384 slots, as a node of the cluster said.
//
// Threads: none; a lane's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "valkey/address.hpp"

struct redisReply;

namespace quire::valkey {

constexpr uint32_t kSlotCount = 16'384;

// The slot of a key without braces: its CRC16 (XMODEM), modulo the number of slots.
uint16_t slot_of(std::string_view key);

// "MOVED 3999 127.0.0.1:6381" or "ASK 3999 127.0.0.1:6381". An empty host is that of the node that
// said it.
struct Redirect {
    bool is_ask = false;
    uint16_t slot = 0;
    Address address;
};
bool read_redirect(std::string_view text, Redirect *out);

class Topology {
 public:
    // Takes the reply to CLUSTER SLOTS from the node at `asked`. NULL, or in words why not: it is
    // not such a reply, or names no owner; then nothing changed.
    const char *read(const redisReply &reply, const Address &asked);
    // A server that is no cluster owns all slots.
    void set_single(const Address &address);
    // A node says where the slot is. False: too many new addresses were named so.
    bool move(uint16_t slot, const Address &address);

    // The numeric address of a node that redirects may name by its host's name; NULL: not known.
    const Address *address_of(const Address &named) const;

    bool is_known() const { return !primaries_.empty(); }
    // NULL: no node owns the slot.
    const Address *owner(uint16_t slot) const;
    const std::vector<Address> &primaries() const { return primaries_; }
    // Primaries and replicas.
    const std::vector<Address> &nodes() const { return nodes_; }

 private:
    static constexpr uint16_t kUnowned = UINT16_MAX;
    static constexpr uint32_t kMostMoves = 1'024;  // to new addresses, until the next read()
    void note_names(const redisReply &node, const Address &address);
    void note_name(std::string_view host, const Address &address);

    std::vector<Address> primaries_;
    std::vector<Address> nodes_;
    uint32_t move_count_ = 0;
    // By name and port; port 0: several nodes have both.
    std::map<Address, Address> named_;
    std::vector<uint16_t> owners_ = std::vector<uint16_t>(kSlotCount, kUnowned);
};

}  // namespace quire::valkey

// SPDX-License-Identifier: Apache-2.0

#include "valkey/topology.hpp"

#include <hiredis.h>

#include <algorithm>
#include <charconv>

namespace quire::valkey {

namespace {

std::string_view text_of(const redisReply *reply) {
    return reply->str == nullptr ? std::string_view() : std::string_view(reply->str, reply->len);
}

// Metadata of a node: names and texts by turns. Where nodes are announced by name, "ip" is there.
std::string_view announced(const redisReply &node, std::string_view what) {
    if (node.elements < 4) return {};
    const redisReply &more = *node.element[3];
    for (size_t i = 0; i + 1 < more.elements; i += 2) {
        if (text_of(more.element[i]) == what) return text_of(more.element[i + 1]);
    }
    return {};
}

// False: the cluster does not know where the node is, or tells a name only.
bool read_node(const redisReply &node, const Address &asked, Address *out) {
    if (node.type != REDIS_REPLY_ARRAY || node.elements < 2) return false;
    const long long port = node.element[1]->integer;
    if (node.element[1]->type != REDIS_REPLY_INTEGER || port < 1 || port > UINT16_MAX) return false;
    std::string host(text_of(node.element[0]));
    if (host.empty()) host = asked.host;
    if (!is_numeric(host)) host = announced(node, "ip");
    if (!is_numeric(host)) return false;
    *out = {host, static_cast<uint16_t>(port)};
    return true;
}

// Where each address is in a list: a hostile node may tell very many.
using Places = std::map<Address, uint16_t>;

uint16_t place_in(Places *places, const Address &address, std::vector<Address> *addresses) {
    const auto [at, is_new] =
        places->try_emplace(address, static_cast<uint16_t>(addresses->size()));
    if (is_new) addresses->push_back(address);
    return at->second;
}

bool is_named(const redisReply &node) {
    return node.type == REDIS_REPLY_ARRAY && node.elements >= 2 &&
           !text_of(node.element[0]).empty();
}

bool read_range(const redisReply &range, uint32_t *first, uint32_t *last) {
    if (range.type != REDIS_REPLY_ARRAY || range.elements < 3) return false;
    for (int i = 0; i < 2; ++i) {
        const redisReply &slot = *range.element[i];
        if (slot.type != REDIS_REPLY_INTEGER || slot.integer < 0) return false;
        if (slot.integer >= kSlotCount) return false;
        *(i == 0 ? first : last) = static_cast<uint32_t>(slot.integer);
    }
    return *first <= *last;
}

}  // namespace

uint16_t slot_of(std::string_view key) {
    uint32_t crc = 0;
    for (unsigned char byte : key) {
        crc ^= static_cast<uint32_t>(byte) << 8;
        for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ ((crc & 0x8000) != 0 ? 0x1021 : 0);
        crc &= 0xFFFF;
    }
    return static_cast<uint16_t>(crc % kSlotCount);
}

bool read_redirect(std::string_view text, Redirect *out) {
    out->is_ask = text.starts_with("ASK ");
    if (!out->is_ask && !text.starts_with("MOVED ")) return false;
    text.remove_prefix(text.find(' ') + 1);
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return false;
    const char *end = text.data() + space;
    if (std::from_chars(text.data(), end, out->slot).ptr != end) return false;
    return out->slot < kSlotCount && read_address(text.substr(space + 1), &out->address);
}

void Topology::note_names(const redisReply &node, const Address &address) {
    note_name(text_of(node.element[0]), address);
    note_name(announced(node, "hostname"), address);
}

void Topology::note_name(std::string_view host, const Address &address) {
    const bool is_name = !host.empty() && host != "?" && !is_numeric(std::string(host));
    if (!is_name || named_.size() == kSlotCount) return;
    const auto [at, is_new] = named_.try_emplace({std::string(host), address.port}, address);
    if (!is_new && at->second != address) at->second.port = 0;
}

const Address *Topology::address_of(const Address &named) const {
    const auto at = named_.find(named);
    return at == named_.end() || at->second.port == 0 ? nullptr : &at->second;
}

const char *Topology::read(const redisReply &reply, const Address &asked) {
    constexpr const char *kNotSlots = "its answer to CLUSTER SLOTS tells no slots";
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements > kSlotCount) return kNotSlots;
    Topology read;
    Places nodes, primaries;
    bool has_names = false;
    for (size_t i = 0; i < reply.elements; ++i) {
        const redisReply &range = *reply.element[i];
        uint32_t first = 0, last = 0;
        if (!read_range(range, &first, &last)) return kNotSlots;
        for (size_t j = 2; j < range.elements; ++j) {
            Address address;
            if (!read_node(*range.element[j], asked, &address)) {
                has_names |= is_named(*range.element[j]);
                continue;
            }
            place_in(&nodes, address, &read.nodes_);
            read.note_names(*range.element[j], address);
            if (read.nodes_.size() > kSlotCount) return kNotSlots;
            if (j != 2) continue;
            const uint16_t owner = place_in(&primaries, address, &read.primaries_);
            std::fill(read.owners_.begin() + first, read.owners_.begin() + last + 1, owner);
        }
    }
    if (!read.is_known()) {
        return has_names ? "it tells the names of its nodes and not their addresses, which a node "
                           "announces by cluster-announce-ip"
                         : "it knows no slots";
    }
    *this = std::move(read);
    return nullptr;
}

void Topology::set_single(const Address &address) {
    primaries_ = nodes_ = {address};
    move_count_ = 0;
    named_.clear();
    std::fill(owners_.begin(), owners_.end(), uint16_t{0});
}

bool Topology::move(uint16_t slot, const Address &address) {
    auto has = [&address](const std::vector<Address> &some) {
        return std::find(some.begin(), some.end(), address) != some.end();
    };
    if (!has(primaries_)) {
        if (move_count_ == kMostMoves) return false;
        ++move_count_;
        if (!has(nodes_)) nodes_.push_back(address);
        primaries_.push_back(address);
    }
    const auto at = std::find(primaries_.begin(), primaries_.end(), address);
    owners_[slot] = static_cast<uint16_t>(at - primaries_.begin());
    return true;
}

const Address *Topology::owner(uint16_t slot) const {
    const uint16_t at = owners_[slot];
    return at == kUnowned ? nullptr : &primaries_[at];
}

}  // namespace quire::valkey

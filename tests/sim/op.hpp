// SPDX-License-Identifier: Apache-2.0
//
// op: one operation of a script, as data and as a line of text.
//
// A line is a name and `field=number` pairs in any order; a field that is left out is 0. Sequences,
// steps and namespaces are named by numbers that the script gives when it makes them, so a line
// means the same when other lines are removed. `item` lines collect; the next begin or add takes
// them.
//
// Threads: none; values.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace sim {

constexpr uint32_t kMaxFields = 12;

// name, fields in the order of Op::f
#define SIM_OPS(O)                                                              \
    O(create, "seq ns adapter salt spans priority cross doc")                   \
    O(end, "seq drop_prefix")                                                   \
    O(fork, "seq count child")                                                  \
    O(truncate, "seq count")                                                    \
    O(accept, "seq count")                                                      \
    O(accept_path, "seq pick bad")                                              \
    O(set_tokens, "seq from count bad")                                         \
    O(item, "seq tokens doc max drafts ahead tree unknown bad mask limit load") \
    O(begin, "step queue preempt how")                                          \
    O(add, "bad")                                                               \
    O(drop, "seq capacity")                                                     \
    O(preempt, "seq how")                                                       \
    O(abort, "")                                                                \
    O(commit, "batch")                                                          \
    O(finish, "step failed")                                                    \
    O(ns_create, "ns key quota")                                                \
    O(ns_destroy, "ns")                                                         \
    O(reset, "")                                                                \
    O(migrate, "blocks host room shards layers kind after count wait")          \
    O(probe, "seq doc tokens")                                                  \
    O(refuse, "what kind seq")                                                  \
    O(batch, "batch rows blocks tokens context masks")                          \
    O(advance, "queue count")                                                   \
    O(fault, "shard kind after count every status")                             \
    O(audit, "")                                                                \
    O(check, "")                                                                \
    O(calm, "")                                                                 \
    O(conclude, "")                                                             \
    O(abandon, "queues queue")                                                  \
    O(attach, "write min expiry timeout loads writes print")                    \
    O(detach, "wait")                                                           \
    O(poll, "wait")                                                             \
    O(cancel_load, "seq")                                                       \
    O(store, "how count pick")                                                  \
    O(restart, "kept")                                                          \
    O(elapse, "ms")                                                             \
    O(copies, "count")                                                          \
    O(lease, "lease ns adapter salt")                                           \
    O(unlease, "lease")                                                         \
    O(take, "lease group count")                                                \
    O(give, "lease group pick bad now")                                         \
    O(pin, "lease group pick bad now")                                          \
    O(match, "lease doc tokens how")                                            \
    O(publish, "lease doc places bad pick")                                     \
    O(forget, "lease group pick")                                               \
    O(evict, "group count")                                                     \
    O(find, "lease doc tokens how")                                             \
    O(insert, "lease doc places pick bad cached")                               \
    O(unserved, "what kind")

enum class OpKind : uint8_t {
#define SIM_OP(name, fields) name,
    SIM_OPS(SIM_OP)
#undef SIM_OP
        count
};

// What an item's `bad` field does to it.
enum Bad : uint32_t {
    kBadHandle = 1,
    kBadTwice = 2,
    kBadDrafts = 3,
    kBadOffset = 4,
    kBadLength = 5,
    kBadMask = 6,
    kBadParent = 7,
    kBadRows = 8,
    kBadWords = 9,
    kBadCount = 10,
    kBadReserved = 11
};

struct Op {
    OpKind kind = OpKind::check;
    std::array<uint32_t, kMaxFields> f{};
};

// A document that has another one's tokens up to a place: the number of that one, at this bit, and
// the place.
constexpr uint32_t kLeaves = 1u << 31;
constexpr uint32_t kLeavesShift = 16;
constexpr uint32_t kLeavesAt = 0xFFFF;

const char *op_name(OpKind kind);
std::string to_text(const Op &op);
// Throws std::string with what is wrong.
Op parse_op(const std::string &line);

// "name a=1 b=2": the pairs; fields that `names` does not have are an error.
std::vector<uint64_t> parse_fields(const std::string &line, const std::string &names);

// The rest of its fields are 0.
Op make_op(OpKind kind, std::initializer_list<uint32_t> fields);

}  // namespace sim

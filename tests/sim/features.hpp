// SPDX-License-Identifier: Apache-2.0
//
// features: which parts of the interface a run may use, as one bit each.
//
// Why: each seed leaves some out at random (swarm testing, Groce et al., ISSTA 2012), for a mix of
// everything rarely reaches what needs many operations of few kinds; and a known defect is avoided
// by leaving out what leads to it.
//
// Threads: none; values.
#pragma once
#include <cstdint>
#include <string>

namespace sim {

// clang-format off
#define SIM_FEATURES(F) \
    F(fork) F(truncate) F(draft) F(tree) F(ahead) F(unknown) F(swap) F(recompute) \
    F(may_preempt) F(drop) F(add) F(abort) F(fail) F(namespaces) F(quota) F(reset) F(migrate) \
    F(follower) F(batch) F(window) F(chunked) F(latent) F(cross) F(groups) F(keys) F(spans) \
    F(probe) F(refuse) F(host) F(zero) F(queues) F(fail_open) F(finish_open) F(early_accept) \
    F(no_prefix) F(watermark) F(log) F(out_of_order) F(failed_copies) F(chunks) F(end_open) \
    F(priority) F(bits) F(device) F(shards) F(limits) F(faults) \
    F(live) F(lost) F(abandon) F(flood) F(clocks) F(move) F(host_prefixes) F(cache_tier) \
    F(leases) F(any_size) F(one_pool) F(sizes) F(states) F(partial) \
    F(at_once) F(leases_only)
// clang-format on

enum class Feature : uint32_t {
#define SIM_FEATURE(name) name,
    SIM_FEATURES(SIM_FEATURE)
#undef SIM_FEATURE
        count
};

class FeatureSet {
 public:
    bool has(Feature feature) const { return bits_ >> static_cast<uint32_t>(feature) & 1; }
    void set(Feature feature, bool on) {
        const uint64_t bit = 1ull << static_cast<uint32_t>(feature);
        bits_ = on ? bits_ | bit : bits_ & ~bit;
    }
    uint64_t bits() const { return bits_; }
    static FeatureSet from_bits(uint64_t bits) {
        FeatureSet set;
        set.bits_ = bits;
        return set;
    }
    static FeatureSet all() {
        return from_bits((1ull << static_cast<uint32_t>(Feature::count)) - 1);
    }
    // Turns the comma-separated names on or off; false and the name in `unknown` if one is none.
    bool apply(const std::string &names, bool on, std::string &unknown);
    static std::string names();

 private:
    uint64_t bits_ = 0;
};

}  // namespace sim

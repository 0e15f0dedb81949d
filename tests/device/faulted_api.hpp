// SPDX-License-Identifier: Apache-2.0
//
// faulted_api: the library's table with a fault in every call. A call is made with its first
// allocation (or device operation) failing, then its second, and so on, until it makes fewer of
// them and succeeds; each failure must be an error that leaves the caches as they were.
//
// The headers allow two other results. step_commit and log_apply may lose the step, or the
// follower, with QUIRE_E_DEVICE_LOST: their caller starts over, and the next call continues with
// the next fault. A call may also do without what it was refused: then it succeeded.
//
// Threads: one.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "cpu_cache.hpp"
#include "failing.hpp"
#include "tests/abi/counting_host.hpp"
#include "tests/whole_state.hpp"

namespace quire::test {

enum class FaultKind { host_memory, device_lost, device_memory };

struct FaultCount {
    uint64_t calls = 0;     // that succeeded in the end
    uint64_t refused = 0;   // faults that were answered with an error
    uint64_t absorbed = 0;  // faults that the call did without
    uint64_t next = 0;      // the fault to continue with after one that lost the step
};

class Faults {
 public:
    using PlantCall = decltype(&quire_failing_plant_call);
    using Answer = decltype(&quire_failing_answer);

    // looks: after a refused call the caches' whole dumps are compared. For this, the caches are
    // made to notice before each call what has run, so fewer calls meet a fault while noticing it
    // themselves.
    Faults(FaultKind kind, uint64_t first, bool looks, PlantCall plant, Answer answer)
        : kind_(kind), first_(first), looks_(looks), plant_(plant) {
        answer(kind == FaultKind::device_memory ? QUIRE_E_DEVICE_MEMORY : QUIRE_E_DEVICE_LOST);
    }

    CountingHost host;
    std::map<std::string, FaultCount> counts;
    std::set<quire_cache *> caches;
    std::set<quire_queue *> queues;
    std::map<quire_cache *, quire_queue *> queue_of;  // one queue of each cache's device
    std::function<void()> begin_try;                  // called before each try of a call

    quire_status run(const char *name, const std::function<quire_status()> &call) {
        FaultCount &count = counts[name];
        for (uint64_t n = count.next != 0 ? count.next : first_;; ++n) {
            settle();
            std::string before = state();
            if (begin_try) begin_try();
            arm(n);
            quire_status status = call();
            bool reached = disarm();
            if (status >= 0 || !reached) {
                EXPECT_TRUE(status >= 0 || status == QUIRE_E_UNSUPPORTED) << name << ": " << status;
                ++count.calls;
                count.absorbed += reached;
                count.next = 0;
                return status;
            }
            ++count.refused;
            expect_refusal(name, status);
            if (loses_step(name, status)) {
                count.next = n + 1;
                return status;
            }
            EXPECT_EQ(difference(before, state()), "") << name << ", fault " << n;
            if (n == kMost) {
                ADD_FAILURE() << name << ": still failing after " << kMost << " faults";
                return status;
            }
        }
    }

    // The state of all caches that a refused call must not change: their counts and whole dumps.
    std::string state();

 private:
    static constexpr uint64_t kMost = 2000;

    void arm(uint64_t n) {
        if (kind_ == FaultKind::host_memory) {
            host.fail_at = host.calls + n;
        } else {
            plant_(static_cast<uint32_t>(n));
        }
    }
    // True if the fault was reached.
    bool disarm() {
        if (kind_ != FaultKind::host_memory) return plant_(0) == 0;
        bool reached = host.calls >= host.fail_at;
        host.fail_at = UINT64_MAX;
        return reached;
    }
    bool loses_step(const std::string &name, quire_status status) const {
        return status == QUIRE_E_DEVICE_LOST && (name == "step_commit" || name == "log_apply");
    }
    void expect_refusal(const char *name, quire_status status) const {
        std::set<quire_status> allowed = {QUIRE_E_HOST_MEMORY};
        if (kind_ != FaultKind::host_memory) allowed = {QUIRE_E_DEVICE_LOST};
        if (kind_ == FaultKind::device_memory) allowed.insert(QUIRE_E_DEVICE_MEMORY);
        EXPECT_EQ(allowed.count(status), 1u) << name << " returned " << status;
    }
    // Waits for the devices' own threads, so that their work meets no fault.
    void settle() {
        for (quire_queue *queue : queues) EXPECT_EQ(library().queue_sync(queue, nullptr), QUIRE_OK);
        if (looks_) notice();
    }
    // Lets the caches notice what has run, as any call may, refused or not: begins and aborts a
    // step if none is open. A follower cannot do this, see state().
    void notice() {
        for (quire_cache *cache : caches) {
            auto desc = described<quire_step_desc>();
            quire_queue *const queue = queue_of[cache];
            desc.queues = &queue;
            desc.queue_count = 1;
            quire_step step = 0;
            if (library().step_begin(cache, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step,
                                     nullptr) == QUIRE_OK) {
                EXPECT_EQ(library().step_abort(cache, step, nullptr), QUIRE_OK);
            }
        }
    }

    FaultKind kind_;
    uint64_t first_;
    bool looks_;
    PlantCall plant_;
};

// A follower's state without the finished steps, which its next call may notice.
inline std::string but_for_noticing(const std::string &state) {
    if (!says(state, "{\"record\":\"follower\"")) return state;
    std::istringstream lines(without(state, "cache", "oldest_step"));
    std::set<std::string> ended;
    std::string out;
    for (std::string record; std::getline(lines, record);) {
        if (is_record(record, "step") && says(record, "\"phase\":\"finished\""))
            ended.insert(field(record, "step"));
        if (ended.count(field(record, "step")) == 0) out += record + "\n";
    }
    return out;
}

inline std::string Faults::state() {
    const quire_api &api = library();
    quire_error error{};
    error.struct_size = sizeof error;
    std::string out;
    for (quire_cache *cache : caches) {
        EXPECT_GE(api.cache_check(cache, &error), 0) << error.message;
        auto stats = described<quire_cache_stats>();
        EXPECT_EQ(api.cache_get_stats(cache, &stats, &error), QUIRE_OK) << error.message;
        stats.bytes_hashed = stats.bytes_compared = 0;  // a refused call counts its work too
        const auto *bytes = reinterpret_cast<const unsigned char *>(&stats);
        for (size_t i = 0; i < sizeof stats; ++i) out += std::to_string(bytes[i]) + " ";
        if (looks_) out += "\n" + but_for_noticing(refused_state(whole_state(api, cache)));
    }
    return out;
}

inline Faults *g_faults = nullptr;

template <auto Slot>
struct Faulted;
template <typename... Arguments, quire_status (*quire_api::*Slot)(Arguments...)>
struct Faulted<Slot> {
    static inline const char *name = nullptr;
    static quire_status call(Arguments... arguments) {
        return g_faults->run(name, [&] { return (library().*Slot)(arguments...); });
    }
};

// The library's table with each call going through g_faults.
inline quire_api faulted_api() {
    quire_api api = library();
#define QUIRE_FAULTED(slot, parameters)      \
    Faulted<&quire_api::slot>::name = #slot; \
    api.slot = Faulted<&quire_api::slot>::call;
    QUIRE_API_LIST(QUIRE_FAULTED)
#undef QUIRE_FAULTED
    return api;
}

// These leak memory on purpose and have a test of their own (abandon_test.cpp).
inline const std::set<std::string> kLeaks = {"cache_abandon", "device_abandon", "queue_abandon"};

// Entry points of the table that were not called. Tiers ask neither the host's allocator nor a
// device for anything (tier_test.cpp). Calls on a tier below a cache need a store, and have tests
// with one (tests/tiers).
inline std::set<std::string> not_called(const Faults &faults) {
    std::set<std::string> names;
#define QUIRE_NAME(slot, parameters) names.insert(#slot);
    QUIRE_API_LIST(QUIRE_NAME)
#undef QUIRE_NAME
    for (const auto &[name, count] : faults.counts) names.erase(name);
    std::erase_if(names, [](const std::string &name) {
        return name.starts_with("tier_") || name.ends_with("_tier") || name == "cache_load_wait" ||
               name == "cache_cancel_load" || name == "cache_detach_tier_wait" ||
               name == "cache_get_tier_stats";
    });
    return names;
}

}  // namespace quire::test

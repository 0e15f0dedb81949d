// SPDX-License-Identifier: Apache-2.0
//
// store: a store that answers what a script says, when it says so, through the table of
// plugin/store.h.
//
// Why: a real store answers early and in order. This one keeps requests until serve() ends some of
// them, in any order and with any outcome. It reads the pieces of a put, and writes those of a get,
// only then: "pieces belong to the store until its answer is reaped". After an outcome other than
// DONE it leaves noise in a get's pieces, as the contract allows.
//
// Threads: one per store; the library starts none.
#pragma once
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "quire/plugin/store.h"
#include "rng.hpp"

namespace sim {

// What `store` lines of a script do.
enum StoreHow : uint32_t {
    kStoreServe = 0,     // answers as it should
    kStoreMiss = 1,      // gets: MISS, and the value is gone
    kStoreDamaged = 2,   // gets: DAMAGED, and the value is gone
    kStoreFlip = 3,      // gets: DONE, with one wrong bit; puts keep the value with a wrong bit
    kStoreOther = 4,     // gets: DONE, with another label's value
    kStoreForeign = 5,   // gets: FOREIGN
    kStoreFull = 6,      // puts: FULL
    kStoreFailed = 7,    // all: FAILED
    kStoreCrash = 8,     // all that is under way fails; values are kept
    kStoreWipe = 9,      // the same, and all values are lost
    kStoreEvict = 10,    // drops `count` values, and tells
    kStoreAuto = 11,     // from now on: answers at once, or not
    kStoreMute = 12,     // from now on: does not answer while the library waits, or does
    kStoreSize = 13,     // gets: SIZE
    kStoreUnknown = 14,  // from now on: cannot tell from memory what it has, or can
    kStoreBusy = 15,     // from now on: takes no requests, or does
    kStoreRefuse = 16,   // from now on: refuses each submit with a status, or does not
    kStoreHows = 17
};

class Store {
 public:
    using Key = std::string;  // of 32 bytes
    struct Record {
        quire_store_label label{};
        std::vector<uint8_t> bytes;
    };
    // Answered, and reaped.
    struct Counts {
        uint64_t puts_submitted = 0;
        uint64_t puts_done = 0;
        uint64_t puts_refused = 0;
        uint64_t gets_submitted = 0;
        uint64_t gets_done = 0;
        uint64_t faults = 0;  // answers that are not as they should be
    };

    ~Store();
    // Ends up to `count` requests (0: all) as `how` says; pick 0: in their order. Or changes how
    // the store behaves from now on.
    void act(uint32_t how, uint32_t count, uint32_t pick);
    // It does what it should, at once.
    void be_good();
    bool find(const quire_store_label &label) const;
    // It has to be asked what it has.
    bool is_forgetful() const { return unknown_; }
    // One wait of the library: the store may answer.
    void waited() {
        if (!mute_) serve(kStoreServe, 1, 0);
    }
    size_t waiting() const { return pending_.size() + answers_.size(); }
    Counts counts;
    std::map<Key, Record> records;
    bool has_wrong = false;  // a value was kept with a wrong bit
    std::function<void(const quire_store_label &, const std::vector<uint8_t> &)> on_put;

    static const quire_store_api *table();
    static Store *current();
    // Where the plugin's file lies; empty: no plugin.
    static std::string directory;
    static uint64_t live();

 private:
    friend struct StoreSlots;
    struct Pending {
        quire_store_request request{};
        std::vector<quire_store_piece> pieces;
        bool cancelled = false;
    };
    void serve(uint32_t how, uint32_t count, uint32_t pick);
    void answer(Pending &one, uint32_t how, uint32_t pick);
    uint32_t get(Pending &one, uint32_t how, uint32_t pick, uint64_t &size);
    uint32_t put(Pending &one, uint32_t how, uint32_t pick, uint64_t &size);
    void evict(uint32_t count, uint32_t pick);
    void note(uint32_t outcome, const quire_store_label &label);
    void update();

    std::deque<Pending> pending_;
    std::deque<quire_store_answer> answers_;
    int descriptor_ = -1;
    bool auto_ = true;
    bool mute_ = false;
    bool unknown_ = false;
    bool busy_ = false;
    bool refuse_ = false;
};

inline Store::Key key_of(const quire_store_label &label) {
    return {reinterpret_cast<const char *>(label.key), sizeof label.key};
}

}  // namespace sim

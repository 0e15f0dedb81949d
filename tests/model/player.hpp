// SPDX-License-Identifier: Apache-2.0
//
// player: performs a script's operations on a cache and on the reference, and compares them.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "followed.hpp"
#include "runner.hpp"

namespace quire::model {

constexpr int kSlots = 10;
constexpr int kNamespaces = 3;

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

class Player {
 public:
    Player(const quire_api &api, Tally *tally) : api_(api), tally_(tally) {
        error_.struct_size = sizeof error_;
        auto desc = described<quire_instance_desc>();
        api_.instance_create(&desc, &instance_, &error_);
    }
    ~Player() {
        if (step_ != 0) api_.step_abort(cache_, step_, nullptr);
        for (auto &[number, handle] : committed_) {
            api_.step_finish(cache_, handle, nullptr, QUIRE_STEP_OK, nullptr);
        }
        followed_.reset();
        if (cache_ != nullptr && api_.cache_destroy(cache_, &error_) < 0) std::abort();
        api_.instance_destroy(instance_, nullptr);
    }
    Player(const Player &) = delete;
    Player &operator=(const Player &) = delete;

    std::string run(const Op &op) {
        ++tally_->ops;
        difference_.clear();
        perform(op);
        if (difference_.empty()) compare();
        return difference_;
    }

 private:
    void differ(const std::string &what) {
        if (difference_.empty()) difference_ = what;
    }
    void expect(const char *what, int64_t library, int64_t reference) {
        if (library == reference) return;
        differ(std::string(what) + ": library " + std::to_string(library) + ", reference " +
               std::to_string(reference));
    }
    // Both must refuse, or neither. True if both did the operation.
    bool agree(quire_status status, bool reference) {
        if (status < 0 && reference) differ(std::string("the library refuses: ") + error_.message);
        if (status >= 0 && !reference)
            differ("the library accepts an operation that the reference refuses");
        return status >= 0 && reference;
    }

    void expect_followed(const std::string &wrong) {
        if (!wrong.empty()) differ(wrong);
    }

    void configure(const std::vector<int> &args);
    void perform(const Op &op);
    void perform_in_step(const Op &op);
    void create(const std::vector<int> &args);
    void add(const std::vector<int> &args);
    void drop(int slot);
    void finish(int which, bool failed);
    void take_back();
    void fork(const std::vector<int> &args);
    void accept_path(int slot, int choice);
    void set_tokens(const std::vector<int> &args);
    void probe(const std::vector<int> &args);
    void migrate(int percent, int host_blocks);
    using Tables = std::map<std::pair<int, uint32_t>, std::vector<int32_t>>;  // [slot, group]
    Tables tables();
    void expect_moved(const Tables &before, const std::vector<quire_block_move> &moves);
    // Performs the operation on the reference; while a step is open, records it unless refused.
    template <typename Operation>
    bool on_reference(Operation operation) {
        bool did = operation(reference_[0]);
        if (did && step_ != 0) events_.push_back(Event{false, {}, operation});
        return did;
    }
    void compare();
    void compare_sequence(int slot, std::vector<std::map<int, int>> *names);
    std::vector<uint32_t> tokens(int slot, int content, int count) const;
    int next_index();

    const quire_api &api_;
    Tally *tally_;
    quire_instance *instance_ = nullptr;
    quire_cache *cache_ = nullptr;
    quire_error error_{};
    quire_namespace namespaces_[kNamespaces] = {};
    quire_seq seqs_[kSlots] = {};
    std::set<int> tenants_;     // namespaces that had a sequence
    int indices_[kSlots] = {};  // of live sequences, where the library keeps them
    std::vector<int> free_indices_;
    int used_indices_ = 0;
    quire_step step_ = 0;
    std::map<int64_t, quire_step> committed_;
    std::unique_ptr<Followed> followed_;
    std::vector<Reference> reference_;
    // Operations on the reference since begin. To undo some of them, it returns to begin and
    // repeats what stays: operations on other sequences, and for a drop the items that are kept.
    struct Event {
        bool is_item = false;
        Item item;
        std::function<bool(Reference &)> operation;
    };
    std::vector<Event> events_;
    int64_t queue_ = 0;
    bool may_preempt_ = false;
    int how_ = 0;
    bool preempted_ = false;  // since begin
    bool published_ = false;  // by other calls, since begin
    std::string at_begin_;    // the cache, if this step's abort is held to it; see whole_state.hpp
    uint64_t begins_ = 0;
    bool has_cross_ = false;
    std::vector<int> first_blocks_;  // per group, as configured
    std::string difference_;
};

}  // namespace quire::model

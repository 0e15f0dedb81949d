// SPDX-License-Identifier: Apache-2.0
//
// scene: an open store for tests, with requests that wait for their answer, labels and values.
//
// Threads: one per Session.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "disk/store.hpp"
#include "memory_files.hpp"

namespace quire::disk::tests {

constexpr uint64_t kKiB = 1024;

// Small sizes: a segment of 64 KiB takes 15 records of up to 3,840 bytes.
Options small_options(const std::string &directory = "memory");

// The label with this number; `model` and `tenant` are its fingerprint and name space.
quire_store_label label_of(uint64_t number, uint8_t model = 1, uint8_t tenant = 0);
std::string key_of(const quire_store_label &label);
// Bytes that no other (number, version, size) has.
Bytes value_of(uint64_t number, uint64_t version, uint64_t size_bytes);

// A folder that goes with the object.
class Folder {
 public:
    // `in_memory`: where the system has such a place, for tests that many syncs would make slow.
    explicit Folder(bool in_memory = false);
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    ~Folder();
    const std::string &path() const { return path_; }

 private:
    std::string path_;
};

class Session {
 public:
    // Empty if the store could not be opened; `error` says why.
    static std::unique_ptr<Session> open(const Options &options, quire_error *error);
    static std::unique_ptr<Session> open(const Options &options, std::shared_ptr<Memory> memory,
                                         quire_error *error);
    // Throw std::runtime_error where the store cannot be opened.
    explicit Session(const Options &options);
    Session(const Options &options, std::shared_ptr<Memory> memory,
            std::unique_ptr<DataIo> io = nullptr);

    quire_store_answer put(const quire_store_label &label, const Bytes &value);
    // The value if the outcome is DONE; `size_bytes`: of the pieces.
    std::optional<Bytes> get(const quire_store_label &label, uint64_t size_bytes,
                             quire_store_answer *answer = nullptr);
    // With the size that the store says.
    std::optional<Bytes> get(const quire_store_label &label);
    quire_store_answer ask(uint32_t kind, const quire_store_label &label = {});
    quire_store_answer run(quire_store_request request);

    bool has(const quire_store_label &label);
    std::vector<quire_store_record> list();
    quire_store_stats stats() { return store_->stats(); }
    Store &store() { return *store_; }

    // Reaps what is there; false: nothing was.
    bool reap(std::vector<quire_store_answer> *answers);
    bool wait();  // until something can be reaped; false: it took too long

    std::set<std::string> gone;  // keys, by notices
    bool has_lost = false;

 private:
    explicit Session(std::unique_ptr<Store> store) : store_(std::move(store)) {}

    std::unique_ptr<Store> store_;
    uint64_t next_cookie_ = 1;
};

}  // namespace quire::disk::tests

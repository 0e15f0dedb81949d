// SPDX-License-Identifier: Apache-2.0
//
// subject: the store under test, and what the cases need to use it.
//
// The plugin is opened by path, or by name from the folder QUIRE_PLUGIN_PATH, and used only through
// plugin/store.h. Its options come from the command line; `{dir}` in a value stands for a folder of
// the case's own, so that a store with files begins each case without any.
//
// If a case cannot go on, it throws std::runtime_error; GoogleTest reports it as a failure.
//
// Threads: a Store may be used by several; what it has reaped is each thread's own.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quire/plugin/store.h"

namespace quire::stores {

using Settings = std::vector<std::pair<std::string, std::string>>;

struct Options {
    std::string store = "memory";  // a name, or a path if it contains a slash
    Settings settings;
    uint32_t patience_s = 60;  // longer is a hang
};
Options &options();

// Opens the plugin. Empty, or why it cannot be opened.
std::string load_subject();
// The store's name that the file's name implies; empty if it implies no name.
std::string promised_name();
const quire_store_api &api();
const quire_store_api *table();
quire_store_query_fn query_function();
quire_host_info host_info();

struct Error : quire_error {
    Error() : quire_error{} { struct_size = sizeof(quire_error); }
};
// Throws the store's message unless `status` is QUIRE_OK.
void must(quire_status status, const quire_error &error);
// Expects that the call was refused with this status, and that the error has a message.
void expect_refused(quire_status status, const quire_error &error, quire_status expected);

// Where a case keeps its store: the options, with a folder of its own, which goes with the object.
class Place {
 public:
    explicit Place(Settings more = {});
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;
    ~Place();

    // Opens a store here.
    quire_status try_open(uint32_t flags, quire_store **out, quire_error *error) const;
    const Settings &settings() const { return settings_; }

 private:
    std::string folder_;
    Settings settings_;
};

using Bytes = std::vector<unsigned char>;

// A label with this key, of a model and a tenant. The key's bytes look random, as a digest's do.
quire_store_label label_of(uint64_t key, uint64_t model = 1, uint64_t tenant = 0);
bool same(const quire_store_label &a, const quire_store_label &b);
// A value that tells its label and its size, so that another's bytes show.
Bytes value_of(const quire_store_label &label, uint64_t size_bytes);

// A request with the memory that it reads or fills.
struct Request {
    quire_store_request raw{};
    Bytes bytes;
    std::vector<quire_store_piece> pieces;
};

// An open store, and what was reaped from it.
class Store {
 public:
    explicit Store(const Place &place, uint32_t flags = 0);
    Store(const Store &) = delete;
    Store &operator=(const Store &) = delete;
    ~Store();

    quire_store *get() const { return handle_; }
    quire_store_info info() const;
    quire_store_stats stats() const;
    bool has(uint32_t flag) const { return (info().flags & flag) != 0; }

    // Submits one request and waits for its answer; notices are kept apart.
    quire_store_answer put(const quire_store_label &label, const Bytes &value);
    quire_store_answer get(const quire_store_label &label, uint64_t size_bytes, Bytes *value);
    quire_store_answer ask(uint32_t kind, const quire_store_label &label = {});
    // Submits all, in as many calls as it takes, and waits for all answers, in any order.
    std::vector<quire_store_answer> run(std::vector<Request> &requests);

    uint8_t find(const quire_store_label &label) const;
    std::vector<quire_store_record> list(uint32_t capacity = 7) const;

    // Reaps once, without waiting: answers are returned, notices kept.
    std::vector<quire_store_answer> reap();
    // Waits until the descriptor reports something, or a moment passes where there is no
    // descriptor. False if the patience ends first.
    bool wait() const;

    std::vector<quire_store_label> gone;  // by notices
    bool has_lost = false;                // a notice

    void close();

 private:
    quire_store *handle_ = nullptr;
};

// Requests. `cuts`: sizes of the first pieces; the rest is one more.
Request put_request(uint64_t cookie, const quire_store_label &label, Bytes value,
                    const std::vector<uint64_t> &cuts = {});
Request get_request(uint64_t cookie, const quire_store_label &label, uint64_t size_bytes,
                    const std::vector<uint64_t> &cuts = {});
Request other_request(uint64_t cookie, uint32_t kind, const quire_store_label &label = {});

}  // namespace quire::stores

// SPDX-License-Identifier: Apache-2.0
//
// store: an open store: the slots of its requests, its lanes, and what they share.
//
// Threads: any. open() and close_wait() wait, the others do not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "valkey/books.hpp"
#include "valkey/lane.hpp"
#include "valkey/options.hpp"
#include "valkey/tls.hpp"

namespace quire::valkey {

class Store {
 public:
    // QUIRE_E_OS: no node of the cluster answers as it should. Throws std::bad_alloc.
    static quire_status open(const Options &options, std::unique_ptr<Store> *out,
                             quire_error *error);
    explicit Store(const Options &options);
    // REQUIRES: no request is open.
    ~Store() = default;

    // False: the time ran out, and the store takes no more requests.
    bool close_wait(uint64_t timeout_ns);
    bool is_closing() const;
    const Options &options() const { return options_; }

    // REQUIRES: they were checked. How many were taken; none if it closes. Throws std::bad_alloc if
    // none was.
    uint32_t submit(const quire_store_request *requests, uint32_t count, uint32_t stride);
    uint32_t reap(quire_store_answer *answers, uint32_t capacity, uint32_t stride);
    void cancel(uint64_t cookie);
    void find(const quire_store_label *labels, uint32_t count, uint32_t stride,
              uint8_t *found) const;
    int descriptor() const { return books_.descriptor(); }
    void get_info(quire_store_info *out) const;
    quire_store_stats stats() const;

 private:
    quire_status resolve(quire_error *error);
    quire_status start_lanes(quire_error *error);
    quire_status wait_until_known(quire_error *error);
    void fill(Request *slot, const quire_store_request &request);
    void take(Request *slot);

    const Options options_;
    Tls tls_;
    std::vector<Address> seeds_;  // with numeric addresses
    Books books_;
    std::vector<Request> slots_;
    std::vector<Request *> free_;
    uint64_t last_ticket_ = 0;
    bool is_closing_ = false;
    std::vector<std::unique_ptr<Lane>> lanes_;  // last: they use the others
};

}  // namespace quire::valkey

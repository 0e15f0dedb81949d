// SPDX-License-Identifier: Apache-2.0
//
// store_table: the table of a store plugin in C++, which checks what the caller gives and turns a
// lack of memory into a status.
//
// A Plugin has
//   Store   close_wait, get_info, stats, submit, reap, cancel, descriptor, find, is_closing, and
//           list if kLists; submit takes nothing once close_wait was called
//   kHelp   of quire_store_api
//   open    (const quire_store_desc &, std::unique_ptr<Store> *, quire_error *); the desc's structs
//           and flags are right; may throw std::bad_alloc
//   limits  (const Store &) of its requests
//
// Threads: any.
#pragma once

#include <atomic>
#include <memory>
#include <new>

#include "shared/refusal.hpp"
#include "shared/requests.hpp"

namespace quire {

template <typename Plugin>
class StoreTable {
 public:
    static quire_status query(const quire_host_info *host, const quire_store_api **out,
                              quire_error *error) {
        if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
        if (quire_status status = check_struct(host, sizeof *host, "host", error)) return status;
        if (host->abi_major != kApi.abi_major || host->abi_minor < kApi.min_host_minor) {
            return fail(error, QUIRE_E_INCOMPATIBLE,
                        "the host speaks store ABI %u.%u, this store %u.%u; install the store that "
                        "came with the library",
                        host->abi_major, host->abi_minor, kApi.abi_major, kApi.abi_minor);
        }
        *out = &kApi;
        return QUIRE_OK;
    }

 private:
    using Store = typename Plugin::Store;

    static Store *of(quire_store *store) { return reinterpret_cast<Store *>(store); }

    static quire_status out_of_memory(quire_error *error) {
        return fail(error, QUIRE_E_HOST_MEMORY, "no host memory is left");
    }

    static quire_status check_store(const quire_store *store, quire_error *error) {
        return store != nullptr ? QUIRE_OK : fail(error, QUIRE_E_ARG, "store is NULL");
    }

    static quire_status check_desc(const quire_store_desc *desc, quire_error *error) {
        if (quire_status status = check_struct(desc, sizeof *desc, "desc", error)) return status;
        if ((desc->flags & ~(QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY)) != 0) {
            return fail(error, QUIRE_E_STRUCT, "desc.flags 0x%x contain an unknown flag",
                        desc->flags);
        }
        return check_input_array(desc->options, desc->option_count, desc->option_stride,
                                 sizeof(quire_store_option), "desc.options", error);
    }

    static quire_status open(const quire_store_desc *desc, quire_store **out, quire_error *error) {
        if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
        if (quire_status status = check_desc(desc, error)) return status;
        try {
            std::unique_ptr<Store> made;
            if (quire_status status = Plugin::open(*desc, &made, error)) return status;
            ++live_stores_;
            *out = reinterpret_cast<quire_store *>(made.release());
            return QUIRE_OK;
        } catch (const std::bad_alloc &) {
            return out_of_memory(error);
        }
    }

    static quire_status close_wait(quire_store *store, uint64_t timeout_ns, quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        if (!of(store)->close_wait(timeout_ns)) return QUIRE_S_TIMEOUT;
        delete of(store);
        --live_stores_;
        return QUIRE_OK;
    }

    static quire_status get_info(quire_store *store, quire_store_info *info, quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        if (quire_status status = check_output(info, sizeof *info, "info", error)) return status;
        quire_store_info filled{};
        of(store)->get_info(&filled);
        give(info, filled);
        return QUIRE_OK;
    }

    static quire_status get_stats(quire_store *store, quire_store_stats *stats,
                                  quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        if (quire_status status = check_output(stats, sizeof *stats, "stats", error)) return status;
        give(stats, of(store)->stats());
        return QUIRE_OK;
    }

    static quire_status submit(quire_store *store, const quire_store_request *requests,
                               uint32_t count, uint32_t stride, uint32_t *taken,
                               quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        if (taken == nullptr) return fail(error, QUIRE_E_ARG, "taken is NULL");
        const RequestLimits limits = Plugin::limits(*of(store));
        if (quire_status status = check_requests(limits, requests, count, stride, error))
            return status;
        try {
            *taken = of(store)->submit(requests, count, stride);
            if (*taken != 0 || !of(store)->is_closing()) return QUIRE_OK;
            return fail(error, QUIRE_E_BUSY, "the store is closing and takes no more requests");
        } catch (const std::bad_alloc &) {
            return out_of_memory(error);
        }
    }

    static quire_status reap(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                             uint32_t stride, uint32_t *count, quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        if (count == nullptr) return fail(error, QUIRE_E_ARG, "count is NULL");
        if (quire_status status =
                check_array(answers, capacity, stride, sizeof *answers, "answers", error)) {
            return status;
        }
        *count = of(store)->reap(answers, capacity, stride);
        return QUIRE_OK;
    }

    static quire_status cancel(quire_store *store, uint64_t cookie, quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        try {
            of(store)->cancel(cookie);
            return QUIRE_OK;
        } catch (const std::bad_alloc &) {
            return out_of_memory(error);
        }
    }

    static int32_t descriptor(quire_store *store) {
        return store == nullptr ? -1 : of(store)->descriptor();
    }

    static quire_status find(quire_store *store, const quire_store_label *labels, uint32_t count,
                             uint32_t stride, uint8_t *found, quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        // A label never grows; more bytes of an element are the caller's.
        if (quire_status status =
                check_input_array(labels, count, stride, sizeof *labels, "labels", error)) {
            return status;
        }
        if (found == nullptr && count != 0) return fail(error, QUIRE_E_ARG, "found is NULL");
        of(store)->find(labels, count, stride, found);
        return QUIRE_OK;
    }

    static quire_status list(quire_store *store, uint64_t *cursor, quire_store_record *records,
                             uint32_t capacity, uint32_t stride, uint32_t *count,
                             quire_error *error) {
        if (quire_status status = check_store(store, error)) return status;
        if (cursor == nullptr || count == nullptr) {
            return fail(error, QUIRE_E_ARG, "%s is NULL", cursor == nullptr ? "cursor" : "count");
        }
        if (quire_status status =
                check_array(records, capacity, stride, sizeof *records, "records", error)) {
            return status;
        }
        if constexpr (Plugin::kLists) *count = of(store)->list(cursor, records, capacity, stride);
        return QUIRE_OK;
    }

    static quire_status shutdown(uint64_t *live_objects, quire_error *error) {
        if (live_objects == nullptr) return fail(error, QUIRE_E_ARG, "live_objects is NULL");
        *live_objects = live_stores_;
        return QUIRE_OK;
    }

    static constexpr quire_store_api kApi = {
        .struct_size = sizeof(quire_store_api),
        .abi_major = QUIRE_STORE_ABI_MAJOR,
        .abi_minor = QUIRE_STORE_ABI_MINOR,
        .min_host_minor = QUIRE_STORE_ABI_MINOR,
        .name = kStoreName,
        .version = "0.1.0",
        .help = Plugin::kHelp,
        .open = open,
        .close_wait = close_wait,
        .get_info = get_info,
        .get_stats = get_stats,
        .submit = submit,
        .reap = reap,
        .cancel = cancel,
        .descriptor = descriptor,
        .find = find,
        .list = Plugin::kLists ? list : nullptr,
        .shutdown = shutdown,
    };

    static inline std::atomic<uint64_t> live_stores_{0};
};

}  // namespace quire

// SPDX-License-Identifier: Apache-2.0
//
// plugin: the one exported function, its table, and the checks of arguments.
//
// Threads: any.

#include <atomic>
#include <memory>
#include <new>

#include "shared/refusal.hpp"
#include "shared/requests.hpp"
#include "valkey/store.hpp"

namespace quire {

const char kStoreName[] = "valkey";

}  // namespace quire

struct quire_store {
    std::unique_ptr<quire::valkey::Store> store;
};

namespace quire::valkey {

namespace {

std::atomic<uint64_t> live_stores{0};

quire_status out_of_memory(quire_error *error) {
    return fail(error, QUIRE_E_HOST_MEMORY, "no host memory is left");
}

quire_status check_store(const quire_store *store, quire_error *error) {
    return store != nullptr ? QUIRE_OK : fail(error, QUIRE_E_ARG, "store is NULL");
}

quire_status check_desc(const quire_store_desc *desc, quire_error *error) {
    if (quire_status status = check_struct(desc, sizeof *desc, "desc", error)) return status;
    if ((desc->flags & ~(QUIRE_STORE_OPEN_EXISTING | QUIRE_STORE_OPEN_READ_ONLY)) != 0) {
        return fail(error, QUIRE_E_STRUCT, "desc.flags 0x%x contain an unknown flag", desc->flags);
    }
    return check_input_array(desc->options, desc->option_count, desc->option_stride,
                             sizeof(quire_store_option), "desc.options", error);
}

quire_status open_store(const quire_store_desc *desc, quire_store **out, quire_error *error) {
    if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
    if (quire_status status = check_desc(desc, error)) return status;
    try {
        Options options;
        options.is_read_only = (desc->flags & QUIRE_STORE_OPEN_READ_ONLY) != 0;
        if (quire_status status = read_options(*desc, &options, error)) return status;
        auto made = std::make_unique<quire_store>();
        if (quire_status status = Store::open(options, &made->store, error)) return status;
        ++live_stores;
        *out = made.release();
        return QUIRE_OK;
    } catch (const std::bad_alloc &) {
        return out_of_memory(error);
    }
}

quire_status close_wait(quire_store *store, uint64_t timeout_ns, quire_error *error) {
    if (quire_status status = check_store(store, error)) return status;
    if (!store->store->close_wait(timeout_ns)) return QUIRE_S_TIMEOUT;
    delete store;
    --live_stores;
    return QUIRE_OK;
}

quire_status get_info(quire_store *store, quire_store_info *info, quire_error *error) {
    if (quire_status status = check_store(store, error)) return status;
    if (quire_status status = check_output(info, sizeof *info, "info", error)) return status;
    quire_store_info filled{};
    store->store->get_info(&filled);
    give(info, filled);
    return QUIRE_OK;
}

quire_status get_stats(quire_store *store, quire_store_stats *stats, quire_error *error) {
    if (quire_status status = check_store(store, error)) return status;
    if (quire_status status = check_output(stats, sizeof *stats, "stats", error)) return status;
    give(stats, store->store->stats());
    return QUIRE_OK;
}

quire_status submit(quire_store *store, const quire_store_request *requests, uint32_t count,
                    uint32_t stride, uint32_t *taken, quire_error *error) {
    if (quire_status status = check_store(store, error)) return status;
    if (taken == nullptr) return fail(error, QUIRE_E_ARG, "taken is NULL");
    const Options &options = store->store->options();
    const RequestLimits limits = {options.max_value_bytes, options.is_read_only, false};
    if (quire_status status = check_requests(limits, requests, count, stride, error)) return status;
    if (store->store->is_closing()) {
        return fail(error, QUIRE_E_BUSY, "the store is closing and takes no more requests");
    }
    try {
        *taken = store->store->submit(requests, count, stride);
        return QUIRE_OK;
    } catch (const std::bad_alloc &) {
        return out_of_memory(error);
    }
}

quire_status reap(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                  uint32_t stride, uint32_t *count, quire_error *error) {
    if (quire_status status = check_store(store, error)) return status;
    if (count == nullptr) return fail(error, QUIRE_E_ARG, "count is NULL");
    if (quire_status status =
            check_array(answers, capacity, stride, sizeof *answers, "answers", error)) {
        return status;
    }
    *count = store->store->reap(answers, capacity, stride);
    return QUIRE_OK;
}

quire_status cancel(quire_store *store, uint64_t cookie, quire_error *error) {
    if (quire_status status = check_store(store, error)) return status;
    store->store->cancel(cookie);
    return QUIRE_OK;
}

int32_t descriptor(quire_store *store) {
    return store == nullptr ? -1 : store->store->descriptor();
}

quire_status find(quire_store *store, const quire_store_label *labels, uint32_t count,
                  uint32_t stride, uint8_t *found, quire_error *error) {
    if (quire_status status = check_store(store, error)) return status;
    // A label never grows; more bytes of an element are the caller's.
    if (quire_status status =
            check_input_array(labels, count, stride, sizeof *labels, "labels", error)) {
        return status;
    }
    if (found == nullptr && count != 0) return fail(error, QUIRE_E_ARG, "found is NULL");
    store->store->find(labels, count, stride, found);
    return QUIRE_OK;
}

quire_status shutdown(uint64_t *live_objects, quire_error *error) {
    if (live_objects == nullptr) return fail(error, QUIRE_E_ARG, "live_objects is NULL");
    *live_objects = live_stores;
    return QUIRE_OK;
}

constexpr quire_store_api kApi = {
    .struct_size = sizeof(quire_store_api),
    .abi_major = QUIRE_STORE_ABI_MAJOR,
    .abi_minor = QUIRE_STORE_ABI_MINOR,
    .min_host_minor = QUIRE_STORE_ABI_MINOR,
    .name = kStoreName,
    .version = "0.1.0",
    .help = kHelp,
    .open = open_store,
    .close_wait = close_wait,
    .get_info = get_info,
    .get_stats = get_stats,
    .submit = submit,
    .reap = reap,
    .cancel = cancel,
    .descriptor = descriptor,
    .find = find,
    .list = nullptr,
    .shutdown = shutdown,
};

}  // namespace

}  // namespace quire::valkey

quire_status quire_store_query_v0(const quire_host_info *host, const quire_store_api **out,
                                  quire_error *error) {
    using namespace quire;
    if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
    if (quire_status status = check_struct(host, sizeof *host, "host", error)) return status;
    if (host->abi_major != valkey::kApi.abi_major ||
        host->abi_minor < valkey::kApi.min_host_minor) {
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "the host speaks store ABI %u.%u, this store %u.%u; install the store that "
                    "came with the library",
                    host->abi_major, host->abi_minor, valkey::kApi.abi_major,
                    valkey::kApi.abi_minor);
    }
    *out = &valkey::kApi;
    return QUIRE_OK;
}

// SPDX-License-Identifier: Apache-2.0
//
// store: see store.hpp.
#include "store.hpp"

#include <sys/eventfd.h>
#include <unistd.h>
#include <algorithm>

namespace sim {
namespace {

constexpr uint32_t kMaxRequests = 24;  // few, so that the library meets the limit
constexpr uint64_t kMaxValue = 1 << 20;
constexpr size_t kMaxRecords = 4000;

thread_local Store *current_store = nullptr;
thread_local uint64_t live_stores = 0;

bool same(const quire_store_label &a, const quire_store_label &b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

std::string Store::directory;

Store::~Store() {
    if (descriptor_ >= 0) close(descriptor_);
}

Store *Store::current() { return current_store; }
uint64_t Store::live() { return live_stores; }

bool Store::find(const quire_store_label &label) const {
    const auto at = records.find(key_of(label));
    return at != records.end() && same(at->second.label, label);
}

void Store::be_good() {
    mute_ = unknown_ = busy_ = refuse_ = false;
    auto_ = true;
    serve(kStoreServe, 0, 0);
}

void Store::act(uint32_t how, uint32_t count, uint32_t pick) {
    switch (how) {
        case kStoreCrash:
        case kStoreWipe:
            serve(kStoreFailed, 0, pick);
            if (how == kStoreCrash) return;
            records.clear();
            has_wrong = false;
            return note(QUIRE_STORE_NOTICE_LOST, {});
        case kStoreEvict:
            return evict(count, pick);
        case kStoreAuto:
            auto_ = count != 0;
            return;
        case kStoreMute:
            mute_ = count != 0;
            return;
        case kStoreUnknown:
            unknown_ = count != 0;
            return;
        case kStoreBusy:
            busy_ = count != 0;
            return;
        case kStoreRefuse:
            refuse_ = count != 0;
            return;
        default:
            serve(how, count, pick);
    }
}

void Store::serve(uint32_t how, uint32_t count, uint32_t pick) {
    Rng rng(pick);
    for (uint32_t i = 0; !pending_.empty() && (count == 0 || i < count); ++i) {
        const size_t at = pick == 0 ? 0 : rng.below(pending_.size());
        Pending one = std::move(pending_[at]);
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(at));
        answer(one, how, pick + i);
    }
    update();
}

void Store::answer(Pending &one, uint32_t how, uint32_t pick) {
    quire_store_answer answer{};
    answer.kind = one.request.kind;
    answer.cookie = one.request.cookie;
    answer.label = one.request.label;
    const bool fails = how == kStoreFailed;
    if (fails || (one.cancelled && pick % 2 == 0)) {
        answer.outcome = fails ? QUIRE_STORE_FAILED : QUIRE_STORE_CANCELLED;
        answer.native_code = fails ? 5 : 0;
        counts.faults += fails;
        if (answer.kind == QUIRE_STORE_GET)
            for (const quire_store_piece &piece : one.pieces)
                memset(piece.address, 0xE7, piece.size_bytes);
    } else if (answer.kind == QUIRE_STORE_PUT) {
        answer.outcome = put(one, how, pick, answer.size_bytes);
    } else if (answer.kind == QUIRE_STORE_GET) {
        answer.outcome = get(one, how, pick, answer.size_bytes);
        if (answer.outcome != QUIRE_STORE_DONE)
            for (const quire_store_piece &piece : one.pieces)
                memset(piece.address, 0xE7, piece.size_bytes);
    } else if (answer.kind == QUIRE_STORE_FIND) {
        const auto at = records.find(key_of(answer.label));
        const bool has = at != records.end() && same(at->second.label, answer.label);
        answer.outcome = has ? QUIRE_STORE_DONE : QUIRE_STORE_MISS;
    } else if (answer.kind == QUIRE_STORE_REMOVE) {
        records.erase(key_of(answer.label));
    }
    answers_.push_back(answer);
}

uint32_t Store::put(Pending &one, uint32_t how, uint32_t pick, uint64_t &size) {
    Record record;
    record.label = one.request.label;
    for (const quire_store_piece &piece : one.pieces) {
        const auto *from = static_cast<const uint8_t *>(piece.address);
        record.bytes.insert(record.bytes.end(), from, from + piece.size_bytes);
    }
    size = record.bytes.size();
    if (how == kStoreFull || records.size() >= kMaxRecords) {
        ++counts.faults;
        return QUIRE_STORE_FULL;
    }
    if (on_put) on_put(record.label, record.bytes);
    const auto known = records.find(key_of(record.label));
    if (known != records.end() && same(known->second.label, record.label)) return QUIRE_STORE_DONE;
    if (how == kStoreFlip) {
        ++counts.faults;
        has_wrong = true;
        record.bytes[pick * 977u % record.bytes.size()] ^= static_cast<uint8_t>(1u << pick % 8);
    }
    records[key_of(record.label)] = std::move(record);
    return QUIRE_STORE_DONE;
}

uint32_t Store::get(Pending &one, uint32_t how, uint32_t pick, uint64_t &size) {
    const auto at = records.find(key_of(one.request.label));
    if (at == records.end()) return QUIRE_STORE_MISS;
    counts.faults += how != kStoreServe && how != kStoreFull;
    if (how == kStoreForeign || !same(at->second.label, one.request.label))
        return QUIRE_STORE_FOREIGN;
    if (how == kStoreMiss || how == kStoreDamaged) {
        note(QUIRE_STORE_NOTICE_GONE, at->second.label);
        records.erase(at);
        return how == kStoreMiss ? QUIRE_STORE_MISS : QUIRE_STORE_DAMAGED;
    }
    std::vector<uint8_t> bytes = at->second.bytes;
    if (how == kStoreOther)
        for (const auto &[key, other] : records)
            if (other.bytes.size() == bytes.size() && key != at->first) {
                bytes = other.bytes;
                if (pick-- % 4 == 0) break;
            }
    if (how == kStoreFlip)
        bytes[pick * 977u % bytes.size()] ^= static_cast<uint8_t>(1u << pick % 8);
    uint64_t room = 0;
    for (const quire_store_piece &piece : one.pieces) room += piece.size_bytes;
    size = bytes.size() + (how == kStoreSize ? 64 : 0);
    if (size != room) return QUIRE_STORE_SIZE;
    const uint8_t *from = bytes.data();
    for (const quire_store_piece &piece : one.pieces) {
        memcpy(piece.address, from, piece.size_bytes);
        from += piece.size_bytes;
    }
    return QUIRE_STORE_DONE;
}

void Store::evict(uint32_t count, uint32_t pick) {
    Rng rng(pick);
    for (uint32_t i = 0; i < count && !records.empty(); ++i) {
        auto at = records.begin();
        std::advance(at, rng.below(records.size()));
        note(QUIRE_STORE_NOTICE_GONE, at->second.label);
        records.erase(at);
    }
    update();
}

void Store::note(uint32_t outcome, const quire_store_label &label) {
    quire_store_answer answer{};
    answer.outcome = outcome;
    answer.label = label;
    answers_.push_back(answer);
    update();
}

// The descriptor is readable while something waits to be reaped.
void Store::update() {
    if (descriptor_ < 0) return;
    uint64_t value = 0;
    if (read(descriptor_, &value, sizeof value) < 0) value = 0;
    value = 1;
    if (!answers_.empty() && write(descriptor_, &value, sizeof value) < 0) return;
}

struct StoreSlots {
    static Store &of(quire_store *store) { return *reinterpret_cast<Store *>(store); }
    static quire_status open(const quire_store_desc *desc, quire_store **out, quire_error *) {
        if (desc->option_count != 0) return QUIRE_E_ARG;
        current_store = new Store;
        current_store->descriptor_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        ++live_stores;
        *out = reinterpret_cast<quire_store *>(current_store);
        return QUIRE_OK;
    }
    static quire_status close_wait(quire_store *store, uint64_t, quire_error *) {
        if (current_store == &of(store)) current_store = nullptr;
        --live_stores;
        delete &of(store);
        return QUIRE_OK;
    }
    static quire_status get_info(quire_store *, quire_store_info *info, quire_error *) {
        info->flags = 0;
        info->max_value_bytes = kMaxValue;
        info->capacity_bytes = 0;
        info->max_requests = kMaxRequests;
        strcpy(info->place, "a simulation");
        return QUIRE_OK;
    }
    static quire_status get_stats(quire_store *store, quire_store_stats *stats, quire_error *) {
        stats->records = of(store).records.size();
        return QUIRE_OK;
    }
    static quire_status submit(quire_store *store, const quire_store_request *requests,
                               uint32_t count, uint32_t stride, uint32_t *taken, quire_error *) {
        Store &own = of(store);
        *taken = 0;
        if (own.refuse_) {
            ++own.counts.faults;
            return QUIRE_E_OS;
        }
        for (uint32_t i = 0; i < count && !own.busy_ && own.waiting() < kMaxRequests; ++i) {
            Store::Pending one;
            memcpy(&one.request,
                   reinterpret_cast<const char *>(requests) + static_cast<size_t>(i) * stride,
                   sizeof one.request);
            one.pieces.assign(one.request.pieces, one.request.pieces + one.request.piece_count);
            own.counts.puts_submitted += one.request.kind == QUIRE_STORE_PUT;
            own.counts.gets_submitted += one.request.kind == QUIRE_STORE_GET;
            own.pending_.push_back(std::move(one));
            ++*taken;
        }
        if (own.auto_) own.serve(kStoreServe, 0, 0);
        return QUIRE_OK;
    }
    static quire_status reap(quire_store *store, quire_store_answer *answers, uint32_t capacity,
                             uint32_t stride, uint32_t *count, quire_error *) {
        Store &own = of(store);
        for (*count = 0; *count < capacity && !own.answers_.empty(); ++*count) {
            const quire_store_answer &next = own.answers_.front();
            memcpy(reinterpret_cast<char *>(answers) + static_cast<size_t>(*count) * stride, &next,
                   sizeof next);
            const bool done = next.outcome == QUIRE_STORE_DONE;
            own.counts.puts_done += next.kind == QUIRE_STORE_PUT && done;
            own.counts.puts_refused += next.kind == QUIRE_STORE_PUT && !done;
            own.counts.gets_done += next.kind == QUIRE_STORE_GET && done;
            own.answers_.pop_front();
        }
        own.update();
        return QUIRE_OK;
    }
    static quire_status cancel(quire_store *store, uint64_t cookie, quire_error *) {
        for (Store::Pending &one : of(store).pending_)
            one.cancelled |= one.request.cookie == cookie;
        return QUIRE_OK;
    }
    static int32_t descriptor(quire_store *store) { return of(store).descriptor_; }
    static quire_status find(quire_store *store, const quire_store_label *labels, uint32_t count,
                             uint32_t stride, uint8_t *found, quire_error *) {
        for (uint32_t i = 0; i < count; ++i) {
            quire_store_label label{};
            memcpy(&label, reinterpret_cast<const char *>(labels) + static_cast<size_t>(i) * stride,
                   sizeof label);
            found[i] = of(store).unknown_      ? QUIRE_STORE_UNKNOWN
                       : of(store).find(label) ? QUIRE_STORE_PRESENT
                                               : QUIRE_STORE_ABSENT;
        }
        return QUIRE_OK;
    }
    static quire_status shutdown(uint64_t *live_objects, quire_error *) {
        *live_objects = live_stores;
        return QUIRE_OK;
    }
};

const quire_store_api *Store::table() {
    static const quire_store_api api = [] {
        quire_store_api t{};
        t.struct_size = sizeof t;
        t.abi_major = QUIRE_STORE_ABI_MAJOR;
        t.abi_minor = QUIRE_STORE_ABI_MINOR;
        t.name = "sim";
        t.version = "1";
        t.help = "";
        t.open = StoreSlots::open;
        t.close_wait = StoreSlots::close_wait;
        t.get_info = StoreSlots::get_info;
        t.get_stats = StoreSlots::get_stats;
        t.submit = StoreSlots::submit;
        t.reap = StoreSlots::reap;
        t.cancel = StoreSlots::cancel;
        t.descriptor = StoreSlots::descriptor;
        t.find = StoreSlots::find;
        t.shutdown = StoreSlots::shutdown;
        return t;
    }();
    return &api;
}

}  // namespace sim

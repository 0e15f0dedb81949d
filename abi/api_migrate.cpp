// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of migrate.h.

#include "abi/cache_call.hpp"
#include "abi/shard_list.hpp"

namespace {

// The caller's request, and the state of the migration.
struct Move {
    Move() = default;
    ~Move() { leave_list(); }
    Move(const Move &) = delete;
    Move &operator=(const Move &) = delete;

    // From now on an abandon of the cache ends the stay.
    Status enter_list(quire_cache *of) {
        std::lock_guard<std::mutex> lock(of->devices_mutex);
        QUIRE_TRY(of->lock.check());
        cache = of;
        stay.next = cache->moves;
        cache->moves = &stay;
        return Status{};
    }
    void leave_list() {
        if (cache == nullptr) return;
        std::lock_guard<std::mutex> lock(cache->devices_mutex);
        DeviceStay **link = &cache->moves;
        while (*link != &stay) link = &(*link)->next;
        *link = stay.next;
        cache = nullptr;
    }

    quire_migrate_desc desc;
    ShardRange ranges[kMaxShards];
    std::vector<quire_device *> devices;
    std::unique_ptr<Migration> migration;
    bool begun = false;
    DeviceStay stay;  // on `devices`, which after the move are the ones that the cache left
    quire_cache *cache = nullptr;  // whose list `stay` is on
    Kept kept;

    MigrateTarget target() const { return MigrateTarget{desc, ranges}; }
};

Status read_move(quire_cache *cache, const quire_migrate_desc *desc, const quire_migrate_info *info,
                 Move *move) {
    QUIRE_TRY(need(cache, "cache is NULL"));
    QUIRE_TRY(not_inherited(cache->process));
    QUIRE_TRY(read(desc, &move->desc));
    QUIRE_TRY(check_output(info));
    const quire_migrate_desc &full = move->desc;
    if (full.moves != nullptr && (full.move_stride < sizeof(quire_block_move) ||
                                  full.move_stride % alignof(quire_block_move) != 0)) {
        return fail(QUIRE_E_ARG, "move_stride is {}: set it to sizeof, here {}", full.move_stride,
                    sizeof(quire_block_move));
    }
    if (full.moves == nullptr && full.move_capacity != 0) {
        return fail(QUIRE_E_ARG, "moves is NULL, but move_capacity is {}", full.move_capacity);
    }
    QUIRE_TRY(read_shards(full.shards, full.shard_count, full.shard_stride, move->ranges,
                          &move->devices));
    QUIRE_TRY(move->stay.begin(move->devices));
    QUIRE_TRY(move->enter_list(cache));
    move->migration = std::make_unique<Migration>(&cache->instance->host);
    return Status{};
}

// Begins once no work of the cache is running. If `waits`, waits for that without the cache's lock.
quire_status begin(const char *function, quire_cache *cache, Move *move, bool waits,
                   uint64_t timeout_ns, quire_error *error) {
    uint64_t start = os::monotonic_ns();
    for (;;) {
        Cache::Awaited awaited;
        quire_status status =
            cache_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
                QUIRE_TRY(core.check_closed());
                if (waits) QUIRE_TRY(core.await_writes(&awaited, sink));
                if (awaited.fence != nullptr) return Status{};
                Status begun =
                    core.begin_migration(move->target(), move->migration.get(), &move->begun, sink);
                if (move->begun) cache->note_memory(move->migration->shards.memory());
                return begun;
            });
        if (status != QUIRE_OK || awaited.fence == nullptr) return status;
        status = guard(function, error, [&](quire_error *sink) -> Status {
            return call<&quire_backend_api::fence_wait_host>(
                *awaited.api, sink, awaited.fence, awaited.value, os::time_left(start, timeout_ns));
        });
        if (status != QUIRE_OK) return status;
    }
}

// Runs without the lock: meanwhile other threads may query the cache but not change it.
quire_status carry_out(const char *function, quire_cache *cache, Move *move, quire_error *error) {
    Status copied;
    quire_status status = guard(function, error, [&](quire_error *sink) -> Status {
        copied = fail(QUIRE_E_INTERNAL, nullptr);  // stays if anything unwinds
        QUIRE_TRY(cache->lock.check());
        return copied = cache->core.copy(move->migration.get(), sink);
    });
    quire_status ended =
        cache_call(function, cache, nullptr, [&](Cache &core, quire_error *) -> Status {
            core.end_migration(move->target(), copied, move->migration.get());
            cache->note_memory();
            if (!copied.ok()) return Status{};
            std::lock_guard<std::mutex> lock(cache->devices_mutex);
            if (cache->lock.is_abandoned()) return Status{};
            cache->devices.swap(move->devices);
            move->stay.hand_over(move->devices.size());
            return Status{};
        });
    return status < 0 ? status : ended;
}

// A device may still read what the cache left or write to its target, so neither is freed.
Status give_up(std::unique_ptr<Move> move) {
    keep_for_ever(&move->kept);
    move->leave_list();
    move->stay.end();
    move.release();
    return fail(QUIRE_E_STALE, "the cache was abandoned");
}

quire_status migrate(const char *function, quire_cache *cache, const quire_migrate_desc *desc,
                     quire_migrate_info *info, bool waits, uint64_t timeout_ns,
                     quire_error *error) {
    std::unique_ptr<Move> move;
    quire_status status = guard(function, error, [&](quire_error *) -> Status {
        move = std::make_unique<Move>();
        return read_move(cache, desc, info, move.get());
    });
    if (status != QUIRE_OK) return status;
    status = begin(function, cache, move.get(), waits, timeout_ns, error);
    if (move->begun) status = carry_out(function, cache, move.get(), error);
    bool is_told =
        status == QUIRE_OK || status == QUIRE_S_NO_BLOCKS || status == QUIRE_S_INCOMPLETE;
    if (is_told) write(move->migration->info, info);
    // This frees what the cache left, and a backend may do anything then.
    quire_status freed = guard(function, error, [&](quire_error *) -> Status {
        if (move->begun && cache->lock.is_abandoned()) return give_up(std::move(move));
        move.reset();
        return Status{};
    });
    return status != QUIRE_OK ? status : freed;
}

}  // namespace

extern "C" {

quire_status quire_cache_migrate(quire_cache *cache, const quire_migrate_desc *desc,
                                 quire_migrate_info *info, quire_error *error) {
    return migrate("cache_migrate", cache, desc, info, false, 0, error);
}

quire_status quire_cache_migrate_wait(quire_cache *cache, const quire_migrate_desc *desc,
                                      quire_migrate_info *info, uint64_t timeout_ns,
                                      quire_error *error) {
    return migrate("cache_migrate_wait", cache, desc, info, true, timeout_ns, error);
}

}  // extern "C"

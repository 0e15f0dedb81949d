// SPDX-License-Identifier: Apache-2.0
//
// migrating_cache: a sharded cache of the cpu backend that migrates to devices that it opens.
#pragma once

#include "sharded_cache.hpp"

namespace quire::test {

struct MoveOptions {
    uint32_t blocks = 0;  // of each group; 0: as many as now
    uint32_t host_blocks = 0;
    bool copies_host_tier = false;
    const char *backend = "cpu";
};

class MigratingCache {
 public:
    explicit MigratingCache(const std::vector<Range> &ranges, const KvFormat &format = {},
                            const char *path = nullptr, uint32_t flags = 0, uint32_t blocks = 24,
                            const quire_instance_desc &host = described<quire_instance_desc>())
        : cache(ranges, blocks, path, host, flags, format) {}
    // Devices that the cache left can be closed once the cache is destroyed.
    ~MigratingCache() {
        cache.sync();
        must(api.batch_destroy(cache.batch, &cache.error));
        must(api.cache_destroy(cache.cache, &cache.error));
        cache.batch = nullptr;
        cache.cache = nullptr;
        EXPECT_EQ(close_left(), 0u);
    }
    MigratingCache(const MigratingCache &) = delete;
    MigratingCache &operator=(const MigratingCache &) = delete;

    void must(quire_status status) { ASSERT_GE(status, 0) << cache.error.message; }

    // Opens devices, migrates, and creates a batch there. The previous devices stay open for as
    // long as their host tier is in use.
    quire_migrate_info move(const std::vector<Range> &ranges, const MoveOptions &options = {}) {
        auto info = described<quire_migrate_info>();
        std::vector<quire_device *> devices = open(ranges.size(), options.backend);
        quire_status status = try_move(ranges, devices, options, &info);
        EXPECT_EQ(status, QUIRE_OK) << cache.error.message;
        arrive(devices);
        return info;
    }

    std::vector<quire_device *> open(size_t count, const char *backend) {
        auto desc = described<quire_device_desc>();
        desc.backend = backend;
        desc.threads = 1;
        std::vector<quire_device *> devices(count);
        for (quire_device *&device : devices) {
            must(api.device_open(cache.instance, &desc, &device, &cache.error));
        }
        return devices;
    }
    void close(const std::vector<quire_device *> &devices) {
        for (quire_device *device : devices) must(api.device_close(device, &cache.error));
    }

    quire_status try_move(const std::vector<Range> &ranges,
                          const std::vector<quire_device *> &devices, const MoveOptions &options,
                          quire_migrate_info *info) {
        std::vector<quire_shard_desc> shards;
        for (size_t i = 0; i < ranges.size(); ++i) {
            auto shard = described<quire_shard_desc>();
            shard.device = devices[i];
            shard.layer_begin = ranges[i].layer_begin;
            shard.layer_count = ranges[i].layer_count;
            shard.head_begin = ranges[i].head_begin;
            shard.head_count = ranges[i].head_count;
            shards.push_back(shard);
        }
        auto desc = described<quire_migrate_desc>();
        desc.flags = options.copies_host_tier ? uint32_t{QUIRE_MIGRATE_COPY_HOST_TIER} : 0u;
        desc.shards = shards.data();
        desc.shard_count = static_cast<uint32_t>(shards.size());
        desc.shard_stride = sizeof(quire_shard_desc);
        desc.blocks = options.blocks;
        desc.host_blocks = options.host_blocks;
        return api.cache_migrate(cache.cache, &desc, info, &cache.error);
    }

    // Creates the queues and the batch on these devices, which the cache is now on.
    void arrive(const std::vector<quire_device *> &devices) {
        must(api.batch_destroy(cache.batch, &cache.error));
        for (quire_queue *queue : cache.queues) must(api.queue_destroy(queue, &cache.error));
        left_.insert(left_.end(), cache.devices.begin(), cache.devices.end());
        cache.devices = devices;
        cache.queues.clear();
        for (quire_device *device : devices) {
            quire_queue *queue = nullptr;
            must(api.queue_create(device, nullptr, &queue, &cache.error));
            cache.queues.push_back(queue);
        }
        cache.batch = nullptr;
        must(cache.make_batch());
        close_left();
    }

    // Closes the devices that the cache left, except owners of its host tier; returns their count.
    size_t close_left() {
        std::vector<quire_device *> busy;
        for (quire_device *device : left_) {
            quire_status status = api.device_close(device, &cache.error);
            if (status == QUIRE_E_BUSY) busy.push_back(device);
        }
        left_ = busy;
        return left_.size();
    }

    const quire_api &api = library();
    ShardedCache cache;

 private:
    std::vector<quire_device *> left_;
};

}  // namespace quire::test

// SPDX-License-Identifier: Apache-2.0
//
// kernels: what a step enqueues on its queues, by calls or as a captured graph, and what it sees.

#include <algorithm>
#include <cstring>

#include "finding.hpp"
#include "stage.hpp"

namespace gpupaths {

namespace {

// Where K of a layer begins in a slot's input; V follows.
uint64_t input_of(uint32_t layer, uint32_t side) {
    return (uint64_t{2} * layer + side) * kMostTokens * kMostHeads * kDim * 4;
}

uint32_t tokens_of(const std::vector<Row> &rows) {
    uint32_t sum = 0;
    for (const Row &row : rows) sum += static_cast<uint32_t>(row.cells.size()) - row.first;
    return sum;
}

}  // namespace

void Stage::fill_input(const Shard &shard, unsigned char *to, const std::vector<Row> &rows,
                       bool is_spoilt) const {
    uint32_t element = bytes_of(shape.given), first_layer = 0;
    for (uint32_t g = 0; g < shape.groups.size(); ++g) {
        const quire_pool_info &pool = shard.pools[g];
        const GroupShape &group = shape.groups[g];
        std::vector<unsigned char> row_bytes(kDim * 4);
        for (uint32_t l = 0; l < pool.layer_count; ++l) {
            uint32_t token = 0;
            for (const Row &row : rows) {
                for (size_t place = row.first; place < row.cells.size(); ++place, ++token) {
                    Cell cell = is_spoilt ? row.cells[place].spoilt() : row.cells[place];
                    for (uint32_t i = 0; i < 2 * pool.head_count; ++i) {
                        uint32_t head = i / 2, side = i % 2;
                        unsigned char *at =
                            to + input_of(first_layer + pool.layer_begin + l, side) +
                            (uint64_t{token} * pool.head_count + head) * kDim * element;
                        write_content(cell, {g, pool.layer_begin + l, pool.head_begin + head, side},
                                      kDim, group.dtype, row_bytes.data());
                        if (element == bytes_of(group.dtype)) {
                            std::memcpy(at, row_bytes.data(), size_t{kDim} * element);
                            continue;
                        }
                        for (uint32_t d = 0; d < kDim; ++d) {
                            uint16_t half;
                            std::memcpy(&half, row_bytes.data() + size_t{2} * d, 2);
                            float value = 0;
                            if (group.dtype == QUIRE_DTYPE_F16) {
                                _Float16 narrow;
                                std::memcpy(&narrow, &half, 2);
                                value = static_cast<float>(narrow);
                            } else {
                                uint32_t bits = uint32_t{half} << 16;
                                std::memcpy(&value, &bits, 4);
                            }
                            std::memcpy(at + size_t{4} * d, &value, 4);
                        }
                    }
                }
            }
        }
        first_layer += group.layers;
    }
}

bool Stage::call_kernels(Shard *shard, uint32_t queue, uint64_t input) {
    uint32_t first_layer = 0;
    for (uint32_t g = 0; g < shape.groups.size(); ++g) {
        const quire_pool_info &pool = shard->pools[g];
        for (uint32_t l = 0; l < pool.layer_count; ++l) {
            uint32_t layer = first_layer + pool.layer_begin + l;
            auto write = described<quire_kv_args>();
            write.k = input + input_of(layer, 0);
            write.v = input + input_of(layer, 1);
            write.layer = layer;
            write.dtype = shape.given;
            if (q.kv_write(batches[queue], &write, shard->lanes[queue].queue, &error) < 0) {
                return false;
            }
            if (!shape.attends) continue;
            auto attend = described<quire_attend_args>();
            attend.q = shard->scratch.address;
            attend.out = attend.q + uint64_t{4} * kMostTokens * kMostHeads * kDim;
            attend.layer = layer;
            if (q.attend(batches[queue], &attend, shard->lanes[queue].queue, &error) < 0) {
                return false;
            }
        }
        first_layer += shape.groups[g].layers;
    }
    return true;
}

bool Stage::capture(Shard *shard, uint32_t queue, uint32_t rows, uint32_t tokens) {
    Lane &lane = shard->lanes[queue];
    retire_graph(&lane);
    if (shard->backend->begin_capture(lane.stream) != 0) return false;
    bool is_called = call_kernels(shard, queue, lane.graph.input.address);
    void *launchable = nullptr;
    bool is_ended = shard->backend->end_capture(lane.stream, &launchable) == 0;
    lane.graph.launchable = launchable;
    lane.graph.rows = rows;
    lane.graph.tokens = tokens;
    if (!is_called || !is_ended) {
        retire_graph(&lane);
        return false;
    }
    ++captures;
    return true;
}

bool Stage::run_graph(Shard *shard, uint32_t queue, const Memory &slot, uint32_t rows,
                      uint32_t tokens) {
    Lane &lane = shard->lanes[queue];
    const Graph &graph = lane.graph;
    if (q.memory_copy(lane.queue, graph.input.memory, 0, slot.memory, 0, shard->input_bytes,
                      &error) < 0) {
        return false;
    }
    bool serves = graph.launchable != nullptr && rows <= graph.rows && tokens <= graph.tokens;
    if (!serves && !capture(shard, queue, rows, tokens)) return false;
    if (shard->backend->launch(graph.launchable, lane.stream) != 0) return false;
    ++graph_launches;
    return true;
}

bool Stage::copy_seen(Shard *shard, uint32_t queue, const Memory &slot,
                      const std::vector<std::vector<std::vector<int32_t>>> &tables) {
    std::vector<quire_be_copy> copies;
    uint64_t to = slot.address + shard->input_bytes;
    for (const auto &of_row : tables) {
        for (uint32_t g = 0; g < of_row.size(); ++g) {
            const quire_pool_info &pool = shard->pools[g];
            auto size = static_cast<uint64_t>(pool.block_stride);
            for (int32_t block : of_row[g]) {
                if (size == 0 || block == 0) continue;
                copies.push_back({to, pool.address + static_cast<uint64_t>(block) * size, size,
                                  QUIRE_BE_COPY_D2H, 0});
                to += size;
            }
        }
    }
    if (copies.empty()) return true;
    auto count = static_cast<uint32_t>(copies.size());
    shard->backend->pause(true);
    quire_status status =
        shard->backend->watch().read(shard->lanes[queue].inner, copies.data(), count, &error);
    shard->backend->pause(false);
    return status >= 0;
}

bool Stage::enqueue(uint32_t queue, uint32_t slot, const std::vector<Row> &rows,
                    const std::vector<std::vector<std::vector<int32_t>>> &tables, bool is_spoilt) {
    uint32_t tokens = tokens_of(rows);
    auto row_count = static_cast<uint32_t>(rows.size());
    bool is_whole = true;
    for (Shard &shard : shards) {
        const Memory &memory = shard.slots[slot];
        fill_input(shard, memory.host, rows, is_spoilt);
        if (rows.empty()) continue;
        bool by_graph = shape.graphs && shard.lanes[queue].stream != nullptr;
        is_whole = (by_graph ? run_graph(&shard, queue, memory, row_count, tokens)
                             : call_kernels(&shard, queue, memory.address)) &&
                   is_whole;
        is_whole = copy_seen(&shard, queue, memory, tables) && is_whole;
    }
    return is_whole;
}

void compare_place(const Shape &shape, uint32_t group, const quire_pool_info &pool,
                   const unsigned char *block, uint32_t place_in_block, const Cell &cell,
                   const char *where) {
    uint32_t dtype = shape.groups[group].dtype;
    unsigned char expected[kDim * 4];
    for (uint32_t l = 0; l < pool.layer_count; ++l) {
        for (uint32_t i = 0; i < 2 * pool.head_count; ++i) {
            uint32_t head = i / 2, side = i % 2;
            int64_t at = l * pool.layer_stride;
            at += side == 0 ? head * pool.k_head_stride + place_in_block * pool.k_token_stride
                            : pool.v_offset + head * pool.v_head_stride +
                                  place_in_block * pool.v_token_stride;
            write_content(cell, {group, pool.layer_begin + l, pool.head_begin + head, side}, kDim,
                          dtype, expected);
            const unsigned char *found = block + at;
            if (std::memcmp(found, expected, size_t{kDim} * bytes_of(dtype)) == 0) continue;
            fail("content",
                 "%s: group %u, layer %u, head %u, %s at position %u: found %02x%02x%02x%02x, "
                 "expected %02x%02x%02x%02x",
                 where, group, pool.layer_begin + l, pool.head_begin + head, side == 0 ? "K" : "V",
                 cell.position, found[0], found[1], found[2], found[3], expected[0], expected[1],
                 expected[2], expected[3]);
        }
    }
}

void compare_tenant(const Shape &shape, uint32_t group, const quire_pool_info &pool,
                    const unsigned char *block, uint32_t place_in_block, uint32_t tenant,
                    const char *where) {
    uint32_t dtype = shape.groups[group].dtype;
    for (uint32_t l = 0; l < pool.layer_count; ++l) {
        for (uint32_t head = 0; head < pool.head_count; ++head) {
            const unsigned char *k = block + l * pool.layer_stride + head * pool.k_head_stride +
                                     place_in_block * pool.k_token_stride;
            uint32_t found = tenant_of(k, dtype);
            if (found == 0 || found == tenant || found == 3) continue;
            fail("tenant",
                 "%s: group %u, layer %u, head %u: a block of tenant %u holds content of "
                 "tenant %u at its place %u",
                 where, group, pool.layer_begin + l, pool.head_begin + head, tenant, found,
                 place_in_block);
        }
    }
}

void Stage::compare_seen(uint32_t slot, const std::vector<Row> &rows,
                         const std::vector<std::vector<std::vector<int32_t>>> &tables) const {
    char where[96];
    for (const Shard &shard : shards) {
        const unsigned char *block = shard.slots[slot].host + shard.input_bytes;
        for (size_t r = 0; r < rows.size(); ++r) {
            const Row &row = rows[r];
            for (uint32_t g = 0; g < tables[r].size(); ++g) {
                const quire_pool_info &pool = shard.pools[g];
                if (pool.layer_count == 0) continue;
                const GroupShape &group = shape.groups[g];
                std::snprintf(where, sizeof where, "text %u, row %zu of a step on %s", row.text, r,
                              shard.shape.backend.c_str());
                for (uint32_t b = 0; b < tables[r][g].size(); ++b) {
                    bool is_null = tables[r][g][b] == 0;
                    for (uint32_t i = 0; i < shape.block_tokens; ++i) {
                        uint32_t place = b * shape.block_tokens + i;
                        bool is_seen =
                            place < row.cells.size() &&
                            (place >= group.first_seen(row.first) || place < group.sinks);
                        if (is_seen && is_null) {
                            fail("table", "%s: group %u has no block for place %u", where, g,
                                 place);
                        }
                        if (is_null) continue;
                        if (is_seen) {
                            compare_place(shape, g, pool, block, i, row.cells[place], where);
                        } else {
                            compare_tenant(shape, g, pool, block, i, row.cells[0].tenant, where);
                        }
                    }
                    if (!is_null) block += pool.block_stride;
                }
            }
        }
    }
}

const unsigned char *Stage::read_pool(uint32_t index, uint32_t group) {
    Shard &shard = shards[index];
    const quire_pool_info &pool = shard.pools[group];
    quire_be_copy copy = {shard.audit.address, pool.address, pool.size_bytes, QUIRE_BE_COPY_D2H, 0};
    shard.backend->pause(true);
    quire_status status = shard.backend->watch().read(shard.lanes[0].inner, &copy, 1, &error);
    if (status >= 0) status = q.queue_sync(shard.lanes[0].queue, &error);
    shard.backend->pause(false);
    return status >= 0 ? shard.audit.host : nullptr;
}

}  // namespace gpupaths

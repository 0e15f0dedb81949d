// SPDX-License-Identifier: Apache-2.0
//
// views: a batch's tables, compared with quire_step_blocks and the model.
#include <algorithm>
#include <cstring>

#include "world.hpp"

namespace sim {
namespace {

constexpr uint32_t kAllViews = QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_CSR | QUIRE_VIEW_SLOTS |
                               QUIRE_VIEW_CONTEXT_SLOTS | QUIRE_VIEW_LENGTHS |
                               QUIRE_VIEW_POSITIONS | QUIRE_VIEW_CU_Q | QUIRE_VIEW_MASK |
                               QUIRE_VIEW_SHARED_PREFIX;

uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

template <class T>
const T *at(uint64_t address) {
    return reinterpret_cast<const T *>(static_cast<uintptr_t>(address));
}

void same(const char *view, uint32_t row, uint32_t index, int64_t got, int64_t wanted) {
    if (got != wanted)
        fail("batch-view", "%s of row %u, entry %u, is %lld; expected %lld", view, row, index,
             static_cast<long long>(got), static_cast<long long>(wanted));
}

}  // namespace

bool World::make_batch(const Op &op) {
    if (batches.size() >= 3) return false;
    Batch batch;
    batch.desc.struct_size = sizeof batch.desc;
    batch.desc.flags = QUIRE_BATCH_SHARED_PREFIX;
    batch.desc.max_rows = std::max(1u, op.f[1]);
    batch.desc.max_blocks_per_row = std::max(1u, op.f[2]);
    batch.desc.max_query_tokens = std::max(1u, op.f[3]);
    batch.desc.max_context_tokens = std::max(1u, op.f[4]);
    batch.desc.max_mask_words = op.f[5];
    batch.desc.max_cross_tokens = config.cross() ? 64 : 0;
    batch.desc.views = kAllViews;
    if (op.f[5] == 0) batch.desc.views &= ~static_cast<uint32_t>(QUIRE_VIEW_MASK);
    const uint64_t struck = strikes();
    const Snapshot before = look(fault_armed());
    const quire_status status = q_->batch_create(cache_, &batch.desc, &batch.batch, &error_);
    if ((status == QUIRE_E_DEVICE_MEMORY || status == QUIRE_E_DEVICE_LOST) && strikes() != struck) {
        ++tally_->out_of_memory;
        unchanged(before, "error-changes");
        return true;
    }
    expect(status, {QUIRE_OK}, "quire_batch_create");
    batches.push_back(batch);
    return true;
}

// Too small for the step, counting what each row needs at least, or (`most`) all that may count:
// what is reserved, whole blocks, and words of masks.
bool World::exceeds(const Step &step, const Batch &batch, bool most) const {
    uint32_t tokens = 0;
    uint32_t context = 0;
    uint32_t mask_words = 0;
    uint32_t cross = 0;
    bool over = step.rows.size() > batch.desc.max_rows;
    for (const Row &row : step.rows) {
        tokens += row.count;
        uint32_t length = row.first + row.count;
        if (most) length = ceil_div(length + row.ahead, config.span()) * config.span();
        context += length;
        mask_words += most ? row.mask_rows * ceil_div(length, 32) : 0;
        cross += row.cross;
        for (uint32_t g = 0; g < blocks_.size(); ++g)
            over |= config.groups[g].kind != QUIRE_GROUP_CROSS &&
                    ceil_div(length, config.block_size(g)) > batch.desc.max_blocks_per_row;
        over |= row.mask_rows != 0 && batch.desc.max_mask_words == 0;
    }
    over |= cross > batch.desc.max_cross_tokens || mask_words > batch.desc.max_mask_words;
    return over || tokens > batch.desc.max_query_tokens || context > batch.desc.max_context_tokens;
}

void World::check_views(const Step &step, const Batch &batch) {
    for (view_shard_ = 0; view_shard_ < std::max<size_t>(1, shards_.size()); ++view_shard_)
        for (uint32_t g = 0; g < blocks_.size(); ++g) check_group_views(step, batch, g);
    view_shard_ = 0;
}

// Where the rows before one end, in each packed view.
struct ViewCursor {
    uint32_t token = 0;
    uint32_t slot = 0;
    uint32_t context = 0;
    int32_t block = 0;
};

void World::check_group_views(const Step &step, const Batch &batch, uint32_t group) {
    quire_batch_views v{};
    v.struct_size = sizeof v;
    expect(q_->batch_get_views(batch.batch, group, view_shard_, &v, &error_), {QUIRE_OK},
           "quire_batch_get_views");
    without_pool_ = on_device() && shards_[view_shard_].pools[group].layer_count == 0;
    const bool cross = config.groups[group].kind == QUIRE_GROUP_CROSS;
    const uint32_t bt = config.block_size(group);
    const auto rows = static_cast<uint32_t>(step.rows.size());
    same("row_count", 0, 0, v.row_count, rows);
    ViewCursor cursor;
    std::vector<int32_t> last;
    for (uint32_t r = 0; r < rows; ++r) {
        const Row &row = step.rows[r];
        const Sequence &seq = *find(row.seq);
        const std::vector<int32_t> &ids = table(seq, group);
        const uint32_t length = cross ? seq.cross_tokens : row.first + row.count;
        entry("lengths", r, v.lengths, r, 4, length);
        entry("cu_q", r, v.cu_q, r, 4, cursor.token);
        check_row_tables(v, batch, r, ids, length, bt, cursor);
        for (uint32_t i = 0; i < (cross ? row.cross : row.count); ++i, ++cursor.slot) {
            const uint32_t p = cross ? i : row.first + i;
            entry("slots", r, v.slots, cursor.slot, 8,
                  ids[p / bt] * static_cast<int64_t>(bt) + p % bt);
        }
        for (uint32_t i = 0; i < row.count; ++i) {
            const uint32_t p = row.first + i;
            entry("positions", r, v.positions, cursor.token + i, 4, seq.position(p, row.mask_rows));
            if (v.mask_rows != 0 && !cross && !on_device())
                check_mask(v, r, cursor.token + i, seq, p, row.mask_rows != 0, length);
        }
        cursor.token += row.count;
        if (on_device()) continue;
        const int32_t shared = at<int32_t>(v.shared_prefix)[r];
        if (shared < 0 || (r == 0 && shared != 0) || static_cast<uint32_t>(shared) > ids.size() ||
            (r != 0 && static_cast<uint32_t>(shared) > last.size()) ||
            !std::equal(ids.begin(), ids.begin() + shared, last.begin()))
            fail("batch-view", "shared_prefix of row %u is %d, and those entries differ", r,
                 shared);
        last = ids;
    }
    same("query_tokens", 0, 0, v.query_tokens, cursor.token);
    same("write_tokens", 0, 0, v.write_tokens, cursor.slot);
    for (uint32_t r = rows; r < batch.desc.max_rows; ++r) {
        entry("padding of lengths", r, v.lengths, r, 4, 0);
        entry("padding of cu_q", r, v.cu_q, r + 1, 4, cursor.token);
        entry("padding of block_table", r, v.block_table,
              static_cast<uint64_t>(r) * v.block_table_stride, 4, 0);
    }
    for (uint32_t i = cursor.slot; !cross && i < batch.desc.max_query_tokens; ++i)
        entry("padding of slots", 0, v.slots, i, 8, -1);
}

// The row's block table, CSR and context slots.
void World::check_row_tables(const quire_batch_views &v, const Batch &batch, uint32_t r,
                             const std::vector<int32_t> &ids, uint32_t length, uint32_t bt,
                             ViewCursor &cursor) {
    const uint32_t blocks = ceil_div(length, bt);
    const uint64_t begin = static_cast<uint64_t>(r) * v.block_table_stride;
    for (uint32_t i = 0; i < batch.desc.max_blocks_per_row; ++i) {
        if (i < blocks)
            entry("block_table", r, v.block_table, begin + i, 4, ids.at(i));
        else if (i >= ids.size())
            entry("block_table", r, v.block_table, begin + i, 4, 0);
    }
    entry("csr_indptr", r, v.csr_indptr, r, 4, cursor.block);
    entry("csr_indptr", r, v.csr_indptr, r + 1, 4, cursor.block + static_cast<int32_t>(blocks));
    for (uint32_t i = 0; i < blocks; ++i)
        entry("csr_indices", r, v.csr_indices, static_cast<uint32_t>(cursor.block) + i, 4, ids[i]);
    cursor.block += static_cast<int32_t>(blocks);
    if (length != 0)
        entry("csr_last_page_len", r, v.csr_last_page_len, r, 4, (length - 1) % bt + 1);
    for (uint32_t p = 0; p < length; ++p)
        if (ids[p / bt] != 0)
            entry("context_slots", r, v.context_slots, cursor.context + p, 4,
                  ids[p / bt] * static_cast<int64_t>(bt) + p % bt);
    cursor.context += length;
}

// A draft of a tree sees its ancestors, itself and all before the drafts; other tokens have no
// mask.
void World::check_mask(const quire_batch_views &v, uint32_t r, uint32_t token, const Sequence &seq,
                       uint32_t place, bool masked, uint32_t length) {
    const int32_t begin = at<int32_t>(v.mask_rows)[token];
    const uint32_t root = seq.known() - seq.drafts;
    if (!masked || place < root) return same("mask_rows", r, place, begin, -1);
    if (begin < 0) fail("batch-view", "draft %u of row %u has no mask", place - root, r);
    const auto first = static_cast<uint32_t>(at<int32_t>(v.mask_first)[r]);
    for (uint32_t key = 0; key < length; ++key) {
        bool wanted = key < root;
        for (uint32_t d = place - root; !wanted; d = seq.parents[d]) {
            wanted = key == root + d;
            if (seq.parents[d] == QUIRE_MASK_ROOT) break;
        }
        const uint32_t bit = key - first;
        const bool seen =
            key < first ||
            (at<uint32_t>(v.mask)[static_cast<uint32_t>(begin) + bit / 32] >> bit % 32 & 1);
        same("mask", r, key, seen, wanted);
    }
}

}  // namespace sim

// SPDX-License-Identifier: Apache-2.0
//
// execution: a step's copies, reads and writes on the model's memory, as a device would make them.
//
// Of two steps of one queue the older is executed first; queues are free of each other. Each read
// is compared with what the sequence's chain says.
#include <algorithm>
#include <tuple>

#include "world.hpp"

namespace hybrid {
namespace {

class Execution {
 public:
    Execution(World &world, Step &step)
        : world_(world),
          step_(step),
          unwritten_(step.will_fail && step.damage == Damage::unwritten),
          garbage_(step.will_fail && step.damage == Damage::garbage),
          mark_(step.will_fail ? 1ull << step.mark : 0),
          row_marks_(step.rows.size(), 0) {}

    void run() {
        for (const quire_block_copy &copy : step_.copies) make_copy(copy);
        check_tenants();
        for (const LeasedContent &fill : step_.fills) write_leased(fill);
        for (size_t k = 0; k < step_.rows.size(); ++k) read_states(k);
        for (size_t k = 0; k < step_.rows.size(); ++k) check_state_readers(k);
        for (size_t k = 0; k < step_.rows.size(); ++k) {
            read_attention(k);
            write_row(k);
        }
        if (mark_ != 0) return;
        for (const Row &row : step_.rows) check_written(row);
        for (const LeasedContent &check : step_.checks) check_leased(check);
    }

 private:
    // The blocks on both sides of a copy.
    Block &side(Memory &memory, int32_t number, const quire_block_copy &copy, const char *name) {
        if (number <= 0 || static_cast<uint32_t>(number) >= memory.size())
            fail("copy_id", "copy kind ", copy.kind, " group ", copy.group, " ", name, " ", number,
                 " is out of range");
        return memory[number];
    }

    void make_copy(const quire_block_copy &copy) {
        const uint32_t pool = world_.config.pool_of(copy.group);
        Memory &device = world_.memory[pool];
        Memory &host = world_.host[pool];
        Block *from = nullptr;
        Block *to = nullptr;
        if (copy.kind == QUIRE_COPY_ZERO) {
            to = &side(device, copy.dst, copy, "dst");
            if (copy.src != copy.dst) fail("zero_src", "ZERO of ", copy.src, " to ", copy.dst);
        } else if (copy.kind == QUIRE_COPY_ON_WRITE || copy.kind == QUIRE_COPY_SWAP_OUT ||
                   copy.kind == QUIRE_COPY_SWAP_IN) {
            from = &side(copy.kind == QUIRE_COPY_SWAP_IN ? host : device, copy.src, copy, "src");
            to = &side(copy.kind == QUIRE_COPY_SWAP_OUT ? host : device, copy.dst, copy, "dst");
        } else {
            fail("copy_kind", "copy kind ", copy.kind);
        }
        const bool made =
            !unwritten_ && (world_.play.plant != Plant::copy || ++world_.copies_seen % 3 != 0);
        if (made && from != nullptr) *to = *from;
        if (made && from == nullptr) to->assign(to->size(), Cell());
        for (Cell &cell : *to) cell.marks = unwritten_ ? mark_ : cell.marks | mark_;
        world_.count(join("copy kind ", copy.kind));
    }

    void check_tenant(uint32_t tenant, uint32_t group, int32_t number, const char *check) {
        for (const Cell &cell : world_.block(group, number, check)) {
            if (unwritten_ || cell.tenant == 0 || cell.tenant == tenant) continue;
            // Content of a step that may still fail is not judged.
            if (cell.marks != 0 && !world_.spoilt(cell.marks, step_.committed_at)) continue;
            fail(check, "step ", step_.id, " tenant ", tenant, " group ", group, " block ", number,
                 " shows content of tenant ", cell.tenant);
        }
    }

    void check_tenants() {
        for (const Row &row : step_.rows)
            for (uint32_t g = 0; g < world_.config.group_count(); ++g)
                for (const int32_t number : row.tables[g])
                    if (number != 0) check_tenant(row.tenant, g, number, "foreign");
        for (const LeasedContent &fill : step_.fills)
            check_tenant(fill.tenant, fill.group, fill.block, "foreign_lease");
    }

    void write_leased(const LeasedContent &fill) {
        Block &block = world_.block(fill.group, fill.block, "fill");
        for (size_t i = 0; i < std::min(block.size(), fill.content.size()); ++i) {
            if (!unwritten_) block[i].content = garbage_ ? mix(mark_, i) : fill.content[i];
            block[i].tenant = fill.tenant;
            block[i].marks = mark_;
        }
    }

    std::string place(const Row &row, uint32_t group, uint32_t entry) const {
        return join("step ", step_.id, " sequence ", hex(row.handle), " first ", row.first,
                    " count ", row.count, " group ", group, " entry ", entry, " of ",
                    row.tables[group].size());
    }

    void read_states(size_t k) {
        const Row &row = step_.rows[k];
        for (uint32_t g = 0; g < world_.config.group_count(); ++g) {
            const Group &group = world_.config.groups[g];
            if (!group.recurrent()) continue;
            const auto &table = row.tables[g];
            const uint32_t last = group.state_entry(row.first + row.count);
            if (table.size() <= last) fail("short_table", place(row, g, last));
            if (row.first != 0) {
                const uint32_t from = group.entry_read(row.first, row.count);
                if (table[from] == 0) fail("null_state", place(row, g, from));
                world_.expect(world_.block(g, table[from], "state")[0],
                              state_content(g, row.chain[row.first]), step_, row, g, table[from], 0,
                              "state read", &row_marks_[k]);
            }
            for (uint32_t j = 0; j < table.size(); ++j) check_state_entry(k, g, j, last);
            if (group.interval != 0 && table.size() < last + 1 + group.drafts)
                fail("draft_entries", place(row, g, last), " drafts ", group.drafts);
        }
    }

    // True if the step writes entry j of the group's table.
    static bool is_written(const Group &group, const Row &row, uint32_t j, uint32_t last) {
        if (group.interval != 0) return j >= last;
        return j >= row.first / group.block_tokens && j <= last;
    }

    void check_state_entry(size_t k, uint32_t g, uint32_t j, uint32_t last) {
        const Row &row = step_.rows[k];
        const Group &group = world_.config.groups[g];
        const int32_t number = row.tables[g][j];
        if (is_written(group, row, j, last)) {
            if (number == 0) {
                if (j <= last || (group.interval != 0 && j <= last + group.drafts))
                    fail("null_state_w", place(row, g, j));
                return;
            }
            const auto [other, first] =
                state_writers_.insert({{world_.config.pool_of(g), number}, k});
            if (!first)
                fail("two_writers", place(row, g, j), " block ", number, " is written by rows ",
                     other->second, " and ", k);
        } else if (number != 0 && group.interval != 0) {
            fail("interval_entry", place(row, g, j), " is not null");
        } else if (number != 0 && row.first != 0 && j < group.state_entry(row.first)) {
            fail("dense_entry", place(row, g, j), " is not null after the commit");
        }
    }

    // Rows run side by side: none may write a state that another reads.
    void check_state_readers(size_t k) {
        const Row &row = step_.rows[k];
        if (row.first == 0) return;
        for (uint32_t g = 0; g < world_.config.group_count(); ++g) {
            const Group &group = world_.config.groups[g];
            if (!group.recurrent()) continue;
            const int32_t number = row.tables[g][group.entry_read(row.first, row.count)];
            const auto writer = state_writers_.find({world_.config.pool_of(g), number});
            if (writer != state_writers_.end() && writer->second != k)
                fail("race_in_step", "state block ", number, " group ", g, " read by row ", k,
                     ", written by row ", writer->second);
        }
    }

    void read_attention(size_t k) {
        const Row &row = step_.rows[k];
        for (uint32_t g = 0; g < world_.config.group_count(); ++g) {
            const Group &group = world_.config.groups[g];
            if (group.recurrent()) continue;
            for (uint32_t p = 0; p < row.first; ++p) {
                if (!group.sees(row.first, p)) continue;
                const uint32_t entry = p / group.block_tokens;
                if (entry >= row.tables[g].size() || row.tables[g][entry] == 0)
                    fail("null_needed", place(row, g, entry), " kind ", group.kind, " window ",
                         group.window, ": position ", p, " is seen");
                read_slot(row, g, p, "read before", &row_marks_[k]);
            }
        }
    }

    void read_slot(const Row &row, uint32_t g, uint32_t p, const char *use, uint64_t *marks) {
        const uint32_t size = world_.config.groups[g].block_tokens;
        const int32_t number = row.tables[g][p / size];
        world_.expect(world_.block(g, number, use)[p % size],
                      attention_content(g, row.chain[p + 1]), step_, row, g, number, p % size, use,
                      marks);
    }

    void write_row(size_t k) {
        for (uint32_t g = 0; g < world_.config.group_count(); ++g)
            if (world_.config.groups[g].recurrent())
                write_states(k, g);
            else
                write_attention(k, g);
    }

    void write_states(size_t k, uint32_t g) {
        const Row &row = step_.rows[k];
        const Group &group = world_.config.groups[g];
        const auto &table = row.tables[g];
        const uint32_t last = group.state_entry(row.first + row.count);
        for (uint32_t j = group.entry_written(row.first, row.count); j < table.size(); ++j) {
            if (table[j] == 0) continue;
            Block &block = world_.block(g, table[j], "state write");
            for (size_t i = 0; i < block.size(); ++i) {
                block[i].tenant = row.tenant;
                block[i].marks = mark_ | row_marks_[k];
                if (!unwritten_) block[i].content = mix(step_.id * 1000ull + k, i + j * 77ull);
            }
            if (j > last || unwritten_ || garbage_) continue;
            block[0].content = state_content(g, row.chain[state_length(group, row, j)]);
        }
    }

    // How many tokens the state of entry j covers after the step.
    static uint32_t state_length(const Group &group, const Row &row, uint32_t j) {
        return std::min((j + 1) * group.block_tokens, row.first + row.count);
    }

    void write_attention(size_t k, uint32_t g) {
        const Row &row = step_.rows[k];
        const uint32_t size = world_.config.groups[g].block_tokens;
        const auto &table = row.tables[g];
        const uint32_t end =
            row.writes_lookahead ? row.known + row.lookahead : row.first + row.count;
        for (uint32_t p = row.first; p < end; ++p) {
            if (p / size >= table.size() || table[p / size] == 0)
                fail("null_write", place(row, g, p / size), ": position ", p,
                     " is written, lookahead ", row.lookahead);
            const int32_t number = table[p / size];
            const auto [other, first] =
                slot_writers_.insert({{world_.config.pool_of(g), number, p % size}, k});
            if (!first)
                fail("two_writers", "group ", g, " block ", number, " slot ", p % size,
                     " is written by rows ", other->second, " and ", k);
            Cell &cell = world_.block(g, number, "write")[p % size];
            if (!unwritten_)
                cell.content = garbage_ ? mix(step_.id * 999ull + k, p)
                                        : attention_content(g, row.chain[p + 1]);
            cell.tenant = row.tenant;
            cell.marks = mark_ | row_marks_[k];
        }
    }

    // All that the row reads or wrote, once every row has written.
    void check_written(const Row &row) {
        uint64_t marks = 0;
        for (uint32_t g = 0; g < world_.config.group_count(); ++g) {
            const Group &group = world_.config.groups[g];
            if (group.recurrent()) {
                const uint32_t last = group.state_entry(row.first + row.count);
                for (uint32_t j = group.entry_written(row.first, row.count); j <= last; ++j) {
                    const int32_t number = row.tables[g][j];
                    world_.expect(world_.block(g, number, "after")[0],
                                  state_content(g, row.chain[state_length(group, row, j)]), step_,
                                  row, g, number, 0, "state after step", &marks);
                }
                continue;
            }
            for (uint32_t p = 0; p < row.first + row.count; ++p)
                if (group.sees(row.first, p)) read_slot(row, g, p, "read at attend", &marks);
        }
    }

    void check_leased(const LeasedContent &check) {
        const Block &block = world_.block(check.group, check.block, "lease check");
        for (size_t i = 0; i < check.content.size(); ++i)
            if (block[i].marks == 0 && block[i].content != check.content[i])
                fail("lease_wrong_content", "step ", step_.id, " group ", check.group, " block ",
                     check.block, " slot ", i, ": the named block holds other content, of tenant ",
                     block[i].tenant);
    }

    World &world_;
    Step &step_;
    const bool unwritten_;
    const bool garbage_;
    const uint64_t mark_;
    std::vector<uint64_t> row_marks_;  // per row: marks of all that it reads
    std::map<GroupBlock, size_t> state_writers_;
    std::map<std::tuple<uint32_t, int32_t, uint32_t>, size_t> slot_writers_;
};

}  // namespace

void World::execute(Step &step) {
    if (step.executed) return;
    for (Step &other : steps)
        if (&other != &step && !other.executed && other.queue == step.queue && other.id < step.id)
            execute(other);
    step.executed = true;
    trace("execute step ", step.id, step.will_fail ? " FAILING" : "");
    Execution(*this, step).run();
}

}  // namespace hybrid

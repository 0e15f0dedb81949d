// SPDX-License-Identifier: Apache-2.0
//
// log_reader: finds the parts of a log, each within its bytes.
//
// Threads: any; it only reads.
#pragma once

#include "core/replica/log.hpp"
#include "quire/step.h"

namespace quire {

class LogReader {
 public:
    // Finds the parts. REQUIRES: the header is checked.
    Status open(const uint8_t *bytes, const LogHeader &header, const Geometry &geometry) {
        bytes_ = bytes;
        header_ = header;
        geometry_ = &geometry;
        uint64_t ended = uint64_t{header.ended_count} * sizeof(uint32_t);
        uint64_t copies = uint64_t{header.copy_count} * sizeof(quire_block_copy);
        uint64_t rows = uint64_t{header.row_count} * sizeof(LogRow);  // each below 2^37
        copies_at_ = sizeof header + ended;
        rows_at_ = copies_at_ + copies;
        words_at_ = rows_at_ + rows;
        orders_at_ = words_at_ + uint64_t{header.mask_word_count} * sizeof(uint32_t);
        if (orders_at_ > header.size_bytes) return too_short();
        sequences_at_ = orders_at_;
        return each_order([this](const TierOrder &order, const uint8_t *) -> Status {
            sequences_at_ += size_of(order);
            return Status{};
        });
    }

    const LogHeader &header() const { return header_; }
    uint32_t ended(uint32_t i) const { return at<uint32_t>(sizeof header_ + uint64_t{i} * 4); }
    quire_block_copy copy(uint32_t i) const {
        return at<quire_block_copy>(copies_at_ + uint64_t{i} * sizeof(quire_block_copy));
    }
    const void *mask_words() const { return bytes_ + words_at_; }
    uint32_t mask_word(uint64_t i) const { return at<uint32_t>(words_at_ + i * 4); }
    LogRow row(uint32_t i) const { return at<LogRow>(rows_at_ + uint64_t{i} * sizeof(LogRow)); }

    // Calls visit(order, tokens) for the log's orders in their order, until one fails. tokens:
    // [block_tokens] within the bytes, if the order has such.
    template <typename Visit>
    Status each_order(Visit visit) const {
        uint64_t at_byte = orders_at_;
        for (uint32_t i = 0; i < header_.order_count; ++i) {
            if (header_.size_bytes - at_byte < sizeof(TierOrder)) return too_short();
            const auto order = at<TierOrder>(at_byte);
            if (header_.size_bytes - at_byte < size_of(order)) return too_short();
            QUIRE_TRY(visit(order, bytes_ + at_byte + sizeof order));
            at_byte += size_of(order);
        }
        return Status{};
    }

    // Calls visit(after, tables) for the log's sequences in their order, until one fails.
    // tables: [group_count], their ids within the bytes.
    template <typename Visit>
    Status each_sequence(Visit visit) const {
        uint64_t end = sequences_at_;
        uint32_t groups = geometry_->group_count;
        for (uint32_t i = 0; i < header_.sequence_count; ++i) {
            uint64_t head = end;
            end += sizeof(LogSequence) + groups * sizeof(LogTable);
            if (end > header_.size_bytes) return too_short();
            TableChange tables[kMaxGroups];
            for (uint32_t g = 0; g < groups; ++g) {
                LogTable shape = at<LogTable>(head + sizeof(LogSequence) + g * sizeof(LogTable));
                if (shape.null_front > shape.length || shape.first > shape.length) {
                    return fail(QUIRE_E_ARG, "damaged log: a table of {} entries begins at {}",
                                shape.length, shape.first);
                }
                tables[g] =
                    TableChange{shape, geometry_->groups[g].kept_blocks, true, bytes_ + end};
                end += uint64_t{tables[g].logged()} * 4;
                if (end > header_.size_bytes) return too_short();
            }
            QUIRE_TRY(visit(at<LogSequence>(head), tables));
        }
        if (end == header_.size_bytes) return Status{};
        return fail(QUIRE_E_ARG, "damaged log: {} bytes, but its parts take {}", header_.size_bytes,
                    end);
    }

 private:
    static Status too_short() {
        return fail(QUIRE_E_ARG, "damaged log: its parts are longer than the log");
    }
    uint64_t size_of(const TierOrder &order) const {
        return sizeof order + (order.has_tokens() ? uint64_t{geometry_->block_tokens} * 4 : 0);
    }
    template <typename T>
    T at(uint64_t offset) const {
        T value;
        std::memcpy(&value, bytes_ + offset, sizeof value);
        return value;
    }

    const uint8_t *bytes_ = nullptr;
    LogHeader header_{};
    const Geometry *geometry_ = nullptr;
    uint64_t copies_at_ = 0;
    uint64_t rows_at_ = 0;
    uint64_t words_at_ = 0;
    uint64_t orders_at_ = 0;
    uint64_t sequences_at_ = 0;
};

}  // namespace quire

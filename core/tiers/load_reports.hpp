// SPDX-License-Identifier: Apache-2.0
//
// load_reports: what followers say of the loads that their leader's log told them of: the format of
// docs/follower-log.md, and which followers a leader knows.
//
// Threads: none; Cache holds its lock.
#pragma once

#include <bit>

#include "core/base/status.hpp"

namespace quire {

static_assert(std::endian::native == std::endian::little,
              "reports are written as they lie in memory");

constexpr uint32_t kReportMagic = 0x54505251;  // "QRPT"
constexpr uint32_t kReportVersion = 1;
constexpr uint32_t kMostFollowers = 63;

struct ReportHeader {
    uint32_t magic;
    uint32_t version;
    uint64_t size_bytes;  // of the whole report
    uint64_t leader;      // its random number
    uint64_t follower;    // its random number
    uint64_t number;      // from 1, one per report
    uint64_t checksum;    // as of a log
    uint32_t count;
    uint32_t reserved0;
};
static_assert(sizeof(ReportHeader) == 56);

struct LoadOutcome {
    uint64_t serial;
    uint32_t whole;  // blocks of the load, from the first of the sequence on, that are there
    uint32_t reserved0;
};
static_assert(sizeof(LoadOutcome) == 16);

// Writes the header in front of the outcomes. header: without size and checksum.
void seal_report(ReportHeader header, uint8_t *bytes);

// A report, of which nothing is known beforehand.
class ReportReader {
 public:
    // Checks the bytes by themselves.
    Status open(const uint8_t *bytes, uint64_t size_bytes);
    const ReportHeader &header() const { return header_; }
    LoadOutcome outcome(uint32_t i) const;

 private:
    const uint8_t *bytes_ = nullptr;
    ReportHeader header_{};
};

// The followers of a leader, in the order in which they first reported. They live as long as it.
class KnownFollowers {
 public:
    // Checks that the report is a later one of a follower, of which there are at most `most`.
    // *follower: which it is.
    Status check(const ReportHeader &header, uint64_t leader, uint32_t most,
                 uint32_t *follower) const;
    void note(const ReportHeader &header, uint32_t follower);
    uint32_t count() const { return count_; }

 private:
    struct Known {
        uint64_t identity;
        uint64_t number;  // of its last report
    };

    Known known_[kMostFollowers] = {};
    uint32_t count_ = 0;
};

}  // namespace quire

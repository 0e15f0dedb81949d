// SPDX-License-Identifier: Apache-2.0
//
// faulted_report: a follower's report of loads, made by hand (docs/follower-log.md).
#pragma once

#include <cstring>
#include <vector>

#include "tests/fuzz/sealed.hpp"

namespace quire::test {

// The first report of a follower of the log's leader, which says nothing.
inline std::vector<uint8_t> empty_report(const std::vector<unsigned char> &log) {
    const uint32_t head[] = {0x54505251, 1};
    const uint64_t number = 1;
    std::vector<uint8_t> report(fuzz::kReportSeal.header_bytes);
    std::memcpy(&report[0], head, sizeof head);
    std::memcpy(&report[16], &log[16], 8);  // the leader
    std::memcpy(&report[32], &number, sizeof number);
    fuzz::seal(&report, fuzz::kReportSeal);
    return report;
}

}  // namespace quire::test

// SPDX-License-Identifier: Apache-2.0
//
// strict: backends/cpu behind a table that refuses a copy or fill whose parts depend on each other.
// A GPU runs them at the same time, backends/cpu in their order, so it alone would not show it.

#include <algorithm>
#include <vector>

#include "cpu_table.hpp"

namespace {

const quire_backend_api *cpu = nullptr;
quire_backend_api table{};

struct Range {
    uint64_t begin, end;
    bool written;
};

// True if a range that is written overlaps another one.
bool depend(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
    uint64_t read_end = 0, written_end = 0;  // of the ranges so far
    for (const Range &range : ranges) {
        if (range.begin < written_end || (range.written && range.begin < read_end)) return true;
        uint64_t &end = range.written ? written_end : read_end;
        end = std::max(end, range.end);
    }
    return false;
}

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    std::vector<Range> ranges;
    for (uint32_t i = 0; i < count; ++i) {
        ranges.push_back({copies[i].dst, copies[i].dst + copies[i].size_bytes, true});
        ranges.push_back({copies[i].src, copies[i].src + copies[i].size_bytes, false});
    }
    return depend(ranges) ? QUIRE_E_INTERNAL : cpu->copy(queue, copies, count, error);
}

quire_status fill(quire_be_queue *queue, const quire_be_range *filled, uint32_t count,
                  uint32_t byte, quire_error *error) {
    std::vector<Range> ranges;
    for (uint32_t i = 0; i < count; ++i) {
        ranges.push_back({filled[i].address, filled[i].address + filled[i].size_bytes, true});
    }
    return depend(ranges) ? QUIRE_E_INTERNAL : cpu->fill(queue, filled, count, byte, error);
}

}  // namespace

extern "C" quire_status quire_backend_query_v0(const quire_host_info *host,
                                               const quire_backend_api **out, quire_error *error) {
    quire_status status = quire::test::find_cpu_table(host, &cpu, error);
    if (status < 0) return status;
    table = *cpu;
    table.name = "strict";
    table.copy = copy;
    table.fill = fill;
    *out = &table;
    return QUIRE_OK;
}

// SPDX-License-Identifier: Apache-2.0

#include "cells.hpp"

#include <cstring>

namespace quire::gpu {

namespace {
constexpr size_t kPageBytes = 64 << 10;
}

Result Cells::add_page() {
    Cell page;
    pages_.reserve(pages_.size() + 1);
    // Room for every cell there will be, because give_back() must not fail.
    free_.reserve((pages_.size() + 1) * (kPageBytes / kCellBytes));
    if (kind_ == CellKind::pinned) {
        void *host = nullptr;
        if (Result result = driver_->host_alloc(&host, &page.address, kPageBytes)) return result;
        std::memset(host, 0, kPageBytes);
        page.host = static_cast<unsigned char *>(host);
    } else if (Result result = driver_->memory_alloc(&page.address, kPageBytes)) {
        return result;
    }
    pages_.push_back(page);
    for (size_t begin = kPageBytes; begin != 0;) {
        begin -= kCellBytes;
        free_.push_back({page.address + begin, page.host == nullptr ? nullptr : page.host + begin});
    }
    return 0;
}

Result Cells::take(Cell *out) {
    if (free_.empty()) {
        if (Result result = add_page()) return result;
    }
    *out = free_.back();
    free_.pop_back();
    return 0;
}

void Cells::give_back(const Cell &cell) {
    if (cell.address == 0) return;
    if (cell.host != nullptr) std::memset(cell.host, 0, kCellBytes);
    free_.push_back(cell);
}

void Cells::close() {
    for (const Cell &page : pages_) {
        if (kind_ == CellKind::pinned) {
            driver_->host_free(page.host);
        } else {
            driver_->memory_free(page.address);
        }
    }
    pages_.clear();
    free_.clear();
}

}  // namespace quire::gpu

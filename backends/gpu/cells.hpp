// SPDX-License-Identifier: Apache-2.0
//
// cells: 64-byte pieces of pinned or device memory, for fences and for the records of queues.
//
// Memory is allocated in pages of many cells and freed when the device is closed, so creating and
// destroying fences does not call the driver.
//
// Invariants
//   (1) a cell is either free or handed out once
//   (2) fresh and freed cells of pinned memory are zero; those of device memory hold anything
//
// Threads: none; the device's mutex. The device's context is current.
#pragma once

#include <vector>

#include "context.hpp"

namespace quire::gpu {

struct Cell {
    uint64_t address = 0;           // as kernels see it; 0: none
    unsigned char *host = nullptr;  // NULL for device memory
};
constexpr size_t kCellBytes = 64;

enum class CellKind { pinned, device };

class Cells {
 public:
    explicit Cells(CellKind kind) : kind_(kind) {}

    void open(const Driver *driver) { driver_ = driver; }
    [[nodiscard]] Result take(Cell *out);
    void give_back(const Cell &cell);
    // REQUIRES: no running work uses a cell.
    void close();

 private:
    Result add_page();

    CellKind kind_;
    const Driver *driver_ = nullptr;
    std::vector<Cell> pages_;
    std::vector<Cell> free_;
};

}  // namespace quire::gpu

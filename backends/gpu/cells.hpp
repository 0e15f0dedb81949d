// SPDX-License-Identifier: Apache-2.0
//
// cells: pieces of 64 bytes of pinned or device memory: fences, and what queues say of themselves.
//
// Memory comes in pages of many cells and goes back when the device is closed, so that a fence
// which comes and goes asks the driver for nothing.
//
// Invariants
//   (1) a cell is free or handed out, once
//   (2) fresh and freed cells of pinned memory are zero; of device memory hold anything
//
// Threads: none; the device's mutex. The device's context is current.
#pragma once

#include <vector>

#include "context.hpp"

namespace quire::gpu {

struct Cell {
    uint64_t address = 0;           // as kernels know it; 0: none
    unsigned char *host = nullptr;  // NULL of device memory
};
constexpr size_t kCellBytes = 64;

enum class CellKind { pinned, device };

class Cells {
 public:
    explicit Cells(CellKind kind) : kind_(kind) {}

    void open(const Driver *driver) { driver_ = driver; }
    [[nodiscard]] Result take(Cell *out);
    void give_back(const Cell &cell);
    // REQUIRES: nothing that runs uses a cell.
    void close();

 private:
    Result add_page();

    CellKind kind_;
    const Driver *driver_ = nullptr;
    std::vector<Cell> pages_;
    std::vector<Cell> free_;
};

}  // namespace quire::gpu

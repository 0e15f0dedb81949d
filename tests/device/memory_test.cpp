// SPDX-License-Identifier: Apache-2.0
//
// Memory of the cpu backend: where large allocations begin, what they contain, and that freeing one
// frees all of it and nothing else.

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "cpu_cache.hpp"

namespace quire::test {

namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kOddSizes[] = {kHugePage,         kHugePage + 1, kHugePage + 4095,    3'000'001,
                                  2 * kHugePage - 1, 2 * kHugePage, 5 * kHugePage + 4097};

class Memory {
 public:
    Memory(CpuCache &owner, uint64_t size_bytes, uint32_t kind, void *host_pointer = nullptr)
        : owner_(owner) {
        auto desc = described<quire_memory_desc>();
        desc.host_pointer = host_pointer;
        desc.size_bytes = size_bytes;
        desc.kind = kind;
        owner.must(owner.api.memory_create(owner.device, &desc, &handle_, &owner.error));
        auto info = described<quire_memory_info>();
        owner.must(owner.api.memory_get_info(handle_, &info, &owner.error));
        begin = static_cast<unsigned char *>(info.host_pointer);
        end = begin + size_bytes;
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() { EXPECT_EQ(owner_.api.memory_destroy(handle_, &owner_.error), QUIRE_OK); }

    bool holds(unsigned char byte) const {
        return std::all_of(begin, end, [byte](unsigned char one) { return one == byte; });
    }

    quire_memory *handle() const { return handle_; }

    unsigned char *begin = nullptr;
    unsigned char *end = nullptr;

 private:
    CpuCache &owner_;
    quire_memory *handle_ = nullptr;
};

// The system's flags for the pages at `address`, such as "rd wr mr mw me ac hg"; empty if nothing
// is mapped there.
std::string flags_at(const unsigned char *address) {
    auto wanted = reinterpret_cast<uint64_t>(address);
    std::ifstream maps("/proc/self/smaps");
    bool is_inside = false;
    for (std::string line; std::getline(maps, line);) {
        uint64_t begin = 0;
        uint64_t end = 0;
        char dash = 0;
        if (std::istringstream(line) >> std::hex >> begin >> dash >> end && dash == '-') {
            is_inside = begin <= wanted && wanted < end;
        } else if (is_inside && line.starts_with("VmFlags:")) {
            return line;
        }
    }
    return "";
}

uint64_t mapped_bytes() {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * 4096;
}

}  // namespace

TEST(Memory, engines_own_is_copied_where_it_lies) {
    CpuCache c({.blocks = 4});
    std::vector<unsigned char> own(1000, 3);
    quire_queue *queue = nullptr;
    c.must(c.api.queue_create(c.device, nullptr, &queue, &c.error));
    {
        Memory imported(c, own.size(), QUIRE_MEMORY_HOST, own.data());
        Memory made(c, own.size(), QUIRE_MEMORY_DEVICE);
        EXPECT_EQ(imported.begin, own.data());
        EXPECT_TRUE(imported.holds(3));
        c.must(c.api.memory_copy(queue, made.handle(), 0, imported.handle(), 0, 900, &c.error));
        c.must(c.api.memory_copy(queue, imported.handle(), 100, made.handle(), 800, 200, &c.error));
        c.must(c.api.queue_sync(queue, &c.error));
    }
    c.must(c.api.queue_destroy(queue, &c.error));
    std::vector<unsigned char> expected(1000, 3);
    std::fill_n(expected.begin() + 200, 100, static_cast<unsigned char>(0));
    EXPECT_EQ(own, expected);
}

TEST(CpuMemory, large_ones_begin_at_a_huge_page_and_are_zero_to_their_last_byte) {
    CpuCache cpu({.blocks = 2});
    for (uint32_t kind : {QUIRE_MEMORY_DEVICE, QUIRE_MEMORY_HOST}) {
        for (uint64_t size_bytes : kOddSizes) {
            Memory memory(cpu, size_bytes, kind);
            EXPECT_EQ(reinterpret_cast<uint64_t>(memory.begin) % kHugePage, 0u) << size_bytes;
            EXPECT_TRUE(memory.holds(0)) << size_bytes;
            std::fill(memory.begin, memory.end, 0xFF);
        }
    }
}

TEST(CpuMemory, large_ones_ask_for_huge_pages_and_small_ones_do_not) {
    if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
        GTEST_SKIP() << "this system has no transparent huge pages";
    }
    CpuCache cpu({.blocks = 2});
    for (uint32_t kind : {QUIRE_MEMORY_DEVICE, QUIRE_MEMORY_HOST}) {
        Memory large(cpu, 2 * kHugePage, kind);
        EXPECT_NE(flags_at(large.begin).find(" hg"), std::string::npos) << flags_at(large.begin);
        Memory small(cpu, kHugePage - 1, kind);
        ASSERT_NE(flags_at(small.begin), "");
        EXPECT_EQ(flags_at(small.begin).find(" hg"), std::string::npos) << flags_at(small.begin);
    }
}

TEST(CpuMemory, freeing_one_leaves_its_neighbours) {
    CpuCache cpu({.blocks = 2});
    for (uint64_t size_bytes : kOddSizes) {
        Memory before(cpu, size_bytes, QUIRE_MEMORY_DEVICE);
        auto middle = std::make_unique<Memory>(cpu, size_bytes, QUIRE_MEMORY_DEVICE);
        Memory after(cpu, size_bytes, QUIRE_MEMORY_DEVICE);
        std::fill(before.begin, before.end, 0x11);
        std::fill(middle->begin, middle->end, 0x22);
        std::fill(after.begin, after.end, 0x33);
        const unsigned char *last = middle->end - 1;
        const unsigned char *first = middle->begin;
        middle.reset();
        EXPECT_EQ(flags_at(first), "") << size_bytes;
        EXPECT_EQ(flags_at(last), "") << size_bytes;
        EXPECT_TRUE(before.holds(0x11)) << size_bytes;
        EXPECT_TRUE(after.holds(0x33)) << size_bytes;
    }
}

TEST(CpuMemory, nothing_stays_mapped) {
    CpuCache cpu({.blocks = 2});
    uint64_t before = mapped_bytes();
    for (int i = 0; i < 200; ++i) {
        for (uint64_t size_bytes : kOddSizes) Memory(cpu, size_bytes, QUIRE_MEMORY_DEVICE);
    }
    EXPECT_LT(mapped_bytes(),
              before + 8 * kHugePage);  // 2 MiB each would be 2.9 GB
}

}  // namespace quire::test

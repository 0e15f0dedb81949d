// SPDX-License-Identifier: Apache-2.0
//
// arguments: what the target `handles` passes to functions: live objects, any handles, structs of
// any stated size, and arrays that are exactly as large as their count and stride say.
//
// Everything that a call gets is in memory of its own, which a sanitizer watches, until check().
//
// Threads: none.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "library.hpp"

namespace quire::fuzz {

struct Room {
    void *bytes;
    uint64_t size_bytes;
};

struct Items {
    const quire_step_item *items;
    uint32_t count, stride;
    const quire_token *tokens;
    uint32_t token_count;
    quire_step_result *results;
    uint32_t result_stride;
};

class Arguments {
 public:
    // plugin: of a backend "answers" with two devices.
    Arguments(Bytes *input, const std::string &plugin);

    const quire_api &api;
    quire_instance *instance = nullptr;
    quire_device *device = nullptr;
    std::vector<quire_queue *> queues;
    std::vector<quire_fence *> fences;
    std::vector<quire_memory *> memories;
    std::vector<quire_cache *> caches;
    std::vector<quire_batch *> batches;

    // After each call: words for a refusal; what was passed is released.
    void check(const char *name, quire_status status);
    // Gives everything back. Nothing may be left.
    void close();

    // Numbers. Rare ones are nearly always 0.
    uint32_t below(uint32_t bound) { return input_.below(bound); }
    uint32_t n32() { return input_.number32(); }
    uint64_t n64() { return input_.number(); }
    int64_t signed64() { return static_cast<int64_t>(input_.number()); }
    uint32_t rare32() { return input_.one_in(32) ? input_.number32() : 0; }
    float real() {
        return static_cast<float>(input_.number()) * (input_.one_in(8) ? -0.5F : 0.25F);
    }

    // Any handle that was given out, sometimes with other bits, or a number.
    uint64_t handle();
    uint64_t rare_handle() { return input_.one_in(4) ? handle() : 0; }

    template <typename T>
    T *one(const std::vector<T *> &of) {
        if (of.empty() || input_.one_in(64)) return nullptr;
        return of[input_.byte() % of.size()];
    }
    quire_cache *cache() { return one(caches); }

    // Calls make(out), and keeps the object.
    template <typename T, typename Make>
    quire_status made(std::vector<T *> *kept, Make make) {
        T *object = nullptr;
        quire_status status = make(&object);
        require((status >= 0) == (object != nullptr),
                "an object comes from success, and only then");
        if (object != nullptr) kept->push_back(object);
        return status;
    }
    template <typename Make>
    quire_status handle_made(Make make) {
        uint64_t handle = 0;
        quire_status status = make(&handle);
        require(status >= 0 || handle == 0, "no handle comes from a failure");
        if (handle != 0) handles_.push_back(handle);
        return status;
    }
    // Calls destroy(object), and forgets the object if it is gone.
    template <typename T, typename Destroy>
    quire_status gone(std::vector<T *> *kept, Destroy destroy) {
        T *object = one(*kept);
        quire_status status = destroy(object);
        if (status >= 0 && object != nullptr) std::erase(*kept, object);
        return status;
    }

    quire_error *error() {
        error_ = new_error();
        return &error_;
    }

    // Memory for one call. `memory(0)` is not NULL.
    char *memory(size_t size_bytes) {
        kept_.push_back(std::make_unique<char[]>(size_bytes));
        return kept_.back().get();
    }
    Room room() {
        uint64_t size_bytes = input_.one_in(2) ? 4096 : input_.byte();
        return {memory(size_bytes), size_bytes};
    }
    const void *bytes(uint32_t size_bytes) {
        return size_bytes == 0 ? nullptr : memory(size_bytes);
    }
    uint32_t *number_out() { return input_.one_in(64) ? nullptr : outputs<uint32_t>(1, 4); }
    uint64_t *size_out() { return input_.one_in(64) ? nullptr : outputs<uint64_t>(1, 8); }
    const char *text();
    // A path in a folder that does not exist; NULL sometimes.
    const char *absent() { return input_.one_in(8) ? nullptr : "/nowhere/at/all"; }
    const quire_native *native();

    // A struct whose memory ends where its stated size does.
    template <typename T>
    const T *input(T value) {
        if (input_.one_in(64)) return nullptr;
        value.struct_size = struct_size(sizeof value);
        value.flags = value.flags | (input_.one_in(16) ? 1u << (input_.byte() & 31) : 0);
        size_t size = std::max<size_t>(value.struct_size, sizeof(uint32_t));
        char *at = memory(size);
        std::memcpy(at, &value, std::min(size, sizeof value));
        if (value.struct_size > sizeof value) at[value.struct_size - 1] = input_.one_in(4) ? 1 : 0;
        if (value.struct_size >= sizeof value && input_.one_in(64)) chain(at);
        return reinterpret_cast<const T *>(at);
    }
    template <typename T>
    T *output() {
        if (input_.one_in(64)) return nullptr;
        uint32_t size = struct_size(sizeof(T));
        char *at = memory(std::max<size_t>(size, sizeof(uint32_t)));
        std::memcpy(at, &size, sizeof size);
        return reinterpret_cast<T *>(at);
    }

    template <typename T>
    uint32_t stride() {
        if (!input_.one_in(16)) return sizeof(T);
        return input_.one_in(2) ? input_.byte() : sizeof(T) + 8 * input_.below(8);
    }
    // Arrays of elements, `stride` bytes apart; NULL sometimes.
    template <typename T>
    T *outputs(uint32_t count, uint32_t stride) {
        if (input_.one_in(64)) return nullptr;
        return reinterpret_cast<T *>(memory(size_t{count} * stride));
    }
    template <typename T>
    const T *inputs(const T *values, uint32_t count, uint32_t stride) {
        char *at = memory(size_t{count} * stride);
        for (uint32_t i = 0; i < count; ++i) {
            std::memcpy(at + size_t{i} * stride, values + i, std::min<size_t>(stride, sizeof(T)));
        }
        return input_.one_in(64) ? nullptr : reinterpret_cast<const T *>(at);
    }
    const uint32_t *numbers(uint32_t count);
    const int64_t *wide_numbers(uint32_t count);

    const quire_cache_desc *cache_desc();
    const quire_migrate_desc *migrate_desc();
    const quire_size_desc *size_desc();
    const quire_seq_desc *seq_desc();
    // A session's stream: bytes of the input, or a failure after some of them.
    const quire_export_desc *export_desc();
    const quire_import_desc *import_desc();
    const quire_handover_send_desc *send_desc();
    const quire_handover_receive_desc *receive_desc();
    // Reads into the stream that write_handover() goes on to give.
    template <typename Read>
    quire_status read_handover(Read read) {
        const Room into = room();
        uint64_t size_bytes = 0;
        auto *bytes = static_cast<char *>(into.bytes);
        quire_status status = read(bytes, into.size_bytes, &size_bytes);
        require(size_bytes <= into.size_bytes, "no more is read than asked for");
        handed_.insert(handed_.end(), bytes, bytes + size_bytes);
        return status;
    }
    template <typename Write>
    quire_status write_handover(Write write) {
        const uint64_t size_bytes = std::min<uint64_t>(handed_.size(), n64());
        char *at = memory(size_bytes);
        std::memcpy(at, handed_.data(), size_bytes);
        uint64_t used = 0;
        quire_status status = write(at, size_bytes, &used);
        require(used <= size_bytes, "no more is taken than given");
        handed_.erase(handed_.begin(), handed_.begin() + static_cast<std::ptrdiff_t>(used));
        return status;
    }
    const quire_step_desc *step_desc();
    const quire_batch_desc *batch_desc();
    const quire_merge_args *merge_args();
    Items items();

 private:
    uint32_t struct_size(size_t usual) {
        if (!input_.one_in(16)) return static_cast<uint32_t>(usual);
        return input_.one_in(2) ? input_.byte() : input_.number32() & 8191;
    }
    void chain(char *head);
    static quire_status take(void *user, const void *bytes, uint64_t size_bytes);
    static quire_status give(void *user, void *bytes, uint64_t size_bytes);

    // What the last export wrote, which the next import reads.
    std::vector<char> session_;
    size_t session_read_ = 0;
    quire_status stream_status_ = QUIRE_OK;
    std::vector<char> handed_;

    Bytes &input_;
    int64_t live_before_;
    quire_error error_ = new_error();
    std::vector<uint64_t> handles_;
    std::vector<std::unique_ptr<char[]>> kept_;
};

}  // namespace quire::fuzz

// SPDX-License-Identifier: Apache-2.0

#include "transfer.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <mutex>
#include <vector>

#include "recorder.hpp"
#include "shared/checks.hpp"

namespace quire::vulkan {

namespace {

// Copies between two buffers.
struct Run {
    VkBuffer src;
    VkBuffer dst;
    std::vector<VkBufferCopy> regions;
};

// Ring memory that a call reads and writes (staging.hpp).
struct Staged {
    std::vector<PieceHold> pieces;
    std::vector<Landing> landings;
};

quire_status no_ring(uint64_t size_bytes, quire_error *error) {
    return fail(error, QUIRE_E_DEVICE_MEMORY,
                "out of memory for staging %" PRIu64
                " bytes of a copy with host memory that the device cannot reach",
                size_bytes);
}

// Finds the newest bytes of host memory that the device cannot reach, as many as lie in one piece.
quire_status stage_source(Device &device, const unsigned char *host, uint64_t size_bytes,
                          Staged *staged, Span *span, quire_error *error) {
    uint64_t offset = 0;
    uint64_t run_bytes = 0;
    PieceHold piece;
    bool is_there = false;
    {
        std::lock_guard lock(device.mutex);
        device.staging.land();
        piece = device.staging.find(host, size_bytes, &offset, &run_bytes);
        is_there = piece != nullptr;
        run_bytes = std::min(run_bytes, Staging::kPieceBytes);
        if (!is_there) piece = device.staging.take(device.context, run_bytes);
    }
    if (piece == nullptr) return no_ring(run_bytes, error);
    if (!is_there) std::memcpy(piece->host, host, run_bytes);
    *span = {piece->buffer, piece->offset + offset, run_bytes};
    staged->pieces.push_back(std::move(piece));
    return QUIRE_OK;
}

quire_status stage_destination(Device &device, unsigned char *host, uint64_t size_bytes,
                               Staged *staged, Span *span, quire_error *error) {
    uint64_t run_bytes = std::min(size_bytes, Staging::kPieceBytes);
    std::unique_lock lock(device.mutex);
    PieceHold piece = device.staging.take(device.context, run_bytes);
    lock.unlock();
    if (piece == nullptr) return no_ring(run_bytes, error);
    *span = {piece->buffer, piece->offset, run_bytes};
    staged->landings.push_back({host, run_bytes, piece, nullptr, 0});
    staged->pieces.push_back(std::move(piece));
    return QUIRE_OK;
}

// True if the whole range is allocated or imported memory.
bool is_memory(Device &device, uint64_t address, uint64_t size_bytes) {
    Span span{};
    unsigned char *host = nullptr;
    return device.memory.find(address, size_bytes, &span) ||
           device.memory.find_staged(address, size_bytes, &host);
}

// Finds the first bytes of one side of a copy, at most *size_bytes, and sets that to their number.
// REQUIRES: is_memory().
quire_status find_side(Device &device, uint64_t address, bool is_read, Staged *staged, Span *span,
                       uint64_t *size_bytes, quire_error *error) {
    quire_status status = QUIRE_OK;
    unsigned char *host = nullptr;
    if (!device.memory.find_staged(address, *size_bytes, &host)) {
        device.memory.find(address, *size_bytes, span);
    } else if (is_read) {
        status = stage_source(device, host, *size_bytes, staged, span, error);
    } else {
        status = stage_destination(device, host, *size_bytes, staged, span, error);
    }
    if (status == QUIRE_OK) *size_bytes = std::min(*size_bytes, span->size_bytes);
    return status;
}

// Adds one copy, split where either side continues in another buffer. REQUIRES: both are memory.
quire_status add_copy(Device &device, const quire_be_copy &one, std::vector<Run> *runs,
                      Staged *staged, quire_error *error) {
    Span src{}, dst{};
    // No more of the ring is taken than is copied, so a side outside the ring is looked up first.
    // If both sides are in the ring, the source comes first, since it may lie in several pieces.
    bool is_src_last = is_staged(one.src) && !is_staged(one.dst);
    for (uint64_t done = 0; done < one.size_bytes;) {
        uint64_t piece = one.size_bytes - done;
        auto find = [&](bool is_read) {
            return find_side(device, (is_read ? one.src : one.dst) + done, is_read, staged,
                             is_read ? &src : &dst, &piece, error);
        };
        if (quire_status status = find(!is_src_last)) return status;
        if (quire_status status = find(is_src_last)) return status;
        if (runs->empty() || runs->back().src != src.buffer || runs->back().dst != dst.buffer) {
            runs->push_back({src.buffer, dst.buffer, {}});
        }
        runs->back().regions.push_back({src.offset, dst.offset, piece});
        done += piece;
    }
    return QUIRE_OK;
}

// Adds the parts of a range, one per buffer. REQUIRES: it is memory.
quire_status add_spans(Device &device, const quire_be_range &range, std::vector<Span> *spans,
                       Staged *staged, quire_error *error) {
    for (uint64_t done = 0; done < range.size_bytes; done += spans->back().size_bytes) {
        Span span{};
        uint64_t left = range.size_bytes - done;
        quire_status status =
            find_side(device, range.address + done, false, staged, &span, &left, error);
        if (status != QUIRE_OK) return status;
        spans->push_back(span);
    }
    return QUIRE_OK;
}

void fill_bytes(Recorder &recorder, const Span &span, uint64_t offset, uint64_t size_bytes,
                uint32_t byte) {
    if (size_bytes == 0) return;
    Span from = recorder.device().memory.bytes_of(byte);
    VkBufferCopy region = {from.offset, span.offset + offset, size_bytes};
    recorder.vk().vkCmdCopyBuffer(recorder.commands(), from.buffer, span.buffer, 1, &region);
}

void fill_span(Recorder &recorder, const Span &span, uint32_t byte) {
    uint64_t head = std::min((4 - span.offset % 4) % 4, span.size_bytes);
    uint64_t words = (span.size_bytes - head) / 4 * 4;
    fill_bytes(recorder, span, 0, head, byte);
    if (words != 0) {
        recorder.vk().vkCmdFillBuffer(recorder.commands(), span.buffer, span.offset + head, words,
                                      byte * 0x01010101u);
    }
    fill_bytes(recorder, span, head + words, span.size_bytes - head - words, byte);
}

// The transfer lane, for swapping: if the copies move enough bytes, all between host and device. An
// engine's VkQueue keeps its own copies. REQUIRES: the copies were checked.
Lane lane_of(const Queue &queue, const quire_be_copy *copies, uint32_t count) {
    const Context &context = queue.device->context;
    if (context.transfer == VK_NULL_HANDLE || queue.bound != VK_NULL_HANDLE) return Lane::compute;
    uint64_t missing_bytes = context.transfer_least_bytes;
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t kind = copies[i].kind;
        if (kind != QUIRE_BE_COPY_D2H && kind != QUIRE_BE_COPY_H2D) return Lane::compute;
        missing_bytes -= std::min(missing_bytes, copies[i].size_bytes);
    }
    return missing_bytes == 0 ? Lane::transfer : Lane::compute;
}

}  // namespace

quire_status enqueue_copies(Queue &queue, const quire_be_copy *copies, uint32_t count,
                            quire_error *error) {
    Recorder recorder(queue);
    Device &device = *queue.device;
    Lane lane = lane_of(queue, copies, count);
    if (quire_status status = recorder.begin(error, lane)) return status;
    std::vector<Run> runs;
    Staged staged;
    for (uint32_t i = 0; i < count; ++i) {
        const quire_be_copy &one = copies[i];
        if (one.size_bytes != 0 && (!is_memory(device, one.src, one.size_bytes) ||
                                    !is_memory(device, one.dst, one.size_bytes))) {
            return fail(error, QUIRE_E_ARG,
                        "copy %u of %" PRIu64 " bytes begins or ends outside this device's memory",
                        i, one.size_bytes);
        }
        if (quire_status status = add_copy(device, one, &runs, &staged, error)) {
            return status;
        }
    }
    if (runs.empty()) return QUIRE_OK;
    for (const Run &run : runs) {
        recorder.vk().vkCmdCopyBuffer(recorder.commands(), run.src, run.dst,
                                      static_cast<uint32_t>(run.regions.size()),
                                      run.regions.data());
    }
    recorder.keep(std::move(staged.pieces), std::move(staged.landings));
    return recorder.finish(error);
}

quire_status enqueue_fill(Queue &queue, const quire_be_range *ranges, uint32_t count, uint32_t byte,
                          quire_error *error) {
    Device &device = *queue.device;
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    std::vector<Span> spans;
    Staged staged;
    for (uint32_t i = 0; i < count; ++i) {
        if (ranges[i].size_bytes != 0 &&
            !is_memory(device, ranges[i].address, ranges[i].size_bytes)) {
            return fail(error, QUIRE_E_ARG,
                        "fill range %u of %" PRIu64
                        " bytes begins or ends outside this device's memory",
                        i, ranges[i].size_bytes);
        }
        quire_status status = add_spans(device, ranges[i], &spans, &staged, error);
        if (status != QUIRE_OK) return status;
    }
    if (spans.empty()) return QUIRE_OK;
    for (const Span &span : spans) fill_span(recorder, span, byte);
    recorder.keep(std::move(staged.pieces), std::move(staged.landings));
    return recorder.finish(error);
}

}  // namespace quire::vulkan

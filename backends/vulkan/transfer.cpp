// SPDX-License-Identifier: Apache-2.0

#include "transfer.hpp"

#include <algorithm>
#include <cinttypes>
#include <vector>

#include "recorder.hpp"
#include "shared/checks.hpp"
#include "shared/copies.hpp"

namespace quire::vulkan {

namespace {

// Copies between two buffers.
struct Run {
    VkBuffer src;
    VkBuffer dst;
    std::vector<VkBufferCopy> regions;
};

// Adds one copy, cut where either side goes on in another buffer.
bool add_copy(Memory &memory, const quire_be_copy &one, std::vector<Run> *runs) {
    Span src{}, dst{};
    for (uint64_t done = 0; done < one.size_bytes;) {
        uint64_t left = one.size_bytes - done;
        if (!memory.find(one.src + done, left, &src) || !memory.find(one.dst + done, left, &dst)) {
            return false;
        }
        uint64_t piece = std::min(src.size_bytes, dst.size_bytes);
        if (runs->empty() || runs->back().src != src.buffer || runs->back().dst != dst.buffer) {
            runs->push_back({src.buffer, dst.buffer, {}});
        }
        runs->back().regions.push_back({src.offset, dst.offset, piece});
        done += piece;
    }
    return true;
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

// Of what is swapped: enough bytes, all between host and device. An engine's VkQueue keeps its own.
// REQUIRES: the copies were checked.
Lane lane_of(const quire_be_queue &queue, const quire_be_copy *copies, uint32_t count) {
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

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_copies(copies, count, error)) return status;
    if (count == 0) return QUIRE_OK;
    Recorder recorder(queue);
    Lane lane = lane_of(*queue, copies, count);
    if (quire_status status = recorder.begin(error, lane)) return status;
    std::vector<Run> runs;
    for (uint32_t i = 0; i < count; ++i) {
        if (add_copy(queue->device->memory, copies[i], &runs)) continue;
        return fail(error, QUIRE_E_ARG,
                    "copy %u of %" PRIu64 " bytes begins or ends outside this device's memory", i,
                    copies[i].size_bytes);
    }
    if (runs.empty()) return QUIRE_OK;
    for (const Run &run : runs) {
        recorder.vk().vkCmdCopyBuffer(recorder.commands(), run.src, run.dst,
                                      static_cast<uint32_t>(run.regions.size()),
                                      run.regions.data());
    }
    return recorder.finish(error);
}

quire_status fill(quire_be_queue *queue, uint64_t address, uint64_t size_bytes, uint32_t byte,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_fill(address, size_bytes, byte, error)) return status;
    if (size_bytes == 0) return QUIRE_OK;
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    std::vector<Span> spans;
    for (uint64_t done = 0; done < size_bytes; done += spans.back().size_bytes) {
        Span span{};
        if (!queue->device->memory.find(address + done, size_bytes - done, &span)) {
            return fail(error, QUIRE_E_ARG,
                        "a fill of %" PRIu64 " bytes begins or ends outside this device's memory",
                        size_bytes);
        }
        spans.push_back(span);
    }
    for (const Span &span : spans) fill_span(recorder, span, byte);
    return recorder.finish(error);
}

}  // namespace quire::vulkan

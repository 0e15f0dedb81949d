// SPDX-License-Identifier: Apache-2.0

#include "recorder.hpp"

#include <algorithm>

#include "fence.hpp"
#include "kernels/spirv.hpp"
#include "shared/checks.hpp"

namespace quire::vulkan {

namespace {

// While the device is busy, commands are submitted this many at a time.
constexpr uint32_t kCommandsPerBatch = 32;

// The push constants of every kernel; kernels/call.glsl.
struct Push {
    uint64_t arguments;
    uint64_t fault;
    uint64_t chunk_table;
    uint32_t chunk_shift;
    uint32_t turn[2];
    uint32_t reserved0;
    uint64_t workgroup_count;
};
static_assert(sizeof(Push) == kPushBytes);

void full_barrier(const VolkDeviceTable &vk, VkCommandBuffer commands, VkPipelineStageFlags2 stage,
                  VkAccessFlags2 access) {
    VkMemoryBarrier2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2;
    memory.srcStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
    memory.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
    memory.dstStageMask = stage;
    memory.dstAccessMask = access;
    VkDependencyInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO;
    info.memoryBarrierCount = 1;
    info.pMemoryBarriers = &memory;
    vk.vkCmdPipelineBarrier2(commands, &info);
}

// Opens a reused recording or a new one. REQUIRES: the device's mutex is held.
void open_batch(Queue *queue) {
    std::unique_ptr<Recording> recording;
    if (!queue->spare.empty()) {
        recording = std::move(queue->spare.back());
        queue->spare.pop_back();
        recording->arguments.reset();
    } else {
        recording = std::make_unique<Recording>();
    }
    recording->is_recording = false;
    recording->lane = Lane::compute;
    recording->command_count = 0;
    recording->turn = queue->next_turn++;
    queue->open = std::move(recording);
}

// Gives a recording a command buffer of the lane. REQUIRES: it has none yet; the mutex is held.
quire_status choose_lane(Queue *queue, Recording *recording, Lane lane, quire_error *error) {
    auto index = static_cast<size_t>(lane);
    if (recording->commands[index] == VK_NULL_HANDLE) {
        const Context &context = queue->device->context;
        VkCommandBufferAllocateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
        info.commandPool = queue->pools[index];
        info.commandBufferCount = 1;
        VkResult result =
            context.vk.vkAllocateCommandBuffers(context.handle, &info, &recording->commands[index]);
        if (result != VK_SUCCESS) return fail_vulkan(error, result, "a command buffer");
    }
    recording->lane = lane;
    return QUIRE_OK;
}

}  // namespace

quire_status Recorder::begin(quire_error *error, Lane lane) {
    if (queue_->open != nullptr && queue_->open->is_recording && queue_->open->lane != lane) {
        close_recording();
    }
    {
        std::lock_guard lock(queue_->device->mutex);
        queue_->poll();
        if (quire_status status = queue_->check_usable(error)) return status;
        if (queue_->open == nullptr) {
            open_batch(queue_);
        }
        if (!queue_->open->is_recording) {
            quire_status status = choose_lane(queue_, queue_->open.get(), lane, error);
            if (status != QUIRE_OK) return status;
        }
    }
    Recording &recording = *queue_->open;
    if (recording.is_recording) return QUIRE_OK;
    VkCommandBufferBeginInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    VkResult result = vk().vkBeginCommandBuffer(commands(), &info);
    if (result != VK_SUCCESS) return fail_vulkan(error, result, "to record");
    recording.is_recording = true;
    // A timeline orders execution only; this makes an earlier recording's writes visible.
    barrier();
    return QUIRE_OK;
}

quire_status Recorder::wait(const FenceStep &step, quire_error *error) {
    if (queue_->open != nullptr && queue_->open->is_recording) close_recording();
    {
        std::lock_guard lock(queue_->device->mutex);
        if (quire_status status = open_bare(error)) return status;
        queue_->open->waits.push_back(step);
        step.fence->references.add();
    }
    return queue_->bound != VK_NULL_HANDLE ? submit(error) : QUIRE_OK;
}

quire_status Recorder::wait_native(const VkSemaphoreSubmitInfo &info, quire_error *error) {
    if (queue_->open != nullptr && queue_->open->is_recording) close_recording();
    {
        std::lock_guard lock(queue_->device->mutex);
        if (quire_status status = open_bare(error)) return status;
        queue_->open->native_waits.push_back(info);
    }
    return queue_->bound != VK_NULL_HANDLE ? submit(error) : QUIRE_OK;
}

quire_status Recorder::signal(const FenceStep &step, quire_error *error) {
    close_recording();
    {
        std::lock_guard lock(queue_->device->mutex);
        if (quire_status status = open_bare(error)) return status;
        queue_->open->signals.push_back(step);
        step.fence->references.add();
    }
    close_recording();
    return QUIRE_OK;
}

quire_status Recorder::signal_native(const VkSemaphoreSubmitInfo &info, quire_error *error) {
    close_recording();
    {
        std::lock_guard lock(queue_->device->mutex);
        queue_->device->pump();
        if (queue_->device->staging.is_landing()) {
            return fail(error, QUIRE_E_BUSY,
                        "a copy to host memory that the device cannot reach is still pending, and "
                        "the semaphore would be signalled before its bytes arrive: first wait for "
                        "a fence that follows the copy");
        }
        // The engine would submit its wait before our signal; the VkQueue would then run neither.
        if (!queue_->held.empty() && !queue_->has_failed()) {
            return fail(error, QUIRE_E_BUSY,
                        "the queue waits for a fence that has not been signalled, so the "
                        "semaphore's signal could not be submitted: signal the fence first");
        }
        if (quire_status status = open_bare(error)) return status;
        queue_->open->native_signals.push_back(info);
    }
    return submit(error);
}

quire_status Recorder::open_bare(quire_error *error) {
    queue_->poll();
    if (quire_status status = queue_->check_usable(error)) return status;
    if (queue_->open == nullptr) open_batch(queue_);
    return QUIRE_OK;
}

uint64_t Recorder::arguments(const void *from, uint64_t size_bytes) {
    uint64_t address = 0;
    void *to = queue_->open->arguments.take(queue_->device->context, size_bytes, &address);
    if (to != nullptr) std::memcpy(to, from, size_bytes);
    return address;
}

uint64_t Recorder::scratch(uint64_t size_bytes, Span *span) {
    Buffer &scratch = queue_->scratch;
    if (scratch.size_bytes() < size_bytes) {
        Buffer larger;
        uint64_t wanted = std::max(size_bytes, scratch.size_bytes() * 2);
        Context &context = queue_->device->context;
        if (larger.make(context, wanted, BufferKind::device) != VK_SUCCESS) return 0;
        queue_->open->outgrown.push_back(std::move(scratch));
        scratch = std::move(larger);
    }
    *span = {scratch.handle(), 0, size_bytes};
    return scratch.address();
}

void Recorder::keep(std::vector<PieceHold> pieces, std::vector<Landing> landings) {
    if (pieces.empty()) return;
    std::lock_guard lock(queue_->device->mutex);
    Recording &recording = *queue_->open;
    for (PieceHold &piece : pieces) recording.pieces.push_back(std::move(piece));
    for (Landing &landing : landings) {
        landing.queue = queue_;
        landing.turn = recording.turn;
        queue_->device->staging.add(std::move(landing));
    }
}

void Recorder::dispatch(const Kernel &kernel, uint64_t arguments, uint64_t workgroup_count) {
    constexpr uint64_t kRow = 65535;  // the limit that every device supports in each dimension
    uint64_t turn = queue_->open->turn;
    const Memory &memory = queue_->device->memory;
    Push push = {arguments,
                 queue_->fault_buffer.address(),
                 memory.chunk_table_address(),
                 memory.chunk_shift(),
                 {static_cast<uint32_t>(turn), static_cast<uint32_t>(turn >> 32)},
                 0,
                 workgroup_count};
    vk().vkCmdBindPipeline(commands(), VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vk().vkCmdPushConstants(commands(), kernel.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push,
                            &push);
    uint64_t rows = (workgroup_count - 1) / kRow + 1;
    vk().vkCmdDispatch(commands(), static_cast<uint32_t>(std::min(workgroup_count, kRow)),
                       static_cast<uint32_t>(rows), 1);
}

void Recorder::barrier() {
    full_barrier(vk(), commands(), VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                 VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT);
}

quire_status Recorder::finish(quire_error *error) {
    barrier();
    bool is_idle = false;
    uint32_t count = ++queue_->open->command_count;
    {
        std::lock_guard lock(queue_->device->mutex);
        queue_->poll();
        is_idle = queue_->is_idle();
    }
    // No engine recording may come in between, so ours does not wait.
    if (queue_->bound != VK_NULL_HANDLE) return submit(error);
    if (is_idle || count >= kCommandsPerBatch) close_recording();
    return QUIRE_OK;
}

quire_status Recorder::submit(quire_error *error) {
    uint64_t turn = queue_->open->turn;
    close_recording();
    std::lock_guard lock(queue_->device->mutex);
    // A submitted recording counts as enqueued, even if an earlier call's fault is known by now.
    return queue_->submitted_turn >= turn ? QUIRE_OK : queue_->check_usable(error);
}

void Recorder::close_recording() {
    if (queue_->open == nullptr) return;
    Recording &recording = *queue_->open;
    VkResult ended = VK_SUCCESS;
    if (recording.is_recording) {
        full_barrier(vk(), commands(), VK_PIPELINE_STAGE_2_HOST_BIT,
                     VK_ACCESS_2_HOST_READ_BIT | VK_ACCESS_2_HOST_WRITE_BIT);
        ended = vk().vkEndCommandBuffer(commands());
    }
    std::lock_guard lock(queue_->device->mutex);
    // If memory ran out during recording, it is reported here, and no command of the recording
    // counts.
    if (ended != VK_SUCCESS) queue_->refuse(recording.turn, ended, "the recorded commands");
    queue_->held.push_back(std::move(queue_->open));
    queue_->device->pump();
}

}  // namespace quire::vulkan

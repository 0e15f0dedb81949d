// SPDX-License-Identifier: Apache-2.0
//
// engine_rig: an engine with its own stream and event beside the plugin, on the emulator.
#pragma once

#include "driver_rig.hpp"

namespace quire::gpu_tests {

class Engine : public Driver {
 protected:
    void SetUp() override {
        Driver::SetUp();
        rig_.emplace(api());
        ASSERT_EQ(rig_->open(), QUIRE_OK) << rig_->error.message;
        is_cuda_ = std::string(vendor().name) == "cuda";
        if (is_cuda_) {
            void *primary = nullptr;
            auto retain = of_engine<int (*)(void **, int)>("cuDevicePrimaryCtxRetain");
            int device = 0;
            ASSERT_EQ(of_engine<int (*)(int *, int)>("cuDeviceGet")(&device, 0), 0);
            ASSERT_EQ(retain(&primary, device), 0);
            of_engine<int (*)(int)>("cuDevicePrimaryCtxRelease")(device);
            make_current(primary);
        }
        auto create = of_engine<int (*)(void **, unsigned)>(is_cuda_ ? "cuEventCreate"
                                                                     : "hipEventCreateWithFlags");
        ASSERT_EQ(create(&event_, 0), 0);
        stream_ = new_stream();
    }
    void TearDown() override {
        destroy_graph();
        api().queue_release(bound_);
        rig_.reset();
        destroy_stream(stream_);
        of_engine<int (*)(void *)>(is_cuda_ ? "cuEventDestroy" : "hipEventDestroy")(event_);
        if (is_cuda_) make_current(nullptr);
        Driver::TearDown();
    }

    void make_current(void *context) { of_engine<int (*)(void *)>("cuCtxSetCurrent")(context); }
    void *new_stream(bool is_blocking = false) {
        void *stream = nullptr;
        auto create = of_engine<int (*)(void **, unsigned, int)>(
            is_cuda_ ? "cuStreamCreateWithPriority" : "hipStreamCreateWithPriority");
        EXPECT_EQ(create(&stream, is_blocking ? 0 : 1, 0), 0);
        return stream;
    }
    void destroy_stream(void *stream) {
        of_engine<int (*)(void *)>(call_of("cuStreamDestroy", "hipStreamDestroy"))(stream);
    }
    void engine_fills(void *stream, uint64_t address, unsigned char byte, size_t size_bytes) {
        auto fill = of_engine<int (*)(uint64_t, unsigned char, size_t, void *)>(vendor().fill);
        EXPECT_EQ(fill(address, byte, size_bytes, stream), 0);
    }
    bool is_event_done() {
        return of_engine<int (*)(void *)>(is_cuda_ ? "cuEventQuery" : "hipEventQuery")(event_) == 0;
    }
    quire_native native(uint32_t of_cuda, uint32_t of_hip, void *value) const {
        quire_native made{};
        made.kind = is_cuda_ ? of_cuda : of_hip;
        made.value = reinterpret_cast<uint64_t>(value);
        return made;
    }
    quire_native as_stream(void *stream) const {
        return native(QUIRE_NATIVE_CUDA_STREAM, QUIRE_NATIVE_HIP_STREAM, stream);
    }
    quire_native as_event(void *event) const {
        return native(QUIRE_NATIVE_CUDA_EVENT, QUIRE_NATIVE_HIP_EVENT, event);
    }
    quire_status bind(const quire_native &stream) {
        return api().queue_bind(rig_->device, &stream, &bound_, &rig_->error);
    }
    void copy_to_host(quire_be_queue *queue, uint64_t from, uint64_t size_bytes) {
        quire_be_copy copy = {rig_->host_address, from, size_bytes, QUIRE_BE_COPY_D2H, 0};
        ASSERT_EQ(api().copy(queue, &copy, 1, &rig_->error), QUIRE_OK) << rig_->error.message;
    }

    const char *call_of(const char *of_cuda, const char *of_hip) const {
        return is_cuda_ ? of_cuda : of_hip;
    }
    void begin_capture() { begin_capture(stream_); }
    void begin_capture(void *stream) {
        auto begin = of_engine<int (*)(void *, int)>(
            call_of("cuStreamBeginCapture", "hipStreamBeginCapture"));
        ASSERT_EQ(begin(stream, 0), 0);
    }
    // 0 on success: the captured graph is then the test's.
    int end_capture() { return end_capture(stream_); }
    int end_capture(void *stream) {
        void *captured = nullptr;
        auto end = of_engine<int (*)(void *, void **)>(
            call_of("cuStreamEndCapture", "hipStreamEndCapture"));
        if (int result = end(stream, &captured)) return result;
        auto instantiate = of_engine<int (*)(void **, void *, unsigned long long)>(
            call_of("cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"));
        destroy_graph();
        EXPECT_EQ(instantiate(&graph_, captured, 0), 0);
        auto destroy = of_engine<int (*)(void *)>(call_of("cuGraphDestroy", "hipGraphDestroy"));
        EXPECT_EQ(destroy(captured), 0);
        return 0;
    }
    void launch() {
        auto launch =
            of_engine<int (*)(void *, void *)>(call_of("cuGraphLaunch", "hipGraphLaunch"));
        ASSERT_EQ(launch(graph_, stream_), 0);
    }
    void destroy_graph() {
        if (graph_ == nullptr) return;
        auto destroy =
            of_engine<int (*)(void *)>(call_of("cuGraphExecDestroy", "hipGraphExecDestroy"));
        EXPECT_EQ(destroy(graph_), 0);
        graph_ = nullptr;
    }

    std::optional<Rig> rig_;
    bool is_cuda_ = false;
    void *stream_ = nullptr;
    void *event_ = nullptr;
    void *graph_ = nullptr;  // the last captured graph
    quire_be_queue *bound_ = nullptr;
};

}  // namespace quire::gpu_tests

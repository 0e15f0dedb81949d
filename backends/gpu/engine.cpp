// SPDX-License-Identifier: Apache-2.0

#include "engine.hpp"

#include <atomic>
#include <cinttypes>

#include "device.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

// Checks the result of a driver call that was given a stream.
quire_status check_asked(Device *device, Result result, const char *what, quire_error *error) {
    const Driver &driver = *device->context.driver;
    if (!driver.is_no_stream(result)) return device->check(result, what, error);
    return fail(error, QUIRE_E_ARG, "the %s driver does not know this stream: %s (%d)",
                driver.vendor, driver.describe(result), result);
}

}  // namespace

quire_status check_rest(const quire_native &native, quire_error *error) {
    if (native.reserved0 == 0 && native.aux0 == 0 && native.aux1 == 0) return QUIRE_OK;
    return fail(error, QUIRE_E_STRUCT,
                "native kind %u: reserved0 is %u, aux0 is %" PRIu64 " and aux1 is %" PRIu64
                "; they must be 0",
                native.kind, native.reserved0, native.aux0, native.aux1);
}

quire_status find_native_stream(Device *device, const quire_native &native, Stream *out,
                                quire_error *error) {
    constexpr uint64_t kLegacy = 1, kFirstHandle = 3;
    const Driver &driver = *device->context.driver;
    if (native.kind != driver.stream_kind) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "native kind %u is not a queue that this backend supports; use "
                    "QUIRE_NATIVE_%s_STREAM or QUIRE_NATIVE_NONE",
                    native.kind, driver.vendor);
    }
    if (quire_status status = check_rest(native, error)) return status;
    if (native.value == kLegacy && !driver.has_legacy_stream()) {
        return fail(
            error, QUIRE_E_UNSUPPORTED,
            "this %s driver does not support stream 1 (ROCm 6.3 and later do): use stream 0",
            driver.vendor);
    }
    auto stream = reinterpret_cast<Stream>(native.value);
    bool is_ours = true;
    if (native.value >= kFirstHandle) {
        Result result = driver.stream_is_of(stream, device->context.handle, &is_ours);
        if (quire_status status = check_asked(device, result, "a stream", error)) return status;
    }
    *out = stream;
    if (is_ours) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "the stream belongs to another device or not to the device's primary context");
}

uint64_t owner_of(Stream stream) {
    constexpr uint64_t kPerThread = 2;
    if (reinterpret_cast<uint64_t>(stream) != kPerThread) return 0;
    // Not the system's thread number: a later thread may get the same one, with another stream.
    static std::atomic<uint64_t> thread_count{0};
    thread_local const uint64_t number = thread_count.fetch_add(1) + 1;
    return number;
}

quire_status check_capture(Device *device, Stream stream, bool *is_captured, quire_error *error) {
    Capture capture = Capture::none;
    Result result = device->context.driver->stream_capture(stream, &capture);
    quire_status status =
        check_asked(device, result, "to report whether the stream is being captured", error);
    if (status != QUIRE_OK) return status;
    *is_captured = capture == Capture::active;
    // Drivers differ: some would refuse a call now, others would run it at once.
    if (capture == Capture::broken) {
        return fail(error, QUIRE_E_BUSY,
                    "the engine's capture of this stream has failed: end the capture first");
    }
    if (capture != Capture::elsewhere) return QUIRE_OK;
    return fail(error, QUIRE_E_BUSY,
                "the engine is capturing another stream, which the legacy stream waits for: "
                "nothing can be enqueued on the legacy stream until that capture ends");
}

}  // namespace quire::gpu

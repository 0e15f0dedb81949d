// SPDX-License-Identifier: Apache-2.0
//
// A backend that is wrong, lies or throws: the caller gets an error that names the backend; the
// process and its live objects survive; nothing is leaked.
//
// The faults strike once (hostile/hostile.cpp), so every failed call is repeated and must succeed:
// a failed call changed nothing.

#include <dlfcn.h>

#include <cstdlib>

#include "core/device/backend_call.hpp"
#include "counting_host.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

// One life of a device: every kind of object, every launch, every call that reaches a backend.
class Work {
 public:
    explicit Work(const std::string &path) {
        error_.struct_size = sizeof error_;
        auto desc = host_.description();
        desc.plugin_path = "/nowhere";
        EXPECT_EQ(api_.instance_create(&desc, &instance_, nullptr), QUIRE_OK);
        uint32_t index = 0;
        load_ = api_.backend_load(instance_, path.c_str(), &index, &error_);
        message_ = error_.message;
    }
    ~Work() {
        EXPECT_EQ(api_.instance_destroy(instance_, nullptr), QUIRE_OK);
        EXPECT_EQ(host_.live_bytes, 0);
    }

    quire_status load() const { return load_; }
    quire_status first_failure() const { return failure_; }
    std::string message() const { return message_; }
    std::string backend() const { return error_.backend; }

    void run() {
        auto desc = described<quire_device_desc>();
        desc.backend = "hostile";
        twice("device_open", [&] { return api_.device_open(instance_, &desc, &device_, &error_); });
        if (device_ == nullptr) return;
        auto info = described<quire_device_info>();
        twice("device_get_info", [&] { return api_.device_get_info(device_, &info, &error_); });
        use_queues();
        if (queue_ == nullptr || other_ == nullptr) return;
        use_cache();
        twice("queue_destroy", [&] { return api_.queue_destroy(other_, &error_); });
        twice("queue_destroy", [&] { return api_.queue_destroy(queue_, &error_); });
        twice("device_close", [&] { return api_.device_close(device_, &error_); });
    }

 private:
    // Makes the call; if it fails, makes it once more, and then it must succeed.
    template <typename Call>
    void twice(const char *what, Call &&call) {
        quire_status status = call();
        if (status == QUIRE_OK) return;
        EXPECT_EQ(failure_, QUIRE_OK) << what << " is a second failure: " << error_.message;
        failure_ = status;
        message_ = error_.message;
        if (refused_for_good_) return;
        EXPECT_EQ(call(), QUIRE_OK) << what << " again: " << error_.message;
    }

    void use_queues() {
        twice("queue_create",
              [&] { return api_.queue_create(device_, nullptr, &queue_, &error_); });
        twice("queue_create",
              [&] { return api_.queue_create(device_, nullptr, &other_, &error_); });
        quire_fence *fence = nullptr;
        quire_memory *memory[2] = {};
        uint64_t value = 0;
        twice("fence_create", [&] { return api_.fence_create(device_, 0, &fence, &error_); });
        twice("fence_signal", [&] { return api_.fence_signal(fence, 1, &error_); });
        twice("fence_read", [&] { return api_.fence_read(fence, &value, &error_); });
        EXPECT_EQ(value, 1u);
        twice("fence_wait", [&] { return api_.fence_wait(fence, 1, 0, &error_); });
        twice("queue_signal", [&] { return api_.queue_signal(queue_, fence, 2, &error_); });
        twice("queue_after", [&] { return api_.queue_after(other_, fence, 2, &error_); });
        twice("queue_sync", [&] { return api_.queue_sync(queue_, &error_); });
        for (uint32_t i = 0; i < 2; ++i) {
            auto desc = described<quire_memory_desc>();
            desc.size_bytes = 64;
            desc.kind = i == 0 ? QUIRE_MEMORY_HOST : QUIRE_MEMORY_DEVICE;
            twice("memory_create",
                  [&] { return api_.memory_create(device_, &desc, &memory[i], &error_); });
        }
        twice("memory_copy",
              [&] { return api_.memory_copy(queue_, memory[0], 0, memory[1], 0, 64, &error_); });
        for (quire_memory *each : memory) api_.memory_destroy(each, nullptr);
        use_import();
        twice("fence_destroy", [&] { return api_.fence_destroy(fence, &error_); });
    }

    void use_cache() {
        auto shard = described<quire_shard_desc>();
        shard.device = device_;
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 8;
        auto desc = described<quire_cache_desc>();
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.blocks = 16;
        desc.host_bytes = 1 << 16;
        quire_cache *cache = nullptr;
        twice("cache_create", [&] { return api_.cache_create(instance_, &desc, &cache, &error_); });
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto batch_desc = described<quire_batch_desc>();
        batch_desc.max_rows = batch_desc.max_blocks_per_row = batch_desc.max_query_tokens = 8;
        batch_desc.views = QUIRE_VIEW_SLOTS;
        batch_desc.attention = &attention;
        batch_desc.attention_count = 1;
        batch_desc.attention_stride = sizeof attention;
        quire_batch *batch = nullptr;
        twice("batch_create",
              [&] { return api_.batch_create(cache, &batch_desc, &batch, &error_); });
        if (batch != nullptr) use_step(cache, batch);
        if (cache != nullptr) use_tree(cache);
        use_merge();
        use_natives();
        twice("batch_destroy", [&] { return api_.batch_destroy(batch, &error_); });
        twice("cache_destroy", [&] { return api_.cache_destroy(cache, &error_); });
    }

    // A step of one sequence, without a batch. A failed commit undoes it.
    void use_bare_step(quire_cache *cache, const quire_step_item &item, const uint32_t *words,
                       uint32_t word_count) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        quire_step_result result{};
        quire_step step = 0;
        ASSERT_EQ(api_.step_begin(cache, &desc, &item, 1, sizeof item, words, word_count, &result,
                                  sizeof result, &step, &error_),
                  QUIRE_OK)
            << error_.message;
        quire_status status = api_.step_commit(cache, step, nullptr, &error_);
        if (status == QUIRE_OK) {
            EXPECT_EQ(api_.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error_), QUIRE_OK);
            return;
        }
        EXPECT_EQ(failure_, QUIRE_OK) << "a second failure: " << error_.message;
        failure_ = status;
        message_ = error_.message;
    }

    // Two sibling drafts; the second is kept and must be moved.
    void use_tree(quire_cache *cache) {
        auto seq_desc = described<quire_seq_desc>();
        quire_step_item item{};
        ASSERT_EQ(api_.seq_create(cache, &seq_desc, &item.seq, &error_), QUIRE_OK);
        uint32_t words[] = {5, 6, 7, QUIRE_MASK_ROOT, QUIRE_MASK_ROOT};
        item.token_count = 3;
        item.draft_count = item.mask_rows = 2;
        item.mask_kind = QUIRE_MASK_PARENTS;
        item.mask_offset = 3;
        use_bare_step(cache, item, words, 5);
        uint32_t path = 1;
        quire_status status = api_.seq_accept_path(cache, item.seq, &path, 1, &error_);
        if (status == QUIRE_E_UNSUPPORTED) return;  // the backend has no move_tokens
        ASSERT_EQ(status, QUIRE_OK) << error_.message;
        quire_step_item more{};
        more.seq = item.seq;
        more.token_count = 1;
        use_bare_step(cache, more, words, 1);
    }

    void use_merge() {
        auto merge = described<quire_merge_args>();
        merge.parts = merge.lses = merge.out = 4096;
        merge.part_count = merge.token_count = merge.heads = merge.head_dim = 1;
        twice("attention_merge", [&] {
            quire_status status = api_.attention_merge(queue_, &merge, &error_);
            return status == QUIRE_E_UNSUPPORTED ? quire_status{QUIRE_OK} : status;  // no function
        });
    }

    void use_import() {
        alignas(64) char bytes[64] = {};
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = sizeof bytes;
        desc.kind = QUIRE_MEMORY_HOST;
        desc.host_pointer = bytes;
        quire_memory *memory = nullptr;
        twice("memory_create", [&] {
            quire_status status = api_.memory_create(device_, &desc, &memory, &error_);
            return status == QUIRE_E_UNSUPPORTED ? quire_status{QUIRE_OK} : status;  // no function
        });
        if (memory != nullptr) api_.memory_destroy(memory, nullptr);
    }

    void use_natives() {
        quire_native native{};
        auto call = [&](const char *name, auto function) {
            twice(name, [&] {
                quire_status status = function(queue_, &native, &error_);
                return status == QUIRE_E_UNSUPPORTED ? quire_status{QUIRE_OK}
                                                     : status;  // no function
            });
        };
        call("queue_signal_native", api_.queue_signal_native);
        call("queue_after_native", api_.queue_after_native);
    }

    void use_step(quire_cache *cache, quire_batch *batch) {
        auto seq_desc = described<quire_seq_desc>();
        quire_step_item item{};
        ASSERT_EQ(api_.seq_create(cache, &seq_desc, &item.seq, &error_), QUIRE_OK);
        item.token_count = 1;
        uint32_t token = 5;
        for (quire_queue *queue : {queue_, other_}) {
            auto desc = described<quire_step_desc>();
            desc.queues = &queue;
            desc.queue_count = 1;
            quire_step_result result{};
            quire_step step = 0;
            twice("step_begin", [&] {
                return api_.step_begin(cache, &desc, &item, 1, sizeof item, &token, 1, &result,
                                       sizeof result, &step, &error_);
            });
            twice("step_commit", [&] { return api_.step_commit(cache, step, batch, &error_); });
            auto kv = described<quire_kv_args>();
            kv.k = kv.v = 4096;
            twice("kv_write", [&] { return api_.kv_write(batch, &kv, queue, &error_); });
            auto attend = described<quire_attend_args>();
            attend.q = attend.out = 4096;
            twice("attend", [&] { return api_.attend(batch, &attend, queue, &error_); });
            twice("step_finish",
                  [&] { return api_.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error_); });
        }
    }

    const quire_api &api_ = library();
    CountingHost host_;
    quire_error error_{};
    quire_instance *instance_ = nullptr;
    quire_device *device_ = nullptr;
    quire_queue *queue_ = nullptr, *other_ = nullptr;
    quire_status load_ = QUIRE_OK, failure_ = QUIRE_OK;
    bool refused_for_good_ = false;
    std::string message_;

 public:
    void refused_for_good() { refused_for_good_ = true; }
};

// Both ways in which a plugin may bring its C++ runtime.
class Hostile : public testing::TestWithParam<const char *> {
 protected:
    std::string path() const {
        const char *folder = std::getenv("QUIRE_HOSTILE_DIR");
        return std::string(folder != nullptr ? folder : ".") + "/" + GetParam();
    }
    void arm(const std::string &fault) { setenv("QUIRE_HOSTILE", fault.c_str(), 1); }
    template <typename T>
    T ask(const char *symbol) const {
        void *library = dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL);
        EXPECT_NE(library, nullptr) << dlerror();
        return reinterpret_cast<T (*)()>(dlsym(library, symbol))();
    }
    int64_t live() const { return ask<int64_t>("hostile_live"); }
    uint64_t struck() const { return ask<uint64_t>("hostile_struck"); }

    // The plugin is refused with this status and a message that contains `words`.
    void expect_refused(const std::string &fault, quire_status status, const std::string &words) {
        arm(fault);
        Work work(path());
        EXPECT_EQ(work.load(), status) << fault << ": " << work.message();
        EXPECT_NE(work.message().find(words), std::string::npos) << fault << ": " << work.message();
        EXPECT_NE(work.message().find(GetParam()), std::string::npos) << work.message();
        EXPECT_EQ(struck(), 1u) << fault;
    }
    // The plugin loads; one call fails with this status and such a message, and the rest succeeds.
    void expect_told(const std::string &fault, quire_status status, const std::string &words) {
        arm(fault);
        {
            Work work(path());
            ASSERT_EQ(work.load(), QUIRE_OK) << fault << ": " << work.message();
            work.run();
            EXPECT_EQ(work.first_failure(), status) << fault << ": " << work.message();
            EXPECT_NE(work.message().find(words), std::string::npos)
                << fault << ": " << work.message();
            if (status < 0) {
                EXPECT_EQ(work.backend(), "hostile") << fault;
            }
        }
        EXPECT_EQ(struck(), 1u) << fault << " was never reached";
        EXPECT_EQ(live(), 0) << fault;
    }
};

// What a caller sees of a broken contract. move_tokens is called by a commit alone, which has one
// code for a step that is gone (step.h, quire_step_commit).
quire_status broken_contract(const std::string &function) {
    return function == "move_tokens" ? QUIRE_E_DEVICE_LOST : QUIRE_E_BACKEND;
}

std::vector<const quire::FunctionInfo *> all_functions() {
    std::vector<const quire::FunctionInfo *> functions;
    for (uint32_t at = offsetof(quire_backend_api, probe);
         at < offsetof(quire_backend_api, features); at += sizeof(void *)) {
        functions.push_back(quire::find_function(at));
    }
    return functions;
}

bool gives_back(const std::string &function) {
    return function == "device_close" || function == "mem_free" || function == "queue_release" ||
           function == "fence_destroy" || function == "plan_destroy";
}
bool never_called(const std::string &function) {
    return function == "fill" || function == "quiesce";
}

TEST_P(Hostile, without_its_fault_it_works) {
    arm("");
    Work work(path());
    ASSERT_EQ(work.load(), QUIRE_OK) << work.message();
    work.run();
    EXPECT_EQ(work.first_failure(), QUIRE_OK) << work.message();
    EXPECT_EQ(live(), 0);
    EXPECT_EQ(struck(), 0u);
}

TEST_P(Hostile, a_table_that_cannot_be_is_refused) {
    expect_refused("major", QUIRE_E_INCOMPATIBLE, "7.1");
    expect_refused("minor", QUIRE_E_INCOMPATIBLE, "minor 99");
    expect_refused("short", QUIRE_E_BACKEND, "struct_size");
    expect_refused("half_slot", QUIRE_E_BACKEND, "struct_size");
    expect_refused("huge", QUIRE_E_BACKEND, "struct_size");
    expect_refused("null_table", QUIRE_E_BACKEND, "missing");
    expect_refused("devices", QUIRE_E_BACKEND, "4294967295 devices");
}

TEST_P(Hostile, a_name_that_cannot_be_shown_is_refused) {
    expect_refused("name_null", QUIRE_E_BACKEND, "no name");
    expect_refused("name_empty", QUIRE_E_BACKEND, "no name");
    expect_refused("name_long", QUIRE_E_BACKEND, "31 bytes");
    expect_refused("name_open", QUIRE_E_BACKEND, "31 bytes");
    expect_refused("name_odd", QUIRE_E_BACKEND, "may have only");
}

TEST_P(Hostile, what_load_throws_or_makes_up_stops_there) {
    expect_refused("throw:query", QUIRE_E_BACKEND, "exception");
    expect_refused("status:-1234:query", QUIRE_E_BACKEND, "-1234");
    expect_refused("status:77:query", QUIRE_E_BACKEND, "77");
    expect_refused("open_words:query", QUIRE_E_DEVICE_LOST, "xxxx");
    expect_refused("throw:probe", QUIRE_E_BACKEND, "exception");
    expect_refused("status:3:probe", QUIRE_E_BACKEND, "3");
}

// A message about a backend is logged with no lock held, so that the callback may query it.
TEST_P(Hostile, a_log_callback_may_call_back) {
    struct Listener {
        const quire_api &api;
        quire_instance *instance = nullptr;
        uint32_t calls = 0;
    } listener{library()};
    auto desc = described<quire_instance_desc>();
    desc.plugin_path = "/nowhere";
    desc.log_user = &listener;
    desc.log = [](void *user, int32_t, const char *, const char *) {
        auto *to = static_cast<Listener *>(user);
        uint32_t count = 0;
        if (to->instance == nullptr) return;  // still being created
        EXPECT_EQ(to->api.backend_count(to->instance, &count, nullptr), QUIRE_OK);
        ++to->calls;
    };
    ASSERT_EQ(listener.api.instance_create(&desc, &listener.instance, nullptr), QUIRE_OK);
    arm("throw:probe");
    uint32_t index = 0;
    EXPECT_EQ(listener.api.backend_load(listener.instance, path().c_str(), &index, nullptr),
              QUIRE_E_BACKEND);
    EXPECT_EQ(listener.calls, 1u);
    EXPECT_EQ(listener.api.instance_destroy(listener.instance, nullptr), QUIRE_OK);
}

TEST_P(Hostile, a_table_that_changes_later_is_not_looked_at_again) {
    expect_told("changes", QUIRE_OK, "");
}

TEST_P(Hostile, a_device_is_not_opened_without_a_function_it_needs) {
    for (const quire::FunctionInfo *function : all_functions()) {
        std::string name = function->name;
        std::string fault = "null_slot:" + std::to_string(function->offset);
        if (name == "probe") {
            expect_refused(fault, QUIRE_E_BACKEND, "probe");
            continue;
        }
        arm(fault);
        Work work(path());
        ASSERT_EQ(work.load(), QUIRE_OK) << name << ": " << work.message();
        work.refused_for_good();
        work.run();
        EXPECT_EQ(work.first_failure(), function->needed ? QUIRE_E_UNSUPPORTED : QUIRE_OK) << name;
        if (function->needed) {
            EXPECT_NE(work.message().find(name), std::string::npos) << work.message();
            EXPECT_EQ(work.backend(), "hostile");
        }
        EXPECT_EQ(live(), 0) << name;
    }
}

TEST_P(Hostile, what_a_function_throws_stops_at_it) {
    for (const quire::FunctionInfo *function : all_functions()) {
        std::string name = function->name;
        if (name == "probe" || name == "shutdown" || never_called(name)) continue;
        if (gives_back(name)) {
            expect_told("throw:" + name, QUIRE_OK, "");
        } else {
            expect_told("throw:" + name, broken_contract(name), "exception out of " + name);
        }
    }
    expect_told("throw:shutdown", QUIRE_OK, "");  // the last device is still closed
}

TEST_P(Hostile, a_status_that_the_contract_does_not_have_is_the_backends_fault) {
    for (const quire::FunctionInfo *function : all_functions()) {
        std::string name = function->name;
        if (name == "probe" || name == "shutdown" || never_called(name) || gives_back(name))
            continue;
        for (const char *status : {"77", "-1234", "1", "-2147483648", "2147483647"}) {
            expect_told(std::string("status:") + status + ":" + name, broken_contract(name),
                        std::string("returned ") + status + " from " + name);
        }
        if (name != "fence_wait_host") {
            expect_told("status:3:" + name, broken_contract(name), "returned 3");
        }
        expect_told("open_words:" + name, QUIRE_E_DEVICE_LOST, "xxxx");
        expect_told("status:-8:" + name, QUIRE_E_DEVICE_LOST, "without a reason");
    }
}

TEST_P(Hostile, success_without_an_object_is_no_success) {
    for (const char *name : {"device_open", "queue_bind", "fence_create", "mem_alloc"}) {
        expect_told(std::string("nothing:") + name, QUIRE_E_BACKEND,
                    std::string("success, but ") + name);
    }
    expect_told("nothing:plan_create", QUIRE_E_BACKEND, "success, but plan_create");
}

TEST_P(Hostile, answers_that_cannot_be_are_refused) {
    expect_told("nothing:mem_import", QUIRE_E_BACKEND, "success, but mem_import");
    expect_told("endless:mem_import", QUIRE_E_BACKEND, "past the address space");
    expect_told("crooked:mem_alloc", QUIRE_E_BACKEND, "aligned");
    expect_told("unreachable:mem_alloc", QUIRE_E_BACKEND, "without a host pointer");
    expect_told("nonsense:query_attention", QUIRE_E_BACKEND, "query_attention");
    expect_told("props_free", QUIRE_E_BACKEND, "more free memory");
    expect_told("props_alignment", QUIRE_E_BACKEND, "copy_alignment");
    expect_told("props_flags", QUIRE_E_BACKEND, "not requested");
    expect_told("props_visible", QUIRE_E_BACKEND, "host_visible");
    expect_told("props_name", QUIRE_OK, "");
}

INSTANTIATE_TEST_SUITE_P(SharedRuntime, Hostile, testing::Values("quire_backend_hostile.so"));
INSTANTIATE_TEST_SUITE_P(StaticRuntime, Hostile,
                         testing::Values("quire_backend_hostile_static.so"));

}  // namespace

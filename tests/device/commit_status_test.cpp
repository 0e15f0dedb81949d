// SPDX-License-Identifier: Apache-2.0
//
// Whatever a backend returns, each error of a commit has one meaning: QUIRE_E_DEVICE_LOST says that
// the step was lost and its handle is stale; every other error says that the step is still open and
// nothing changed.

#include <dlfcn.h>

#include <memory>
#include <string>

#include "cpu_cache.hpp"
#include "failing.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

template <typename Function>
Function *find(const char *name) {
    void *module = dlopen(quire::tests::place(QUIRE_FAILING).c_str(), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function *>(dlsym(module, name));
}

class CommitStatus : public testing::TestWithParam<quire_status> {
 protected:
    CommitStatus() {
        const std::string path = quire::tests::place(QUIRE_FAILING);
        CacheShape shape;
        shape.blocks = 24;
        shape.block_tokens = 4;
        shape.backend = "failing";
        shape.path = path.c_str();
        shape.threads = 1;
        c_ = std::make_unique<CpuCache>(shape);
        c_->must(c_->api.queue_create(c_->device, nullptr, &queue_, &c_->error));
        parent_ = c_->create();
        commit_cleanly(c_->begin(queue_, parent_, {1, 2, 3, 4, 5, 6}, &result_));
    }
    ~CommitStatus() override {
        c_->must(c_->api.queue_sync(queue_, &c_->error));
        c_->must(c_->api.step_abort(c_->cache, open(), &c_->error));  // notices that all has run
        c_->must(c_->api.queue_destroy(queue_, &c_->error));
    }

    // A step without items.
    quire_step open() {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        quire_step step = 0;
        c_->must(c_->api.step_begin(c_->cache, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &step,
                                    &c_->error));
        return step;
    }
    void commit_cleanly(quire_step step) {
        c_->must(c_->api.step_commit(c_->cache, step, nullptr, &c_->error));
        c_->must(c_->api.step_finish(c_->cache, step, nullptr, QUIRE_STEP_OK, &c_->error));
        c_->must(c_->api.queue_sync(queue_, &c_->error));
    }
    // A step of a fork whose first token copies the block that it shares.
    quire_step with_a_copy() {
        if (fork_ != 0) c_->must(c_->api.seq_end(c_->cache, fork_, 0, &c_->error));
        c_->must(c_->api.seq_fork(c_->cache, parent_, 6, &fork_, &c_->error));
        return c_->begin(queue_, fork_, {7}, &result_);
    }

    std::unique_ptr<CpuCache> c_;
    quire_queue *queue_ = nullptr;
    quire_seq parent_ = 0, fork_ = 0;
    quire_step_result result_{};
};

TEST_P(CommitStatus, is_one_when_the_step_is_lost) {
    auto *plant = find<decltype(quire_failing_plant_call)>("quire_failing_plant_call");
    auto *answer = find<decltype(quire_failing_answer)>("quire_failing_answer");
    answer(GetParam());
    uint32_t lost = 0, calls = 0;
    for (bool reached = true; reached; ++calls) {
        ASSERT_LT(calls, 100u);
        quire_step step = with_a_copy();
        c_->must(c_->api.queue_sync(queue_, &c_->error));
        plant(calls + 1);
        c_->error.native_code = 0;
        quire_status status = c_->api.step_commit(c_->cache, step, nullptr, &c_->error);
        reached = plant(0) == 0;
        if (status >= 0) {
            c_->must(c_->api.step_finish(c_->cache, step, nullptr, QUIRE_STEP_OK, &c_->error));
            continue;
        }
        bool means_lost = status == QUIRE_E_DEVICE_LOST;
        lost += means_lost;
        if (means_lost) {
            EXPECT_EQ(c_->error.native_code, GetParam()) << "fault " << calls + 1;
        }
        EXPECT_EQ(c_->api.step_abort(c_->cache, step, &c_->error),
                  means_lost ? QUIRE_E_STALE : QUIRE_OK)
            << "fault " << calls + 1 << ", commit returned " << status;
        EXPECT_GE(c_->api.cache_check(c_->cache, &c_->error), 0) << c_->error.message;
    }
    EXPECT_GT(lost, 0u);
    answer(QUIRE_E_DEVICE_LOST);
}

std::string name_of(const testing::TestParamInfo<quire_status> &status) {
    return "answer_" + std::to_string(-status.param);
}
INSTANTIATE_TEST_SUITE_P(Answers, CommitStatus, testing::Range(-15, 0), name_of);

}  // namespace

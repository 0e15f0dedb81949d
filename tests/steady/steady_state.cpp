// SPDX-License-Identifier: Apache-2.0
//
// steady_state: after a warm-up, steps with churn, forks, preemption and prefix hits allocate
// nothing.
//
// Counted in two ways: at the host-allocator interface, and by interposing malloc, its relatives,
// mmap and brk for the whole process, so that no allocation in the library goes unnoticed.
//
//   steady_state STEPS [--plant]     --plant lets one step allocate, and that must be noticed
//   steady_state STEPS --followed    each step has a log, which a follower applies
//
// The warm-up takes all sequences through all lengths at once, so that the library has as many
// buffers of each size as it can ever need; after it, the test counts the steady state of a server.

#include <dlfcn.h>
#include <quire/dyn.h>
#include <quire/quire.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace {

std::atomic<bool> g_counting{false};
std::atomic<uint64_t> g_process_calls{0};
std::atomic<uint64_t> g_interface_calls{0};

void count_process_call() {
    if (g_counting.load(std::memory_order_relaxed)) ++g_process_calls;
}

template <typename Function>
Function next(const char *name) {
    Function function = nullptr;
    void *symbol = dlsym(RTLD_NEXT, name);
    std::memcpy(&function, &symbol, sizeof function);
    return function;
}

}  // namespace

// The dynamic linker finds these names before those of libc.
extern "C" {

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *pointer);

void *malloc(size_t size) { return count_process_call(), __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return count_process_call(), __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return count_process_call(), __libc_realloc(old, size); }
void free(void *pointer) { __libc_free(pointer); }
void *memalign(size_t alignment, size_t size) {
    return count_process_call(), __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
    return count_process_call(), __libc_memalign(alignment, size);
}
int posix_memalign(void **out, size_t alignment, size_t size) {
    count_process_call();
    *out = __libc_memalign(alignment, size);
    return *out != nullptr ? 0 : 12;  // ENOMEM
}
void *mmap(void *address, size_t length, int protection, int flags, int file,
           off_t offset) noexcept {
    using Mmap = void *(*)(void *, size_t, int, int, int, off_t);
    static Mmap real = next<Mmap>("mmap");
    count_process_call();
    return real(address, length, protection, flags, file, offset);
}
int brk(void *end) noexcept {
    static auto real = next<int (*)(void *)>("brk");
    count_process_call();
    return real(end);
}
void *sbrk(intptr_t increment) noexcept {
    static auto real = next<void *(*)(intptr_t)>("sbrk");
    count_process_call();
    return real(increment);
}
}

namespace {

constexpr uint32_t kSequences = 48;
constexpr uint32_t kSlots = 64;  // with room for forks
constexpr uint32_t kMaxLength = 768;
constexpr uint32_t kBlocks = 600;  // about half of what all slots would want

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

void *interface_allocate(void *, uint64_t size_bytes, uint64_t alignment) {
    if (g_counting.load(std::memory_order_relaxed)) ++g_interface_calls;
    return __libc_memalign(alignment, size_bytes);
}

void interface_release(void *, void *pointer, uint64_t, uint64_t) { __libc_free(pointer); }

struct Tally {
    uint64_t steps = 0, runs = 0, waits = 0, ends = 0, forks = 0;
};

class Server {
 public:
    Server(const quire_api &api, bool followed) : api_(api), random_(11) {
        error_.struct_size = sizeof error_;
        auto instance_desc = described<quire_instance_desc>();
        instance_desc.allocate = interface_allocate;
        instance_desc.release = interface_release;
        must(api_.instance_create(&instance_desc, &instance_, &error_));
        quire_group_desc groups[2] = {described<quire_group_desc>(), described<quire_group_desc>()};
        for (quire_group_desc &group : groups) {
            group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        }
        groups[1].kind = QUIRE_GROUP_WINDOW;
        groups[1].window = 100;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups;
        desc.group_count = 2;
        desc.group_stride = sizeof groups[0];
        desc.blocks = kBlocks;
        desc.host_blocks = kBlocks / 2;
        desc.max_sequences = kSlots;
        desc.flags = followed ? uint32_t{QUIRE_CACHE_LOG} : 0u;
        must(api_.cache_create(instance_, &desc, &cache_, &error_));
        desc.flags = QUIRE_CACHE_FOLLOWER;
        if (followed) must(api_.cache_create(instance_, &desc, &follower_, &error_));
        auto batch_desc = described<quire_batch_desc>();
        batch_desc.max_rows = kSlots;
        batch_desc.max_blocks_per_row = kMaxLength / 16 + 1;
        batch_desc.max_query_tokens = kSlots * kMaxLength;
        batch_desc.views = QUIRE_VIEW_BLOCK_TABLE | QUIRE_VIEW_SLOTS | QUIRE_VIEW_LENGTHS;
        must(api_.batch_create(cache_, &batch_desc, &batch_, &error_));
        if (followed) must(api_.batch_create(follower_, &batch_desc, &follower_batch_, &error_));
        tokens_.resize(kMaxLength);
        log_.resize(1 << 20);
    }
    ~Server() {
        if (follower_ != nullptr) {
            must(api_.batch_destroy(follower_batch_, &error_));
            must(api_.cache_destroy(follower_, &error_));
        }
        for (quire_seq &seq : seqs_) {
            if (seq != 0) must(api_.seq_end(cache_, seq, 0, &error_));
        }
        must(api_.batch_destroy(batch_, &error_));
        must(api_.cache_destroy(cache_, &error_));
        must(api_.instance_destroy(instance_, &error_));
    }
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    // All sequences are live at every length at which their buffers grow, but run one per step.
    void warm_up() {
        quire_seq all[kSlots];
        for (quire_seq &seq : all) seq = create();
        for (uint32_t length = 16; length <= 1024; length *= 2) {
            for (quire_seq &seq : all) {
                uint32_t goal = length < kMaxLength ? length : kMaxLength - 4;
                run_alone(seq, goal - known(seq), static_cast<uint64_t>(&seq - all));
            }
        }
        swap_all(all);
        for (quire_seq seq : all) must(api_.seq_end(cache_, seq, 0, &error_));
    }

    // Swaps out as many as fit in one step, and in again in the next: no step copies more.
    void swap_all(const quire_seq *all) {
        for (uint32_t round = 0; round < 2; ++round) {
            quire_step step = begin(0);
            for (uint32_t i = 0; i < kSlots; ++i)
                add(step, all[i], pending(all[i]) != 0 ? 0 : 1, i);
            complete(step, batch_);
            step = begin(0);
            for (uint32_t i = 0; i < kSlots; ++i) {
                uint32_t freed = 0;
                must(api_.step_preempt(cache_, step, all[i], QUIRE_PREEMPT_AUTO, &freed, &error_));
            }
            complete(step, nullptr);
        }
    }

    void run_alone(quire_seq seq, uint32_t count, uint64_t content) {
        quire_step step = begin(0);
        add(step, seq, count, content);
        complete(step, batch_);
        step = begin(0);
        uint32_t freed = 0;
        must(api_.step_preempt(cache_, step, seq, QUIRE_PREEMPT_RECOMPUTE, &freed, &error_));
        complete(step, nullptr);
    }

    void step(Tally *tally) {
        quire_step step = begin(QUIRE_STEP_MAY_PREEMPT);
        for (uint32_t i = 0; i < kSlots; ++i) {
            if (seqs_[i] == 0) {
                if (i >= kSequences || random_() % 4 != 0) continue;
                seqs_[i] = create();
                goals_[i] = 1 + random_() % (kMaxLength - 1);
                contents_[i] = random_() % 12;
            }
            bool first = known(seqs_[i]) == 0;
            uint32_t count = first ? 1 + random_() % goals_[i] : pending(seqs_[i]) != 0 ? 0 : 1;
            bool ran = add(step, seqs_[i], count, contents_[i]);
            ++(ran ? tally->runs : tally->waits);
        }
        complete(step, batch_);
        ++tally->steps;
        churn(tally);
    }

    // Commits and finishes the step, here and at the follower.
    void complete(quire_step step, quire_batch *batch) {
        must(api_.step_commit(cache_, step, batch, &error_));
        if (follower_ != nullptr) {
            uint64_t size = 0;
            must(api_.step_log(cache_, step, log_.data(), log_.size(), &size, &error_));
            auto desc = described<quire_step_desc>();
            quire_step applied = 0;
            must(api_.log_apply(follower_, log_.data(), size, &desc, follower_batch_, &applied,
                                &error_));
            must(api_.step_finish(follower_, applied, nullptr, QUIRE_STEP_OK, &error_));
            log_bytes += size;
        }
        must(api_.step_finish(cache_, step, nullptr, QUIRE_STEP_OK, &error_));
    }

    uint64_t log_bytes = 0;

    quire_cache_stats stats() {
        auto stats = described<quire_cache_stats>();
        must(api_.cache_get_stats(cache_, &stats, &error_));
        return stats;
    }

 private:
    void must(quire_status status) {
        if (status >= 0) return;
        std::fprintf(stderr, "steady_state: %s\n", error_.message);
        std::exit(1);
    }

    quire_seq create() {
        auto desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        must(api_.seq_create(cache_, &desc, &seq, &error_));
        return seq;
    }

    quire_step begin(uint32_t flags) {
        auto desc = described<quire_step_desc>();
        desc.flags = flags;
        quire_step step = 0;
        must(api_.step_begin(cache_, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                             nullptr, 0, &step, &error_));
        return step;
    }

    quire_seq_info info(quire_seq seq) {
        auto info = described<quire_seq_info>();
        must(api_.seq_get_info(cache_, seq, &info, &error_));
        return info;
    }
    uint32_t known(quire_seq seq) { return info(seq).known_tokens; }
    uint32_t pending(quire_seq seq) {
        quire_seq_info now = info(seq);
        return now.known_tokens - now.computed_tokens;
    }

    bool add(quire_step step, quire_seq seq, uint32_t count, uint64_t content) {
        uint32_t position = known(seq);
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t at = position + i;  // contents share their first 64 tokens
            tokens_[i] = at < 64 ? at : static_cast<uint32_t>(1000 * (content + 1) + at);
        }
        quire_step_item item{};
        item.seq = seq;
        item.token_count = count;
        quire_step_result result{};
        must(api_.step_add(cache_, step, &item, 1, sizeof item, tokens_.data(), count, &result,
                           sizeof result, &error_));
        return result.outcome == QUIRE_ITEM_RUN;
    }

    // Ends sequences that are long enough, and forks occasionally.
    void churn(Tally *tally) {
        for (uint32_t i = 0; i < kSlots; ++i) {
            if (seqs_[i] == 0 || known(seqs_[i]) < goals_[i]) continue;
            must(api_.seq_end(cache_, seqs_[i], 0, &error_));
            seqs_[i] = 0;
            ++tally->ends;
        }
        uint32_t parent = random_() % kSequences;
        uint32_t child = kSequences + random_() % (kSlots - kSequences);
        if (random_() % 8 != 0 || seqs_[parent] == 0 || seqs_[child] != 0) return;
        quire_seq_info now = info(seqs_[parent]);
        if ((now.flags & QUIRE_SEQ_SWAPPED) != 0 || now.computed_tokens == 0) return;
        must(api_.seq_fork(cache_, seqs_[parent], now.computed_tokens, &seqs_[child], &error_));
        goals_[child] = goals_[parent];
        contents_[child] = random_() % 12;
        ++tally->forks;
    }

    const quire_api &api_;
    std::mt19937 random_;
    quire_error error_{};
    quire_instance *instance_ = nullptr;
    quire_cache *cache_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_cache *follower_ = nullptr;
    quire_batch *follower_batch_ = nullptr;
    std::vector<uint8_t> log_;
    quire_seq seqs_[kSlots] = {};
    uint32_t goals_[kSlots] = {};
    uint64_t contents_[kSlots] = {};
    std::vector<uint32_t> tokens_;
};

}  // namespace

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20000;
    bool plant = argc > 2 && std::strcmp(argv[2], "--plant") == 0;
    bool followed = argc > 2 && std::strcmp(argv[2], "--followed") == 0;
    const quire_api *api = nullptr;
    char why[512];
    if (quire_dyn_load(nullptr, &api, why, sizeof why) < 0) {
        std::fprintf(stderr, "%s\n", why);
        return 1;
    }
    Tally tally;
    Server server(*api, followed);
    server.warm_up();
    for (uint32_t i = 0; i < 5000; ++i) server.step(&tally);
    quire_cache_stats before = server.stats();
    tally = Tally{};
    server.log_bytes = 0;
    g_counting = true;
    for (uint64_t i = 0; i < steps; ++i) {
        server.step(&tally);
        if (plant && i == steps / 2) free(malloc(1));
    }
    g_counting = false;
    quire_cache_stats after = server.stats();
    std::printf(
        "%llu steps, %llu items ran, %llu waited, %llu ends, %llu forks, %llu copies on write,\n"
        "%llu preemptions (%llu swaps), %llu evictions, %llu tokens hit\n",
        static_cast<unsigned long long>(tally.steps), static_cast<unsigned long long>(tally.runs),
        static_cast<unsigned long long>(tally.waits), static_cast<unsigned long long>(tally.ends),
        static_cast<unsigned long long>(tally.forks),
        static_cast<unsigned long long>(after.copies_on_write - before.copies_on_write),
        static_cast<unsigned long long>(after.num_preemptions - before.num_preemptions),
        static_cast<unsigned long long>(after.preemptions_swap - before.preemptions_swap),
        static_cast<unsigned long long>(after.evictions - before.evictions),
        static_cast<unsigned long long>(after.prefix_cache_hits - before.prefix_cache_hits));
    std::printf("%llu bytes of logs\n", static_cast<unsigned long long>(server.log_bytes));
    uint64_t interface_calls = g_interface_calls, process_calls = g_process_calls;
    std::printf("allocations: %llu at the host-allocator interface, %llu at malloc, mmap and brk\n",
                static_cast<unsigned long long>(interface_calls),
                static_cast<unsigned long long>(process_calls));
    bool nothing = interface_calls == 0 && process_calls == 0;
    if (plant && nothing) std::printf("the planted allocation was not noticed\n");
    return nothing != plant ? 0 : 1;
}

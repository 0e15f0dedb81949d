// SPDX-License-Identifier: Apache-2.0
//
// world: making and ending one, and the hand-out of operations. See world.hpp.
#include "world.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache_tier.hpp"
#include "clock.hpp"
#include "device.hpp"
#include "follower.hpp"
#include "leases_only.hpp"
#include "library.hpp"

namespace sim {
namespace {
thread_local World *waiting = nullptr;  // whose library may wait in poll()
}  // namespace

World::World(const quire_api *api, quire_instance *instance, const Config &settings, Tally *tally,
             const std::string &known_list)
    : config(settings), known(known_list), q_(api), instance_(instance), tally_(tally) {
    error_.struct_size = sizeof error_;
    std::vector<quire_group_desc> groups(config.groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
        const GroupConfig &from = config.groups[g];
        groups[g].struct_size = sizeof groups[g];
        groups[g].kind = from.kind;
        groups[g].window = from.window;
        groups[g].sink_tokens = from.sink;
        groups[g].layer_count = 1;
        groups[g].kv_heads = config.kv_heads(from);
        // On the simulated device a token has two halves of four bytes.
        const bool latent = from.kind == QUIRE_GROUP_LATENT;
        groups[g].k_head_dim = config.device != 0 ? (latent ? 2 : 1) : 8;
        groups[g].v_head_dim = config.device != 0 ? 1 : latent ? 4 : 8;
        groups[g].k_dtype = config.device != 0 ? QUIRE_DTYPE_F32 : 0;
        groups[g].blocks = from.blocks;
        config.size_group(static_cast<uint32_t>(g), &groups[g]);
        blocks_.push_back(from.blocks);
    }
    host_blocks_ = config.host_blocks;
    quire_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.flags = config.flags | proving_flags(api);
    desc.groups = groups.data();
    desc.group_count = static_cast<uint32_t>(groups.size());
    desc.group_stride = sizeof groups[0];
    desc.block_tokens = config.block_tokens;
    desc.max_sequences = config.max_sequences;
    desc.max_sequence_tokens = config.max_tokens;
    desc.watermark_blocks = config.watermark;
    desc.host_blocks = config.host_blocks;
    desc.victim = config.victim;
    desc.hash_seed = mix(config.seed, 7);
    desc.swap_bytes_per_second = static_cast<float>(config.swap_rate);
    desc.prefill_tokens_per_second = config.swap_rate == 0 ? 0.0f : 1.0f;
    std::vector<quire_shard_desc> shards;
    if (config.device != 0) {
        open_devices();
        shards = shard_descs();
        desc.shards = shards.data();
        desc.shard_count = config.shards;
        desc.shard_stride = sizeof shards[0];
        desc.host_blocks = 0;
        desc.host_bytes = static_cast<uint64_t>(config.host_blocks) * config.block_tokens * 8 *
                          config.groups.size();
    }
    if (q_->cache_create(instance_, &desc, &cache_, &error_) < 0)
        fail("cache-create", "quire_cache_create: %s", error_.message);
    if (config.device != 0) settle_devices();
    memory_.reset(config.all_places(), device_blocks(), host_blocks(), config.one_pool());
    memory_.distrust_copies(config.has(Feature::failed_copies));
    namespaces.push_back({});
    if (config.has(Feature::cache_tier) && on_device()) {
        ++tally_->tier_seeds;
        clock_watch.simulated = true;
        clock_watch.now_ns = 1000000000;
        clock_watch.waited = [] { waiting->wait_passes(); };
        waiting = this;
        stores_before_ = Store::live();
    }
    check_refusals(desc);
    if (config.follower) follower_ = std::make_unique<Follower>(*this, desc);
}

void World::check_refusals(const quire_cache_desc &desc) {
    quire_cache_info info{};
    info.struct_size = sizeof info;
    expect(q_->cache_get_info(cache_, &info, &error_), {QUIRE_OK}, "quire_cache_get_info");
    const auto entries = static_cast<uint32_t>(config.place_blocks().size());
    if ((info.span_tokens != config.span() || info.span_blocks != entries) &&
        !tolerate("place-info"))
        fail("place-info", "a place has %u tokens and %u blocks; it should have %u and %u",
             info.span_tokens, info.span_blocks, config.span(), entries);
    if (shares_host()) {
        ++tally_->host_seeds;
        check_host_refusals(desc);
    }
    check_partial_refusals(desc);
    if ((config.flags & QUIRE_CACHE_LEASES_ONLY) != 0)
        lone_ = std::make_unique<LeasesOnly>(*this, desc);
}

World::~World() {
    // After a finding the library's state is in doubt: the cache is left, not destroyed.
    clock_watch.simulated = false;
    if (tier_ && tier_->store != nullptr) tier_->store->on_put = nullptr;
}

std::vector<uint32_t> World::device_blocks() const { return blocks_; }
std::vector<uint32_t> World::host_blocks() const {
    // Host ids count from 1, as those of the device (README.md, question 3).
    return std::vector<uint32_t>(blocks_.size(), host_blocks_ + 1);
}

void World::close() {
    end_faults();
    if (open) abort();
    for (Batch &batch : batches) batch.last_number = 0;
    while (!committed.empty()) {
        Op op;
        op.kind = OpKind::finish;
        op.f[0] = committed.front().id;
        finish(op);
    }
    for (Shard &shard : shards_) shard.fake->drain();
    check_devices();
    end_tier();
    audit();
    while (!leases.empty()) end_lease(make_op(OpKind::unlease, {leases.back()->id}));
    while (!sequences.empty()) {
        Op op;
        op.kind = OpKind::end;
        op.f[0] = sequences.back()->id;
        end(op);
    }
    audit();
    if (follower_) follower_->close();
    if (on_device()) {
        Op op;
        op.kind = OpKind::begin;
        op.f[0] = ~0u;
        begin(op);
        abort();
    }
    if (lone_) lone_->close();
    for (Batch &batch : batches)
        expect(q_->batch_destroy(batch.batch, &error_), {QUIRE_OK}, "batch_destroy at the end");
    count_levels();
    expect(q_->cache_destroy(cache_, &error_), {QUIRE_OK}, "cache_destroy at the end");
    cache_ = nullptr;
    close_shards(shards_);
    tally_->slot_accesses += memory_.accesses();
    tally_->noise_slots += memory_.noise();
}

Sequence *World::find(uint32_t id) {
    for (auto &seq : sequences)
        if (seq->id == id) return seq.get();
    return nullptr;
}

Namespace *World::find_namespace(uint32_t id) {
    for (Namespace &ns : namespaces)
        if (ns.id == id) return &ns;
    return nullptr;
}

void World::erase(uint32_t id) {
    for (size_t i = 0; i < sequences.size(); ++i)
        if (sequences[i]->id == id) {
            sequences.erase(sequences.begin() + static_cast<ptrdiff_t>(i));
            return;
        }
}

uint32_t World::document_token(uint32_t doc, uint32_t position) const {
    if ((doc & kLeaves) != 0 && position < (doc & kLeavesAt)) doc = doc >> kLeavesShift & 0xFF;
    return static_cast<uint32_t>(mix(mix(config.seed, doc), position) % config.vocabulary);
}

// The era of content that is computed now at `place`. A sequence that was computed in part before a
// reset has content of its own, which no other may find.
uint32_t World::era_after(const Sequence &seq, uint32_t place) const {
    if (place == 0 || seq.era[place - 1] == epoch_) return epoch_;
    return static_cast<uint32_t>(mix(seq.id, epoch_)) | 0x80000000u;
}

bool World::tolerate(const char *promise) {
    const bool listed = ("," + known + ",").find("," + std::string(promise) + ",") != known.npos;
    tally_->tolerated += listed;
    return listed;
}

void World::expect(quire_status got, std::initializer_list<quire_status> allowed,
                   const char *what) {
    for (const quire_status status : allowed)
        if (got == status) {
            if (got < 0) ++tally_->refused_calls;
            if (got == QUIRE_E_BUSY) ++tally_->busy_answers;
            return;
        }
    std::string list;
    for (const quire_status status : allowed) list += " " + std::to_string(status);
    const std::string promise = "status-" + std::string(what, strcspn(what, " "));
    fail(got == QUIRE_E_INTERNAL ? "internal" : promise.c_str(),
         "%s answered %d (%s); the headers allow:%s", what, got, got < 0 ? error_.message : "",
         list.c_str());
}

bool World::execute(const Op &op) {
    ++tally_->ops[static_cast<size_t>(op.kind)];
    ++ops_;
    changes_ += op.kind != OpKind::audit && op.kind != OpKind::check;
    uint64_t waits = 0;
    for (const Shard &shard : shards_) waits += shard.fake->waits();
    clock_watch.on = config.has(Feature::clocks);
    const bool done = dispatch(op);
    clock_watch.on = false;
    tally_->clock_reads += std::exchange(clock_watch.reads, 0);
    if (std::exchange(clock_watch.dates, 0) != 0)
        fail("clock-read", "%s reads the date", op_name(op.kind));
    check_devices();
    for (const Shard &shard : shards_) waits -= shard.fake->waits();
    const bool may_wait = op.kind == OpKind::migrate || op.kind == OpKind::detach ||
                          op.kind == OpKind::restart || op.kind == OpKind::conclude ||
                          op.kind == OpKind::poll;
    if (late_finding_) throw *late_finding_;
    // A queue of the tier's that refuses a signal is waited for.
    if (waits != 0 && !may_wait && (!has_tier() || !tolerate("tier-waits")))
        fail(has_tier() ? "tier-waits" : "waits", "%s waits for a device, and no call in it may",
             op_name(op.kind));
    return done;
}

// True if it may forget published blocks, or take them back, without an eviction.
bool World::may_forget(const Op &op) {
    switch (op.kind) {
        case OpKind::end:
            return op.f[1] != 0;
        case OpKind::truncate:
        case OpKind::drop:
        case OpKind::abort:
        case OpKind::ns_destroy:
        case OpKind::reset:
        case OpKind::migrate:
        case OpKind::conclude:
        case OpKind::forget:
            return true;
        default:
            return false;
    }
}

bool World::dispatch(const Op &op) {
    forgets_ += may_forget(op);
    switch (op.kind) {
        case OpKind::create:
            return create(op);
        case OpKind::end:
            return end(op);
        case OpKind::fork:
            return fork(op);
        case OpKind::truncate:
            return truncate(op);
        case OpKind::accept:
            return accept(op);
        case OpKind::accept_path:
            return accept_path(op);
        case OpKind::set_tokens:
            return set_tokens(op);
        case OpKind::item:
            pending.push_back(op);
            return true;
        case OpKind::begin:
            return begin(op);
        case OpKind::add:
            return add(op);
        case OpKind::drop:
            return drop(op);
        case OpKind::preempt:
            return preempt(op);
        case OpKind::abort:
            return abort();
        case OpKind::commit:
            return commit(op);
        case OpKind::finish:
            return finish(op);
        case OpKind::ns_create:
            return create_namespace(op);
        case OpKind::ns_destroy:
            return destroy_namespace(op);
        case OpKind::reset:
            return reset();
        case OpKind::migrate:
            return migrate(op);
        case OpKind::probe:
            return probe(op);
        case OpKind::refuse:
            return refuse(op);
        case OpKind::batch:
            return make_batch(op);
        case OpKind::audit:
            audit();
            return true;
        case OpKind::check:
            expect(q_->cache_check(cache_, &error_), {QUIRE_OK}, "quire_cache_check");
            return true;
        case OpKind::advance:
            return advance(op);
        case OpKind::fault:
            return plant_fault(op);
        case OpKind::calm:
            return calm();
        case OpKind::conclude:
            return conclude(op);
        case OpKind::abandon:
            return abandon(op);
        default:
            return dispatch_tier(op);
    }
}

bool World::dispatch_tier(const Op &op) {
    switch (op.kind) {
        case OpKind::attach:
            return attach(op);
        case OpKind::detach:
            return detach(op);
        case OpKind::poll:
            return poll_tier(op);
        case OpKind::cancel_load:
            return cancel_load(op);
        case OpKind::store:
            return store(op);
        case OpKind::restart:
            return restart(op);
        case OpKind::elapse:
            return elapse(op);
        case OpKind::copies:
            return run_copies_of_tier(op);
        default:
            return dispatch_lease(op);
    }
}

bool World::dispatch_lease(const Op &op) {
    switch (op.kind) {
        case OpKind::lease:
            return make_lease(op);
        case OpKind::unlease:
            return end_lease(op);
        case OpKind::take:
            return take(op);
        case OpKind::give:
            return give(op);
        case OpKind::pin:
            return pin(op);
        case OpKind::match:
            return match(op);
        case OpKind::publish:
            return publish(op);
        case OpKind::forget:
            return forget_blocks(op);
        case OpKind::evict:
            return evict(op);
        case OpKind::find:
            return find_blocks(op);
        case OpKind::insert:
            return insert(op);
        case OpKind::unserved:
            return lone_ && lone_->unserved(op);
        default:
            return false;
    }
}

}  // namespace sim

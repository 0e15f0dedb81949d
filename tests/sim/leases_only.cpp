// SPDX-License-Identifier: Apache-2.0
//
// leases_only: QUIRE_CACHE_LEASES_ONLY. A cache without sequences, whose prefix tree the model
// knows whole (lease_tree.hpp): so what is found, named, evicted and short of blocks is exact.
//
// While a step is unfinished, or the open one has given blocks back, which cached block can be
// evicted is not said: then only what was evicted is taken from the call.
#include <algorithm>
#include <set>

#include "device.hpp"
#include "leases_only.hpp"
#include "records.hpp"
#include "world.hpp"

namespace sim {
namespace {

constexpr uint32_t kUnserved = 8;  // functions that need a sequence

using Count = unsigned long long;

}  // namespace

LeasesOnly::LeasesOnly(World &world, const quire_cache_desc &desc) : w_(world) {
    if (w_.config.has(Feature::leases_only)) check_refusals(desc);
    ++w_.tally_->lone_seeds;
    w_.tally_->lone_led += (desc.flags & QUIRE_CACHE_LOG) != 0;
    w_.tally_->lone_followed += w_.config.follower != 0;
}

bool LeasesOnly::is_leased(int32_t block) const {
    return std::any_of(w_.leases.begin(), w_.leases.end(),
                       [&](const auto &lease) { return lease->held.count({0, block}) != 0; });
}

std::set<int32_t> LeasesOnly::cached() const {
    std::set<int32_t> blocks;
    for (const auto &[block, place] : tree_.places())
        if (!is_leased(block)) blocks.insert(block);
    return blocks;
}

quire_cache_stats LeasesOnly::stats() {
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    w_.expect(w_.q_->cache_get_stats(w_.cache_, &s, &w_.error_), {QUIRE_OK},
              "quire_cache_get_stats");
    return s;
}

std::vector<int32_t> LeasesOnly::find(const Sequence &run, uint32_t places) const {
    return tree_.find(places_of(run, places));
}

std::vector<int32_t> LeasesOnly::published(uint32_t tenant) const {
    std::vector<int32_t> blocks;
    for (const auto &[block, place] : tree_.places())
        if (place.found && place.tenant == tenant) blocks.push_back(block);
    return blocks;
}

int32_t LeasesOnly::not_to_insert(const Lease &lease, uint32_t why) {
    std::map<int32_t, uint32_t> own;  // its flags
    for (const quire_lease_block &b : w_.blocks_of(lease, 0)) own[b.block] = b.flags;
    for (uint32_t id = 1; id < w_.blocks_[0]; ++id) {
        const auto block = static_cast<int32_t>(id);
        const bool mine = own.count(block) != 0;
        const bool owned = mine && (own[block] & QUIRE_LEASE_OWNED) != 0;
        const bool found = tree_.has(block) && tree_.places().at(block).found;
        if (why == 8    ? mine && found                                       // published elsewhere
            : why == 9  ? mine && owned && !found && is_others(lease, block)  // not alone
            : why == 10 ? !mine && is_others(lease, block)                    // another one's
            : why == 11 ? mine && !owned                                      // not taken
                        : !mine && !is_others(lease, block) && !tree_.has(block))  // free
            return block;
    }
    return 0;
}

std::vector<std::vector<Content>> LeasesOnly::places_of(const Sequence &run,
                                                        uint32_t places) const {
    std::vector<std::vector<Content>> all;
    for (uint32_t i = 0; i < places; ++i) all.push_back(w_.block_of(run, i));
    return all;
}

LeasesOnly::Before LeasesOnly::look() {
    Before before;
    tree_.tick();
    const quire_cache_stats s = stats();
    // A step that is done on its devices is noticed when the next one begins, if not before.
    const bool noticed = w_.open ? w_.open->began_idle : !w_.on_device();
    before.exact = w_.committed.empty() && noticed && (!w_.open || !w_.open->gave);
    before.cached = cached();
    before.free = s.blocks_free;
    before.evictions = s.evictions;
    before.blocks = w_.blocks_[0];
    return before;
}

// "The least recently used first": none of those that stay was used before one that went.
void LeasesOnly::judge_lru(const std::set<int32_t> &gone, const Before &before) {
    for (const int32_t block : gone)
        for (const int32_t other : before.cached)
            if (gone.count(other) == 0 && tree_.used(other).before(tree_.used(block)))
                fail("evict-lru", "block %d goes, and block %d, which was used before it, stays",
                     block, other);
    ++w_.tally_->lone_evictions_judged;
}

// "Takes blocks of a group, free ones before cached ones."
void LeasesOnly::taken(const std::vector<int32_t> &ids, const Before &before) {
    std::set<int32_t> gone;
    for (const int32_t id : ids)
        if (before.cached.count(id) != 0) gone.insert(id);
    const uint64_t needed = ids.size() > before.free ? ids.size() - before.free : 0;
    if (before.exact && gone.size() != needed)
        fail("take-evicts", "%zu blocks are taken, of which %zu were cached; %llu were free",
             ids.size(), gone.size(), static_cast<Count>(before.free));
    if (before.exact) judge_lru(gone, before);
    const quire_cache_stats s = stats();
    if (s.evictions - before.evictions != gone.size())
        fail("take-evicts", "%llu evictions count; %zu blocks that were cached are taken",
             static_cast<Count>(s.evictions - before.evictions), gone.size());
    for (const int32_t block : gone) tree_.remove(block);
    // "What it evicts stays evicted if the step is aborted."
    if (!gone.empty()) w_.changed_since_begin_ = true;
    w_.tally_->lone_evicted += gone.size();
}

// Blocks that the namespace's leases hold.
uint64_t LeasesOnly::held_by(uint32_t ns) const {
    uint64_t held = 0;
    for (const auto &lease : w_.leases)
        if (lease->ns == ns) held += lease->held.size();
    return held;
}

// A call needs `needed` blocks that its lease does not hold, and `taken` of them from the pool.
void LeasesOnly::judge_room(const Lease &lease, quire_status status,
                            const quire_lease_result &result, uint64_t needed, uint64_t taken,
                            const Before &before) {
    const Namespace &space = *w_.find_namespace(lease.ns);
    const uint64_t held = held_by(lease.ns);
    const uint64_t over =
        space.quota != 0 && held + needed > space.quota ? held + needed - space.quota : 0;
    const uint64_t room = before.free + before.cached.size();
    const uint64_t lacks = taken > room ? taken - room : 0;
    if (status == QUIRE_OK && (over != 0 || lacks != 0))
        fail("lease-room", "lease %u gets blocks; %llu are over its quota, and %llu are not there",
             lease.id, static_cast<Count>(over), static_cast<Count>(lacks));
    if (status == QUIRE_OK) return;
    const bool by_quota = result.reason == QUIRE_WAIT_QUOTA;
    const uint64_t wanted = by_quota ? over : lacks;
    if (by_quota || before.exact ? result.blocks_short != wanted || wanted == 0
                                 : result.blocks_short < wanted || taken == 0)
        fail("lease-room",
             "lease %u lacks %u blocks for reason %u; %llu are over its quota, and "
             "%llu are not there",
             lease.id, result.blocks_short, result.reason, static_cast<Count>(over),
             static_cast<Count>(lacks));
    ++w_.tally_->lone_shortages;
}

// The lease has given these back: what is published and held no more is cached from now on, though
// nothing may find it.
void LeasesOnly::given(const std::vector<int32_t> &ids, bool in_order) {
    for (uint32_t i = 0; i < ids.size(); ++i) {
        if (!tree_.has(ids[i]) || is_leased(ids[i])) continue;
        w_.tally_->lone_lost_cached += !tree_.places().at(ids[i]).found;
        if (w_.open) w_.open->given.emplace(ids[i], tree_.used(ids[i]));
        if (in_order)
            tree_.use_at(ids[i], i);
        else
            tree_.use(ids[i]);
    }
}

// A find or a match touched these.
void LeasesOnly::touched(const int32_t *ids, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
        if (!is_leased(ids[i]))
            tree_.use(ids[i]);
        else
            tree_.use_since(ids[i]);
}

// What a run finds is exact: its leading places that are published, by the blocks that were.
void LeasesOnly::judge_found(const Lease &lease, const Sequence &run, uint32_t places,
                             const int32_t *ids, uint32_t found) {
    const std::vector<int32_t> wanted = tree_.find(places_of(run, places));
    if (wanted.size() != found)
        fail("lease-find", "lease %u finds %u of %u places; %zu are published", lease.id, found,
             places, wanted.size());
    for (uint32_t i = 0; i < found; ++i)
        if (ids[i] != wanted[i])
            fail("lease-find", "lease %u finds block %d at place %u, and not block %d", lease.id,
                 ids[i], i, wanted[i]);
}

// The run is published: in the lease's blocks from place `cached` on.
void LeasesOnly::inserted(const Lease &lease, const Sequence &run,
                          const std::vector<int32_t> &named, uint32_t cached) {
    const auto places = static_cast<uint32_t>(named.size());
    const std::vector<int32_t> before = tree_.find(places_of(run, places));
    for (uint32_t i = 0; i < cached; ++i)
        if (named[i] != before[i])
            fail("lease-named", "block %d is named at place %u, where the tree has block %d",
                 named[i], i, before[i]);
    for (uint32_t i = cached; i < places; ++i)
        tree_.add(named[i], i == 0 ? 0 : named[i - 1], lease.tenant, w_.block_of(run, i));
    for (uint32_t i = 0; i < places; ++i)
        if (is_leased(named[i]))
            tree_.use_since(named[i]);
        else
            tree_.use_at(named[i], places - i);
}

// What was pinned in the step is as it was; what the step gave back is the lease's again.
void LeasesOnly::aborted() {
    for (const auto &[block, used] : w_.open->given)
        if (tree_.has(block)) {
            tree_.set_used(block, used);
            tree_.use_since(block);
        }
}

// Gives in the step happened between the calls and now.
void LeasesOnly::committed(const Step &step) {
    tree_.tick();
    for (const auto &[block, used] : step.given)
        if (tree_.has(block)) tree_.use_since(block);
}

void LeasesOnly::evicted(const std::vector<int32_t> &ids, uint32_t asked, const Before &before) {
    const std::set<int32_t> gone(ids.begin(), ids.end());
    for (const int32_t id : ids)
        if (before.cached.count(id) == 0)
            fail("evict-lru", "block %d is evicted, and was not cached", id);
    const size_t wanted = std::min<size_t>(asked, before.cached.size());
    if (gone.size() != ids.size() || ids.size() > asked || (before.exact && ids.size() != wanted))
        fail("evict-lru", "%zu blocks are evicted; %u were to be, and %zu were cached", ids.size(),
             asked, before.cached.size());
    if (before.exact) judge_lru(gone, before);
    for (const int32_t id : ids) tree_.remove(id);
}

bool LeasesOnly::is_others(const Lease &lease, int32_t block) const {
    return std::any_of(w_.leases.begin(), w_.leases.end(), [&](const auto &other) {
        return other->id != lease.id && other->held.count({0, block}) != 0;
    });
}

// `count` of the ids were withdrawn: those that no other lease holds. A lost one is published, too.
void LeasesOnly::forgotten(const Lease &lease, const std::vector<int32_t> &ids, uint32_t count) {
    const std::set<int32_t> once(ids.begin(), ids.end());
    std::vector<int32_t> gone;
    for (const int32_t id : once) {
        if (!tree_.has(id) || is_others(lease, id)) continue;
        gone.push_back(id);
        w_.tally_->lone_lost_forgotten += !tree_.places().at(id).found;
    }
    for (const int32_t id : gone) tree_.remove(id);
    if (count != gone.size())
        fail("lease-forget", "%u of %zu blocks are forgotten; %zu are published, and not another's",
             count, once.size(), gone.size());
    w_.tally_->lone_forgotten += gone.size();
}

void LeasesOnly::destroyed(uint32_t tenant) {
    std::vector<int32_t> gone;
    for (const auto &[block, place] : tree_.places())
        if (place.tenant == tenant) gone.push_back(block);
    for (const int32_t block : gone) tree_.remove(block);
}

// "Cached blocks that no sequence holds are dropped where the target has no room for them, the
// least recently used first."
void LeasesOnly::moved(const std::vector<quire_block_move> &moves, uint64_t dropped,
                       const Before &before, uint32_t blocks) {
    std::map<int32_t, int32_t> ids;
    for (const quire_block_move &move : moves) ids[move.src] = move.dst;
    std::set<int32_t> gone;
    for (const auto &[block, place] : tree_.places())
        if (ids.count(block) == 0) gone.insert(block);
    uint64_t held = 0;
    for (uint32_t id = 1; id < before.blocks; ++id) held += is_leased(static_cast<int32_t>(id));
    const uint64_t room = blocks - 1 - held;
    const uint64_t wanted = before.cached.size() > room ? before.cached.size() - room : 0;
    if (gone.size() != wanted || dropped != wanted)
        fail("migrate-drops", "a migration drops %zu cached blocks, and says %llu; %llu lack room",
             gone.size(), static_cast<Count>(dropped), static_cast<Count>(wanted));
    judge_lru(gone, before);
    tree_.rename(ids);
    w_.tally_->lone_moved += tree_.places().size();
    w_.tally_->lone_dropped += wanted;
}

// Counts, and each published place: its content, the block before it, and that it is there.
void LeasesOnly::audit() {
    const std::set<int32_t> unheld = cached();
    const quire_cache_stats s = stats();
    if (s.blocks_cached != unheld.size())
        fail("stats-cached", "blocks_cached is %llu; %zu blocks are published and held by no lease",
             static_cast<Count>(s.blocks_cached), unheld.size());
    for (const auto &[block, place] : tree_.places())
        for (uint32_t p = 0; p < w_.config.block_tokens; ++p) {
            const Slot &slot = w_.memory_.at(kDevice, 0, block, p);
            if (slot.content != place.contents[p])
                fail("lease-content", "block %d is published, and its place %u holds %s", block, p,
                     Memory::describe(slot).c_str());
        }
    std::map<int32_t, int64_t> before;  // by the dump; -1: nothing
    each_record(w_.dump(), [&](std::string_view record) {
        if (has(record, "\"record\":\"place\""))
            before[static_cast<int32_t>(number_in(record, "block"))] = number_in(record, "before");
    });
    for (const auto &[block, place] : tree_.places())
        if (before.count(block) == 0)
            fail("place", "block %d is published, and the dump does not have it", block);
    for (const auto &[block, parent] : before) {
        if (!tree_.has(block))
            fail("place", "the dump has block %d, which is not published", block);
        const Place &place = tree_.places().at(block);
        if (place.found && place.parent != parent)
            fail("place", "the dump has block %d after %lld, and not %d", block,
                 static_cast<long long>(parent), place.parent);
        // What is not found any more comes after nothing, or after another such block.
        const auto above = tree_.places().find(static_cast<int32_t>(parent));
        if (!place.found && parent >= 0 && (above == tree_.places().end() || above->second.found))
            fail("place", "the dump has block %d after %lld, and it is not found any more", block,
                 static_cast<long long>(parent));
    }
    ++w_.tally_->lone_audits;
}

// At the end no lease is left: a reset leaves nothing.
void LeasesOnly::close() {
    while (w_.namespaces.size() > 1)
        w_.execute(make_op(OpKind::ns_destroy, {w_.namespaces.back().id}));
    if (w_.config.seed % 2 == 0) {
        std::vector<int32_t> ids(w_.blocks_[0]);
        uint32_t evicted = 0;
        const uint64_t all = w_.cached_blocks();
        w_.expect(w_.q_->cache_evict(w_.cache_, 0, w_.blocks_[0], ids.data(), &evicted, &w_.error_),
                  {QUIRE_OK}, "quire_cache_evict of all");
        if (evicted != all)
            fail("evict-lru", "%u blocks are evicted at the end; %llu were cached", evicted,
                 static_cast<Count>(all));
    } else {
        w_.execute(make_op(OpKind::reset, {}));
    }
    tree_.clear();
    w_.check_all_free("all leases have ended, and nothing is cached");
}

// Calls that need a sequence say that there is no such thing here, and change nothing.
bool LeasesOnly::unserved(const Op &op) {
    const Snapshot before = w_.look(true);
    quire_seq seq = 0;
    const char *what = "quire_seq_create";
    quire_status status = QUIRE_OK;
    w_.error_.message[0] = 0;
    switch (op.f[0] % kUnserved) {
        case 0: {
            quire_seq_desc desc{};
            desc.struct_size = sizeof desc;
            status = w_.q_->seq_create(w_.cache_, &desc, &seq, &w_.error_);
            break;
        }
        case 1: {
            what = "quire_handover_receive";
            quire_handover_receive_desc desc{};
            desc.struct_size = sizeof desc;
            quire_handover handover = 0;
            status = w_.q_->handover_receive(w_.cache_, &desc, &handover, &w_.error_);
            break;
        }
        case 2: {
            what = "quire_seq_import";
            quire_import_desc desc{};
            desc.struct_size = sizeof desc;
            desc.read = [](void *, void *, uint64_t) { return quire_status{QUIRE_E_OS}; };
            status = w_.q_->seq_import(w_.cache_, &desc, &seq, nullptr, &w_.error_);
            break;
        }
        default: {
            // Where a lease is, and where nothing is.
            what = "a call on a sequence";
            const quire_lease other = w_.leases.empty() ? 0 : w_.leases[0]->handle;
            const char *name = nullptr;
            status = w_.call_with(op.f[1] != 0 ? other : 0, op.f[1] % 9, name);
            if (status == QUIRE_E_STALE || (status == QUIRE_E_ARG && other != 0)) {
                w_.unchanged(before, "error-changes");
                return true;
            }
        }
    }
    // An import in a cache with memory may read before it knows.
    const bool read = status == QUIRE_E_OS && op.f[0] % kUnserved == 2;
    w_.expect(status, {QUIRE_E_UNSUPPORTED, read ? QUIRE_E_OS : QUIRE_E_UNSUPPORTED}, what);
    if (w_.error_.message[0] == 0) fail("unserved-words", "%s is refused without a word", what);
    w_.unchanged(before, "error-changes");
    ++w_.tally_->lone_unserved;
    return true;
}

// Caches that cannot have the flag are refused.
void LeasesOnly::check_refusals(const quire_cache_desc &good) {
    const auto refuse = [this](const char *what, const quire_cache_desc &desc) {
        quire_cache *cache = nullptr;
        w_.error_.message[0] = 0;
        const quire_status got = w_.q_->cache_create(w_.instance_, &desc, &cache, &w_.error_);
        if (got == QUIRE_OK) {
            w_.expect(w_.q_->cache_destroy(cache, &w_.error_), {QUIRE_OK}, "quire_cache_destroy");
            if (w_.tolerate("lone-refused")) return;
            fail("lone-refused", "quire_cache_create %s, flags 0x%x: it is not refused", what,
                 desc.flags);
        }
        w_.expect(got, {QUIRE_E_ARG, QUIRE_E_UNSUPPORTED}, what);
        if (w_.error_.message[0] == 0) fail("unserved-words", "%s is refused without a word", what);
    };
    quire_cache_desc desc = good;
    constexpr uint32_t flags[] = {QUIRE_CACHE_NO_PREFIX,    QUIRE_CACHE_FOLLOWER,
                                  QUIRE_CACHE_CALIBRATE,    QUIRE_CACHE_EVENTS,
                                  QUIRE_CACHE_EVENT_TOKENS, QUIRE_CACHE_HOST_PREFIXES,
                                  QUIRE_CACHE_ONE_POOL,     QUIRE_CACHE_PARTIAL_HITS};
    for (const uint32_t flag : flags) {
        desc.flags = good.flags | flag;
        refuse("with another flag", desc);
    }
    // Nothing else that a follower may not have is there.
    desc.flags = QUIRE_CACHE_LEASES_ONLY | QUIRE_CACHE_FOLLOWER;
    refuse("of a follower", desc);
    desc = good;
    desc.host_bytes = good.shard_count != 0 ? 1u << 20 : 0;
    desc.host_blocks = good.shard_count != 0 ? 0 : 4;
    refuse("with a host tier", desc);
    quire_group_desc groups[2] = {good.groups[0], good.groups[0]};
    desc = good;
    desc.groups = groups;
    desc.group_count = 2;
    desc.group_stride = sizeof groups[0];
    refuse("with two groups", desc);
    desc.group_count = 1;
    groups[0].kind = QUIRE_GROUP_WINDOW;
    groups[0].window = 4;
    refuse("with a window", desc);
    groups[0].kind = QUIRE_GROUP_CHUNKED;
    refuse("with chunks", desc);
}

}  // namespace sim

// SPDX-License-Identifier: Apache-2.0
//
// leased: what is done to leases within an open step.
#include <algorithm>

#include "world.hpp"

namespace hybrid {

void World::use_lease(Step &step) {
    const auto live = live_leases();
    if (live.empty()) return;
    const uint32_t index = live[rng.below(live.size())];
    Lease &lease = leases[index];
    if (lease_busy(lease, step.queue)) {
        count("lease busy on another queue: skipped");
        return;
    }
    lease.steps.insert(step.id);
    const uint32_t choice = rng.below(10);
    uint32_t token_count = config.span * rng.range(1, 4);
    token_count = std::min(token_count, config.max_tokens / config.span * config.span);
    const uint32_t stream = rng.below(3);
    const auto tokens = stream_tokens(token_count, stream, .6);
    if (choice < 3 && !take(step, index, tokens)) return;
    if (choice <= 4) return publish_leased(step, index, tokens);
    if (choice <= 6) return give_some(step, index);
    if (choice == 7) return pin(step, index);
    match_leased(step, index, tokens);
}

// Takes blocks for the tokens in each group. True if they are to be published.
bool World::take(Step &step, uint32_t index, const std::vector<uint32_t> &tokens) {
    const Lease &lease = leases[index];
    const auto chain = chain_of({namespaces[lease.ns].serial, lease.key_set, 0, 0}, tokens);
    const uint32_t spans = static_cast<uint32_t>(tokens.size()) / config.span;
    bool short_of = false;
    for (uint32_t g = 0; g < config.group_count() && !short_of; ++g)
        take_group(step, index, g, spans * (config.span / config.groups[g].block_tokens), &short_of,
                   chain);
    return rng.chance(.6);
}

void World::take_group(Step &step, uint32_t index, uint32_t group, uint32_t blocks, bool *short_of,
                       const std::vector<uint64_t> &chain) {
    Lease &lease = leases[index];
    if (rng.chance(.1)) blocks = rng.below(4);
    std::vector<int32_t> numbers(blocks + 1, -9);
    const auto before = rng.chance(.3) ? snapshot() : std::vector<uint64_t>();
    auto result = made<quire_lease_result>();
    const int32_t status = api->lease_take(cache, step.handle, lease.handle, group, blocks,
                                           numbers.data(), &result, message());
    trace("  lease_take ", hex(lease.handle), " group ", group, " ", blocks, " -> ", status,
          " short ", result.blocks_short, " reason ", result.reason, " first ", numbers[0]);
    if (status == QUIRE_S_NO_BLOCKS) {
        count(join("take short reason ", result.reason));
        if (!before.empty()) unchanged(before, "refused_changed", "take NO_BLOCKS");
        if (result.blocks_short == 0) fail("take_short", "NO_BLOCKS with blocks_short 0");
        *short_of = true;
        return;
    }
    require_ok("take", status);
    if (result.blocks != blocks) fail("take_n", "took ", result.blocks, ", asked for ", blocks);
    for (uint32_t i = 0; i < blocks; ++i) {
        const int32_t number = numbers[i];
        if (lease.blocks.count({group, number}) != 0)
            fail("take_dup", "took block ", number, " that it holds already");
        for (const Lease &other : leases)
            for (uint32_t g = 0; g < config.group_count(); ++g)
                if (other.alive && config.pool_of(g) == config.pool_of(group) &&
                    other.blocks.count({g, number}) != 0)
                    fail("take_dup2", "took block ", number, " that a lease holds");
        LeaseBlock own;
        own.holds = 1;
        own.owned = own.known = true;
        own.content = block_content(config, group, chain, i);
        own.filled_in = step.id;
        own.filled_on = step.queue;
        lease.blocks[{group, number}] = own;
        step.fills.push_back({group, number, own.content, namespaces[lease.ns].serial, index});
    }
    count("lease take");
}

namespace {

// A leased block of that content which the step may publish; 0: none. Owned ones first.
int32_t find_leased(World &world, const Lease &lease, const Step &step, uint32_t group,
                    const std::vector<uint64_t> &wanted) {
    int32_t found = 0;
    for (const auto &[key, own] : lease.blocks) {
        if (key.first != group || !own.known || own.content != wanted ||
            !world.touchable(own, step))
            continue;
        const Block &block = world.memory[world.config.pool_of(group)][key.second];
        const bool marked = std::any_of(block.begin(), block.end(),
                                        [](const Cell &cell) { return cell.marks != 0; });
        if (marked && own.filled_in != step.id) continue;
        found = key.second;
        if (own.owned) break;
    }
    return found;
}

// The blocks of as many places as the lease has content for.
std::vector<int32_t> choose_leased(World &world, const Lease &lease, const Step &step,
                                   const std::vector<uint64_t> &chain, uint32_t places) {
    std::vector<int32_t> chosen;
    for (uint32_t i = 0; i < places; ++i) {
        std::vector<int32_t> row;
        bool lacking = false;
        for (const auto &[g, index] : world.config.blocks_of_place(i)) {
            int32_t number =
                find_leased(world, lease, step, g, block_content(world.config, g, chain, index));
            const bool may_lack = world.config.groups[g].windowed();
            lacking |= number == 0 && !may_lack;
            if (may_lack && world.rng.chance(.2)) number = 0;
            row.push_back(number);
        }
        if (lacking) break;
        chosen.insert(chosen.end(), row.begin(), row.end());
    }
    return chosen;
}

// One named block of a publication.
void check_named(World &world, Step &step, uint32_t index, const std::vector<uint64_t> &content,
                 uint32_t group, int32_t given, int32_t named) {
    Lease &lease = world.leases[index];
    if (named < 0) fail("named", "named ", named);
    if (named == 0 && given != 0) fail("named0", "group ", group, ": gave ", given, ", named 0");
    if (named == 0) return;
    const auto [own, added] = lease.blocks.insert({{group, named}, LeaseBlock()});
    LeaseBlock &block = own->second;
    if (added) {
        block.holds = 1;
        block.known = true;
        block.content = content;
    } else if (named != given && block.known && block.content != content) {
        fail("named_other", "the named block ", named, " has other content in the lease");
    }
    step.checks.push_back({group, named, content, world.namespaces[lease.ns].serial, index});
    if (block.filled_in == step.id) block.published_in = step.id;
}

}  // namespace

void World::publish_leased(Step &step, uint32_t index, std::vector<uint32_t> tokens) {
    const uint64_t lease = leases[index].handle;
    auto result = made<quire_lease_result>();
    if (config.no_prefix || config.all_forget) {
        std::vector<int32_t> numbers(200, 0);
        const auto before = snapshot();
        const int32_t status =
            api->lease_publish(cache, step.handle, lease, tokens.data(), tokens.size(),
                               numbers.data(), numbers.data(), &result, message());
        if (status >= 0) fail("publish_unsup", "a cache that publishes nothing answered ", status);
        count(join("publish refused ", status, ": ", refusal(status)));
        return unchanged(before, "refused_changed", "publish");
    }
    const auto chain =
        chain_of({namespaces[leases[index].ns].serial, leases[index].key_set, 0, 0}, tokens);
    const uint32_t most = static_cast<uint32_t>(tokens.size()) / config.span;
    const auto given = choose_leased(*this, leases[index], step, chain, most);
    const uint32_t places = static_cast<uint32_t>(given.size()) / config.place_blocks();
    if (places == 0) return;
    tokens.resize(size_t{places} * config.span);
    std::vector<int32_t> named(given.size(), -5);
    std::vector<int32_t> in_place = given;
    const bool alias = rng.chance(.3);
    const auto before = snapshot();
    const int32_t status =
        api->lease_publish(cache, step.handle, lease, tokens.data(), tokens.size(), in_place.data(),
                           alias ? in_place.data() : named.data(), &result, message());
    trace("  lease_publish ", hex(lease), " ", places, " places -> ", status, " ", refusal(status),
          " new ", result.blocks);
    if (status != 0) {
        count(join("publish ", status, " ", refusal(status).substr(0, 60)));
        return unchanged(before, "refused_changed", "publish");
    }
    if (alias) named = in_place;
    const auto blocks = config.blocks_of_places(places);
    for (uint32_t at = 0; at < named.size(); ++at) {
        const auto [group, number] = blocks[at];
        check_named(*this, step, index, block_content(config, group, chain, number), group,
                    given[at], named[at]);
    }
    count(config.mixed ? "publish mixed ok" : "publish ok");
    published_exactly = false;
    if (!rng.chance(.7)) return;
    for (uint32_t at = 0; at < named.size(); ++at) {
        if (given[at] == 0 || given[at] == named[at]) continue;
        // Places that share a block's tokens and differ in later ones have the same content there:
        // the block may be another place's, and its content is not there before the step.
        const auto own = leases[index].blocks.find({blocks[at].group, given[at]});
        if (own == leases[index].blocks.end() || own->second.published_in == step.id) continue;
        give(step, index, blocks[at].group, given[at], 1);
    }
}

void World::give_some(Step &step, uint32_t index) {
    auto &blocks = leases[index].blocks;
    if (blocks.empty()) return;
    const auto chosen = std::next(blocks.begin(), rng.below(blocks.size()));
    const uint32_t times = rng.range(1, chosen->second.holds);
    if (touchable(chosen->second, step) && chosen->second.published_in == 0)
        give(step, index, chosen->first.first, chosen->first.second, times);
}

void World::give(Step &step, uint32_t index, uint32_t group, int32_t number, uint32_t times) {
    Lease &lease = leases[index];
    LeaseBlock &own = lease.blocks[{group, number}];
    if (rng.chance(.05)) {
        const std::vector<int32_t> more(own.holds + 1, number);
        const auto before = snapshot();
        const int32_t status = api->lease_give(cache, step.handle, lease.handle, group, more.data(),
                                               own.holds + 1, message());
        if (status != QUIRE_E_ARG)
            fail("give_more", "giving more holds than there are answered ", status);
        unchanged(before, "refused_changed", "give");
    }
    const std::vector<int32_t> numbers(times, number);
    const int32_t status =
        api->lease_give(cache, step.handle, lease.handle, group, numbers.data(), times, message());
    trace("  lease_give ", hex(lease.handle), " group ", group, " block ", number, " x ", times,
          " -> ", status);
    require_ok("give", status);
    own.holds -= times;
    if (own.holds == 0) {
        lease.blocks.erase({group, number});
        const auto is_it = [&](const LeasedContent &content) {
            return content.group == group && content.block == number && content.lease == index;
        };
        std::erase_if(step.fills, is_it);
        std::erase_if(step.checks, is_it);
    }
    count("give");
}

void World::pin(Step &step, uint32_t index) {
    Lease &lease = leases[index];
    if (lease.blocks.empty()) return;
    const auto chosen = std::next(lease.blocks.begin(), rng.below(lease.blocks.size()));
    const int32_t number = chosen->first.second;
    auto result = made<quire_lease_result>();
    const auto before = snapshot();
    const int32_t status = api->lease_pin(cache, step.handle, lease.handle, chosen->first.first,
                                          &number, 1, &result, message());
    trace("  lease_pin ", hex(lease.handle), " block ", number, " -> ", status);
    if (status == QUIRE_S_NO_BLOCKS) return unchanged(before, "refused_changed", "pin");
    require_ok("pin", status);
    ++chosen->second.holds;
    count("pin");
}

namespace {

// One block that a match found, which ends at token `next`.
void check_match(const Config &config, const PlaceBlock &block, uint32_t next, int32_t number) {
    if (number < 0) fail("match_id", "block ", number);
    const auto [group, place] = block;
    const Group &own = config.groups[group];
    const uint32_t begin = place * own.block_tokens, end = begin + own.block_tokens;
    bool must = true;
    if (own.recurrent()) must = end == next;
    if (own.windowed()) {
        must = end > own.first_seen(next) || (own.kind == QUIRE_GROUP_WINDOW && begin < own.sink);
        if (!must && number != 0)
            fail("match_window", "block ", place, " of group ", group,
                 " is named though the next token does not see it");
    }
    if (must && number == 0)
        fail("match_null", "block ", place, " of group ", group, " kind ", own.kind,
             " is 0 in a match up to ", next);
}

}  // namespace

void World::match_leased(Step &step, uint32_t index, std::vector<uint32_t> tokens) {
    Lease &lease = leases[index];
    if (rng.chance(.5)) tokens.push_back(99);
    const uint32_t how = rng.below(3);
    std::vector<int32_t> numbers(tokens.size() / config.span * config.place_blocks() + 9, -6);
    auto result = made<quire_lease_result>();
    const auto before = snapshot();
    const int32_t status = api->lease_match(cache, step.handle, lease.handle, tokens.data(),
                                            tokens.size(), how, numbers.data(), &result, message());
    trace("  lease_match ", hex(lease.handle), " how ", how, " tokens ", tokens.size(), " -> ",
          status, " blocks ", result.blocks, " ", refusal(status));
    if (status != 0) {
        const std::string why = refusal(status);
        unchanged(before, "refused_changed", "match");
        if (status < 0 && !config.all_forget) fail("match", status, " ", why);
        return count(join("match ", status));
    }
    if (how == QUIRE_MATCH_LOOK) unchanged(before, "look_changed", "match LOOK");
    if (size_t{result.blocks} * config.span > tokens.size())
        fail("match_n", result.blocks, " places for ", tokens.size(), " tokens");
    const auto chain = chain_of({namespaces[lease.ns].serial, lease.key_set, 0, 0}, tokens);
    const auto blocks = config.blocks_of_places(result.blocks);
    for (uint32_t at = 0; at < blocks.size(); ++at) {
        const auto [group, place] = blocks[at];
        check_match(config, blocks[at], result.blocks * config.span, numbers[at]);
        if (numbers[at] == 0 || how != QUIRE_MATCH_PIN) continue;
        const auto content = block_content(config, group, chain, place);
        LeaseBlock &own = lease.blocks[{group, numbers[at]}];
        if (own.holds++ == 0) {
            own.known = true;
            own.content = content;
        }
        step.checks.push_back({group, numbers[at], content, namespaces[lease.ns].serial, index});
    }
    for (size_t i = blocks.size(); i < numbers.size(); ++i)
        if (numbers[i] != -6) fail("match_wrote", "entry ", i, " past the result was written");
    count(join(config.mixed ? "match mixed how " : "match how ", how, " found ",
               result.blocks != 0 ? ">0" : "0"));
}

}  // namespace hybrid

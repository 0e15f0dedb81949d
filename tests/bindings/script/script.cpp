// SPDX-License-Identifier: Apache-2.0
//
// script: runs the operations of a file on a cache and prints each result; README.md.
#include <quire/dyn.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Numbers = std::vector<uint32_t>;

const quire_api *g_api = nullptr;

template <class Struct>
Struct sized() {
    Struct made{};
    made.struct_size = sizeof(Struct);
    return made;
}

// The result of an operation: a status, and numbers if the status is good, or it says short.
class Said {
 public:
    Said(quire_status status) : status_(status) {}

    template <class Number>
    Said &operator<<(Number number) {
        if (status_ == QUIRE_OK) text_.append(1, ' ').append(std::to_string(number));
        return *this;
    }

    Said &lacks(const quire_lease_result &result) {
        if (status_ != QUIRE_S_NO_BLOCKS) return *this;
        text_.append(1, ' ').append(std::to_string(result.blocks_short));
        text_.append(1, ' ').append(std::to_string(result.reason));
        return *this;
    }

    bool good() const { return status_ == QUIRE_OK; }
    std::string text() const { return name() + text_; }

 private:
    std::string name() const {
        static const std::map<quire_status, std::string> names = {
            {QUIRE_OK, "ok"},          {QUIRE_S_NO_BLOCKS, "short"},
            {QUIRE_E_ARG, "argument"}, {QUIRE_E_STALE, "stale"},
            {QUIRE_E_BUSY, "busy"},    {QUIRE_E_UNSUPPORTED, "unsupported"},
            {QUIRE_E_LIMIT, "limit"}};
        auto found = names.find(status_);
        return found == names.end() ? "other" : found->second;
    }

    quire_status status_;
    std::string text_;
};

struct Leased {
    quire_lease lease;
    std::vector<int32_t> hand;
};

Numbers count_from(uint32_t first, uint32_t count, uint32_t unknown = 0) {
    Numbers tokens(count);
    for (uint32_t i = 0; i < count; ++i) {
        tokens[i] = i + unknown < count ? first + i : QUIRE_TOKEN_UNKNOWN;
    }
    return tokens;
}

class Script {
 public:
    explicit Script(const Numbers &a) {
        auto host = sized<quire_instance_desc>();
        auto layers = sized<quire_group_desc>();
        layers.layer_count = layers.kv_heads = 1;
        layers.k_head_dim = layers.v_head_dim = 8;
        auto desc = sized<quire_cache_desc>();
        desc.groups = &layers;
        desc.group_count = 1;
        desc.group_stride = sizeof layers;
        desc.block_tokens = 4;
        desc.blocks = a[0];
        desc.host_blocks = a[1];
        if (g_api->instance_create(&host, &instance_, nullptr) < 0 ||
            g_api->cache_create(instance_, &desc, &cache_, nullptr) < 0) {
            throw std::runtime_error("no cache");
        }
    }
    ~Script() {
        if (step_ != 0) g_api->step_abort(cache_, step_, nullptr);
        for (quire_step step : committed_) {
            g_api->step_finish(cache_, step, nullptr, QUIRE_STEP_OK, nullptr);
        }
        g_api->cache_destroy(cache_, nullptr);
        g_api->instance_destroy(instance_, nullptr);
    }
    Script(const Script &) = delete;
    Script &operator=(const Script &) = delete;

    std::string run(const std::string &op, const Numbers &a) {
        auto of_step = steps_.find(op);
        auto of_sequence = sequences_.find(op);
        auto of_lease = of_leases_.find(op);
        auto of_cache = others_.find(op);
        bool wants_step = of_step != steps_.end() || op == "add" || op == "drop" ||
                          op == "preempt" || op == "take" || op == "publish" || op == "give" ||
                          op == "pin" || (op == "match" && a[3] == QUIRE_MATCH_PIN);
        if (wants_step && step_ == 0) return "none";
        if (of_lease != of_leases_.end()) {
            auto place = leases_.find(a[0]);
            return place == leases_.end() ? "none" : of_lease->second(place->second, a);
        }
        if (of_step != steps_.end()) return of_step->second(a);
        if (of_cache != others_.end()) return of_cache->second(a);
        if (places_.count(a[0]) == 0) return "none";
        return of_sequence->second(places_[a[0]], a);
    }

    bool is_whole() const { return g_api->cache_check(cache_, nullptr) == QUIRE_OK; }

 private:
    std::string create(const Numbers &a) {
        if (places_.count(a[0]) != 0) return "taken";
        auto desc = sized<quire_seq_desc>();
        desc.priority = int32_t(a[1]);
        quire_seq made = 0;
        Said said = g_api->seq_create(cache_, &desc, &made, nullptr);
        if (said.good()) places_[a[0]] = made;
        return said.text();
    }

    std::string begin(const Numbers &a) {
        auto desc = sized<quire_step_desc>();
        desc.queue_tag = a[0];
        desc.flags = a[1];
        desc.preempt = a[2];
        quire_step made = 0;
        Said said = g_api->step_begin(cache_, &desc, nullptr, 0, sizeof(quire_step_item), nullptr,
                                      0, nullptr, sizeof(quire_step_result), &made, nullptr);
        if (said.good()) step_ = made;
        return said.text();
    }

    std::string add(quire_seq seq, const Numbers &a) {
        quire_step_item item{};
        item.seq = seq;
        item.token_count = a[2];
        item.max_compute = a[3];
        item.draft_count = a[4];
        quire_step_result r{};
        Numbers tokens = count_from(a[1], a[2], a[5]);
        Said said = g_api->step_add(cache_, step_, &item, 1, sizeof item, tokens.data(), a[2], &r,
                                    sizeof r, nullptr);
        said << r.outcome << r.reason << r.hit_tokens << r.first_position << r.compute_count
             << r.blocks_short << r.row;
        return said.text();
    }

    std::string commit(const Numbers &) {
        Said said = g_api->step_commit(cache_, step_, nullptr, nullptr);
        if (!said.good()) return said.text();
        std::vector<quire_block_copy> copies(256);
        std::vector<quire_preemption> gone(256);
        uint32_t copy_count = 0, gone_count = 0, had = 0;
        g_api->step_copies(cache_, step_, copies.data(), 256, sizeof copies[0], &copy_count,
                           nullptr);
        g_api->step_preempted(cache_, step_, gone.data(), 256, sizeof gone[0], &gone_count,
                              nullptr);
        for (uint32_t i = 0; i < gone_count; ++i) had += gone[i].computed_tokens;
        committed_.push_back(step_);
        step_ = 0;
        said << copy_count << gone_count << had;
        return said.text();
    }

    std::string abort(const Numbers &) {
        Said said = g_api->step_abort(cache_, step_, nullptr);
        step_ = 0;
        return said.text();
    }

    std::string finish(uint32_t outcome) {
        if (committed_.empty()) return "none";
        Said said = g_api->step_finish(cache_, committed_.front(), nullptr, outcome, nullptr);
        committed_.pop_front();
        return said.text();
    }

    std::string end(quire_seq seq, const Numbers &a) {
        Said said = g_api->seq_end(cache_, seq, 0, nullptr);
        if (said.good()) places_.erase(a[0]);
        return said.text();
    }

    std::string drop(quire_seq seq) {
        quire_seq dropped[64];
        uint32_t count = 0;
        Said said = g_api->step_drop(cache_, step_, seq, dropped, 64, &count, nullptr);
        said << count;
        return said.text();
    }

    std::string preempt(quire_seq seq, const Numbers &a) {
        uint32_t freed = 0;
        Said said = g_api->step_preempt(cache_, step_, seq, a[1], &freed, nullptr);
        said << freed;
        return said.text();
    }

    std::string fork(quire_seq seq, const Numbers &a) {
        if (places_.count(a[1]) != 0) return "taken";
        quire_seq child = 0;
        Said said = g_api->seq_fork(cache_, seq, a[2], &child, nullptr);
        if (said.good()) places_[a[1]] = child;
        return said.text();
    }

    std::string pair(quire_seq seq, const Numbers &a) {
        if (places_.count(a[1]) == 0) return "none";
        auto desc = sized<quire_step_desc>();
        std::vector<quire_step_item> items(2);
        std::vector<quire_step_result> results(2);
        items[0].seq = seq;
        items[1].seq = places_[a[1]];
        items[0].token_count = items[1].token_count = items[1].token_offset = a[3];
        Numbers tokens = count_from(a[2], a[3]), others = count_from(a[2] + 7, a[3]);
        tokens.insert(tokens.end(), others.begin(), others.end());
        quire_step step = 0;
        Said said = g_api->step_begin(cache_, &desc, items.data(), 2, sizeof items[0],
                                      tokens.data(), uint32_t(tokens.size()), results.data(),
                                      sizeof results[0], &step, nullptr);
        if (!said.good()) return said.text();
        g_api->step_commit(cache_, step, nullptr, nullptr);
        g_api->step_finish(cache_, step, nullptr, QUIRE_STEP_OK, nullptr);
        for (const quire_step_result &r : results) {
            said << r.outcome << r.hit_tokens << r.first_position << r.compute_count << r.row;
        }
        return said.text();
    }

    std::string set(quire_seq seq, const Numbers &a) {
        quire_token_span span{};
        span.seq = seq;
        span.position = a[1];
        span.token_count = a[3];
        Numbers tokens = count_from(a[2], a[3]);
        return Said(g_api->seq_set_tokens(cache_, &span, 1, sizeof span, tokens.data(), a[3],
                                          nullptr))
            .text();
    }

    std::string probe(quire_seq seq, const Numbers &a) {
        Numbers tokens = count_from(a[1], a[2]);
        uint32_t hits = 0;
        Said said = g_api->prefix_probe(cache_, seq, tokens.data(), a[2], &hits, nullptr);
        said << hits;
        return said.text();
    }

    std::string migrate(const Numbers &a) {
        auto desc = sized<quire_migrate_desc>();
        desc.blocks = a[0];
        auto info = sized<quire_migrate_info>();
        quire_status status = g_api->cache_migrate_wait(cache_, &desc, &info, 0, nullptr);
        Said said = status < 0 ? status : quire_status{QUIRE_OK};
        said << (status == QUIRE_OK) << info.blocks_moved << info.blocks_dropped
             << info.blocks_short;
        return said.text();
    }

    std::string info(quire_seq seq) {
        auto i = sized<quire_seq_info>();
        Said said = g_api->seq_get_info(cache_, seq, &i, nullptr);
        said << i.known_tokens << i.computed_tokens << i.draft_tokens << i.blocks_held
             << i.preemptions;
        return said.text();
    }

    std::string blocks(quire_seq seq) {
        std::vector<int32_t> ids(256);
        uint32_t count = 0;
        Said said = g_api->step_blocks(cache_, 0, seq, 0, 0, ids.data(), 256, &count, nullptr);
        for (uint32_t i = 0; i < count; ++i) said << ids[i];
        return said.text();
    }

    std::string lease(const Numbers &a) {
        if (leases_.count(a[0]) != 0) return "taken";
        auto desc = sized<quire_lease_desc>();
        quire_lease made = 0;
        Said said = g_api->lease_create(cache_, &desc, &made, nullptr);
        if (said.good()) leases_[a[0]] = {made, {}};
        return said.text();
    }

    std::string unlease(const Leased &of, const Numbers &a) {
        Said said = g_api->lease_end(cache_, of.lease, nullptr);
        if (said.good()) leases_.erase(a[0]);
        return said.text();
    }

    // Ids that a call wrote become the hand.
    static std::string hold(Said said, Leased &of, const std::vector<int32_t> &ids,
                            const quire_lease_result &result) {
        said.lacks(result);
        if (said.good()) of.hand = ids;
        for (int32_t id : ids) said << id;
        return said.text();
    }

    std::string take(Leased &of, const Numbers &a) {
        auto result = sized<quire_lease_result>();
        std::vector<int32_t> ids(a[1]);
        Said said =
            g_api->lease_take(cache_, step_, of.lease, 0, a[1], ids.data(), &result, nullptr);
        return hold(said, of, ids, result);
    }

    std::string publish(Leased &of, const Numbers &a) {
        auto result = sized<quire_lease_result>();
        Numbers tokens = count_from(a[1], uint32_t(of.hand.size()) * 4);
        std::vector<int32_t> named(of.hand.size());
        Said said =
            g_api->lease_publish(cache_, step_, of.lease, tokens.data(), uint32_t(tokens.size()),
                                 of.hand.data(), named.data(), &result, nullptr);
        return hold(said, of, named, result);
    }

    std::string match(Leased &of, const Numbers &a) {
        auto result = sized<quire_lease_result>();
        Numbers tokens = count_from(a[1], a[2]);
        std::vector<int32_t> ids(a[2] + 1);
        Said said = g_api->lease_match(cache_, a[3] == QUIRE_MATCH_PIN ? step_ : 0, of.lease,
                                       tokens.data(), a[2], a[3], ids.data(), &result, nullptr);
        ids.resize(result.blocks);
        return hold(said, of, ids, result);
    }

    std::string give(const Leased &of, const Numbers &a) {
        auto count = uint32_t(std::min<size_t>(a[1], of.hand.size()));
        return Said(g_api->lease_give(cache_, step_, of.lease, 0, of.hand.data(), count, nullptr))
            .text();
    }

    std::string pin(const Leased &of, const Numbers &a) {
        auto result = sized<quire_lease_result>();
        auto id = int32_t(a[1]);
        Said said = g_api->lease_pin(cache_, step_, of.lease, 0, &id, 1, &result, nullptr);
        return said.lacks(result).text();
    }

    std::string forget(const Leased &of) {
        uint32_t count = 0;
        Said said = g_api->lease_forget(cache_, of.lease, 0, of.hand.data(),
                                        uint32_t(of.hand.size()), &count, nullptr);
        said << count;
        return said.text();
    }

    std::string held(const Leased &of) {
        std::vector<quire_lease_block> list(256);
        uint32_t count = 0;
        Said said = g_api->lease_blocks(cache_, of.lease, 0, 0, list.data(), 256, sizeof list[0],
                                        &count, nullptr);
        for (uint32_t i = 0; i < count; ++i)
            said << list[i].block << list[i].holds << list[i].flags;
        return said.text();
    }

    std::string evict(const Numbers &a) {
        std::vector<int32_t> ids(a[0]);
        uint32_t count = 0;
        Said said = g_api->cache_evict(cache_, 0, a[0], ids.data(), &count, nullptr);
        for (uint32_t i = 0; i < count; ++i) said << ids[i];
        return said.text();
    }

    std::string stats() {
        auto s = sized<quire_cache_stats>();
        Said said = g_api->cache_get_stats(cache_, &s, nullptr);
        said << s.prefix_cache_queries << s.prefix_cache_hits << s.num_preemptions << s.evictions
             << s.copies_on_write << s.blocks_swapped_out << s.blocks_swapped_in << s.forks
             << s.steps << s.sequences << s.blocks_free << s.blocks_cached << s.blocks_held
             << s.leases << s.blocks_leased;
        return said.text();
    }

    using OfCache = std::function<std::string(const Numbers &)>;
    using OfLease = std::function<std::string(Leased &, const Numbers &)>;
    using OfSequence = std::function<std::string(quire_seq, const Numbers &)>;

    quire_instance *instance_ = nullptr;
    quire_cache *cache_ = nullptr;
    std::map<uint32_t, quire_seq> places_;
    std::map<uint32_t, Leased> leases_;
    quire_step step_ = 0;
    std::deque<quire_step> committed_;
    const std::map<std::string, OfCache> steps_ = {
        {"abort", [this](const Numbers &a) { return abort(a); }},
        {"commit", [this](const Numbers &a) { return commit(a); }}};
    const std::map<std::string, OfCache> others_ = {
        {"create", [this](const Numbers &a) { return create(a); }},
        {"begin", [this](const Numbers &a) { return begin(a); }},
        {"finish", [this](const Numbers &) { return finish(QUIRE_STEP_OK); }},
        {"fail", [this](const Numbers &) { return finish(QUIRE_STEP_FAILED); }},
        {"migrate", [this](const Numbers &a) { return migrate(a); }},
        {"reset",
         [this](const Numbers &) { return Said(g_api->cache_reset(cache_, nullptr)).text(); }},
        {"lease", [this](const Numbers &a) { return lease(a); }},
        {"evict", [this](const Numbers &a) { return evict(a); }},
        {"stats", [this](const Numbers &) { return stats(); }}};
    const std::map<std::string, OfLease> of_leases_ = {
        {"unlease", [this](Leased &of, const Numbers &a) { return unlease(of, a); }},
        {"take", [this](Leased &of, const Numbers &a) { return take(of, a); }},
        {"publish", [this](Leased &of, const Numbers &a) { return publish(of, a); }},
        {"match", [this](Leased &of, const Numbers &a) { return match(of, a); }},
        {"give", [this](Leased &of, const Numbers &a) { return give(of, a); }},
        {"pin", [this](Leased &of, const Numbers &a) { return pin(of, a); }},
        {"forget", [this](Leased &of, const Numbers &) { return forget(of); }},
        {"held", [this](Leased &of, const Numbers &) { return held(of); }}};
    const std::map<std::string, OfSequence> sequences_ = {
        {"add", [this](quire_seq s, const Numbers &a) { return add(s, a); }},
        {"drop", [this](quire_seq s, const Numbers &) { return drop(s); }},
        {"preempt", [this](quire_seq s, const Numbers &a) { return preempt(s, a); }},
        {"end", [this](quire_seq s, const Numbers &a) { return end(s, a); }},
        {"fork", [this](quire_seq s, const Numbers &a) { return fork(s, a); }},
        {"truncate",
         [this](quire_seq s, const Numbers &a) {
             return Said(g_api->seq_truncate(cache_, s, a[1], nullptr)).text();
         }},
        {"accept",
         [this](quire_seq s, const Numbers &a) {
             return Said(g_api->seq_accept(cache_, s, a[1], nullptr)).text();
         }},
        {"pair", [this](quire_seq s, const Numbers &a) { return pair(s, a); }},
        {"set", [this](quire_seq s, const Numbers &a) { return set(s, a); }},
        {"probe", [this](quire_seq s, const Numbers &a) { return probe(s, a); }},
        {"info", [this](quire_seq s, const Numbers &) { return info(s); }},
        {"blocks", [this](quire_seq s, const Numbers &) { return blocks(s); }}};
};

}  // namespace

int main(int argc, char **argv) {
    char why[512];
    if (argc != 2) return std::cerr << "usage: script FILE\n", 2;
    if (quire_dyn_load(nullptr, &g_api, why, sizeof why) < 0) return std::cerr << why << "\n", 1;
    std::ifstream file(argv[1]);
    std::string line;
    std::unique_ptr<Script> script;
    for (int number = 1; std::getline(file, line); ++number) {
        std::istringstream words(line);
        std::string op;
        words >> op;
        Numbers a(6);
        std::string field;
        for (uint32_t &value : a) {
            if (words >> field) value = std::stoul(field.substr(field.find('=') + 1));
        }
        std::string said = "ok";
        if (script == nullptr) {
            script = std::make_unique<Script>(a);
        } else {
            said = script->run(op, a);
        }
        std::cout << number << " " << said << "\n";
    }
    return script != nullptr && script->is_whole() ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0

#include "reference.hpp"

#include <algorithm>

namespace quire::model {

Reference::Reference(const Config &config) : config_(config) {
    for (const GroupShape &group : config.groups) {
        blocks_.emplace_back(static_cast<size_t>(group.blocks));
        host_.emplace_back(static_cast<size_t>(config.host_blocks));
    }
    seqs_.resize(static_cast<size_t>(config.max_sequences));
}

int Reference::block_count(int tokens) const {
    return (tokens + config_.block_tokens - 1) / config_.block_tokens;
}

bool Reference::sees(int group, int position, int key) const {
    const GroupShape &shape = config_.groups[static_cast<size_t>(group)];
    if (key > position) return false;
    if (shape.kind == Kind::window) return key < shape.sinks || key > position - shape.window;
    if (shape.kind == Kind::chunked) return key / shape.window == position / shape.window;
    return true;
}

bool Reference::needs(int group, int position, int index) const {
    int begin = index * config_.block_tokens;
    for (int key = begin; key < std::min(position, begin + config_.block_tokens); ++key) {
        if (sees(group, position, key)) return true;
    }
    return false;
}

int Reference::table_length(int group, int tokens, const Seq &s) const {
    return block_count(is_cross(static_cast<size_t>(group)) ? s.cross : tokens);
}

int Reference::first_unknown(const Seq &s) const {
    auto found = std::find(s.tokens.begin(), s.tokens.end(), kUnknown);
    return static_cast<int>(found - s.tokens.begin());
}

bool Reference::done(int64_t step) const {
    return unfinished_.empty() ? step < next_step_ : step < unfinished_.front().number;
}

bool Reference::usable(int64_t touch, int64_t queue) const {
    for (const Step &step : unfinished_) {
        if (step.number <= touch && step.queue != queue) return false;
    }
    return true;
}

bool Reference::visible(int64_t ready, int64_t queue, bool any_queue) const {
    for (const Step &step : unfinished_) {
        if (step.number == ready && !any_queue && step.queue != queue) return false;
    }
    return true;
}

int Reference::count_free(int group) const {
    int count = 0;
    for (const Block &b : blocks_[static_cast<size_t>(group)])
        count += b.refs == 0 && (b.node < 0 || b.parked);
    return count;
}

int Reference::count_cached(int group) const {
    int count = 0;
    for (const Block &b : blocks_[static_cast<size_t>(group)])
        count += b.refs == 0 && b.node >= 0 && !b.parked;
    return count;
}

int Reference::count_held(int group) const {
    int count = 0;
    for (const Block &b : blocks_[static_cast<size_t>(group)]) count += b.refs > 0;
    return count;
}

int Reference::host_used() const {
    int count = 0;
    for (const auto &blocks : host_) {
        for (const Block &b : blocks) count += b.refs;
    }
    return count;
}

int Reference::available(int group) const {
    int count = 0;
    for (const Block &b : blocks_[static_cast<size_t>(group)]) {
        count += b.refs == 0 && !b.parked && usable(b.touch, step_.queue);
    }
    return count;
}

// Takes the best free block, in this order: blocks that the open step let go of and that will wait
// for it or its queue, the last one first; blocks that nothing touches; blocks that only this
// queue's work touches, those of the oldest step first; and then the cached block that was given
// back longest ago.
int Reference::take(int group) {
    auto &blocks = blocks_[static_cast<size_t>(group)];
    int best = -1, best_class = 3;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const Block &b = blocks[i];
        if (b.refs != 0 || b.parked || !usable(b.touch, step_.queue)) continue;
        int rank = b.node >= 0 ? 2 : done(b.touch) ? 0 : 1;
        int since = b.node < 0 ? waits_since(group, static_cast<int>(i), false) : 0;
        if (since != 0) rank = -since;
        bool better = rank < best_class;
        if (rank == best_class) {
            const Block &other = blocks[static_cast<size_t>(best)];
            better = rank == 1 ? b.touch < other.touch : rank == 2 && b.stamp < other.stamp;
        }
        if (!better) continue;
        best = static_cast<int>(i);
        best_class = rank;
    }
    Block &b = blocks[static_cast<size_t>(best)];
    if (b.node >= 0) {
        Node &node = nodes_[static_cast<size_t>(b.node)];
        node.blocks[static_cast<size_t>(group)] = -1;
        evicted_.push_back(b.node);
        if (config_.groups[static_cast<size_t>(group)].keeps_all()) node.hidden = true;
    }
    b.node = -1;
    b.refs = 1;
    b.frozen = 0;
    return best;
}

void Reference::drop_ref(int group, int block, int64_t touch) {
    Block &b = blocks_[static_cast<size_t>(group)][static_cast<size_t>(block)];
    b.touch = std::max(b.touch, touch);
    if (--b.refs == 0) b.stamp = ++clock_;
}

// The blocks of a node forget it.
void Reference::free_parts(int node) {
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int block = nodes_[static_cast<size_t>(node)].blocks[g];
        if (block < 0) continue;
        Block &b = blocks_[g][static_cast<size_t>(block)];
        b.node = -1;
        if (b.refs == 0) b.stamp = ++clock_;
        nodes_[static_cast<size_t>(node)].blocks[g] = -1;
    }
}

void Reference::kill(int node) {
    free_parts(node);
    nodes_[static_cast<size_t>(node)].alive = false;
    free_if_bare(nodes_[static_cast<size_t>(node)].parent);
}

bool Reference::has_full_group() const {
    for (const GroupShape &group : config_.groups) {
        if (group.keeps_all()) return true;
    }
    return false;
}

// Without full-attention groups a node lives only while it names a block or has children.
void Reference::free_if_bare(int node) {
    if (has_full_group()) return;
    while (node >= 0 && nodes_[static_cast<size_t>(node)].alive) {
        for (int block : nodes_[static_cast<size_t>(node)].blocks) {
            if (block >= 0) return;
        }
        for (const Node &other : nodes_) {
            if (other.alive && other.parent == node) return;
        }
        nodes_[static_cast<size_t>(node)].alive = false;
        node = nodes_[static_cast<size_t>(node)].parent;
    }
}

int Reference::find_child(const std::string &root, int parent,
                          const std::vector<uint32_t> &tokens) const {
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Node &n = nodes_[i];
        if (n.alive && !n.hidden && n.parent == parent && n.root == root && n.tokens == tokens) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

std::vector<int> Reference::match(const Seq &s, int max_blocks, bool any_queue) const {
    std::vector<int> out;
    int parent = -1;
    for (int i = 0; i < max_blocks; ++i) {
        auto begin = s.tokens.begin() + i * config_.block_tokens;
        int node = find_child(s.root, parent, {begin, begin + config_.block_tokens});
        if (node < 0) break;
        bool all_visible = true;
        for (size_t g = 0; g < blocks_.size(); ++g) {
            int block = nodes_[static_cast<size_t>(node)].blocks[g];
            if (block < 0) continue;
            all_visible &=
                visible(blocks_[g][static_cast<size_t>(block)].ready, step_.queue, any_queue);
        }
        if (!all_visible) break;
        out.push_back(node);
        parent = node;
    }
    return out;
}

int Reference::best_hit(const std::vector<int> &matched) const {
    for (int n = static_cast<int>(matched.size()); n > 0; --n) {
        bool whole = true;
        for (size_t g = 0; g < blocks_.size(); ++g) {
            for (int i = 0; i < n; ++i) {
                if (!needs(static_cast<int>(g), n * config_.block_tokens, i) || is_cross(g))
                    continue;
                whole &=
                    nodes_[static_cast<size_t>(matched[static_cast<size_t>(i)])].blocks[g] >= 0;
            }
        }
        if (whole) return n;
    }
    return 0;
}

void Reference::attach(int slot, int index, int node, int64_t ready) {
    for (size_t g = 0; g < blocks_.size(); ++g) {
        if (is_cross(g)) continue;
        const auto &table = at(slot).tables[g];
        int block = index < static_cast<int>(table.size()) ? table[static_cast<size_t>(index)] : -1;
        int &named = nodes_[static_cast<size_t>(node)].blocks[g];
        if (block < 0 || named == block) continue;
        Block &b = blocks_[g][static_cast<size_t>(block)];
        if (b.node >= 0) continue;
        if (named >= 0) {
            Block &older = blocks_[g][static_cast<size_t>(named)];
            if (older.refs > 0) continue;
            // The block in use stays; the older one is given back when the step is committed.
            if (open_ && at(slot).in_step) {
                older.parked = true;
                parked_.emplace_back(static_cast<int>(g), named);
            } else {
                older.node = -1;
                older.stamp = ++clock_;
            }
        }
        named = block;
        b.node = node;
        b.ready = ready;
        b.depends = depends(slot, (index + 1) * config_.block_tokens);
        b.frozen = config_.block_tokens;
    }
}

std::set<int64_t> Reference::depends(int slot, int end) const {
    std::set<int64_t> steps;
    for (auto [step, position] : seq(slot).pending) {
        if (position < end && !done(step)) steps.insert(step);
    }
    if (seq(slot).in_step && step_.valid.at(slot) < end) steps.insert(step_.number);
    return steps;
}

// Only computed tokens depend on a step.
void Reference::trim_pending(int slot) {
    Seq &s = at(slot);
    for (auto it = s.pending.begin(); it != s.pending.end();) {
        it = it->second < s.computed ? std::next(it) : s.pending.erase(it);
    }
}

void Reference::publish(int slot, int64_t ready) {
    Seq &s = at(slot);
    int settled =
        std::min({s.computed, static_cast<int>(s.tokens.size()) - s.drafts, first_unknown(s)});
    if (!s.moves.empty()) settled = std::min(settled, s.move_begin);
    int full = settled / config_.block_tokens;
    if (full <= s.published || config_.prefix_off || s.unpublished || s.swapped) return;
    if (s.cross != 0) return;
    // A node names at least one block, or has nodes below it.
    auto names_a_block = [&](int i) {
        for (size_t g = 0; g < blocks_.size(); ++g) {
            if (!is_cross(g) && s.tables[g][static_cast<size_t>(i)] >= 0) return true;
        }
        return false;
    };
    while (full > s.published && !names_a_block(full - 1)) --full;
    if (full == s.published) return;
    if (s.cursor >= 0 && !nodes_[static_cast<size_t>(s.cursor)].alive) {
        s.cursor = -1;
        s.published = 0;
    }
    for (int i = s.published; i < full; ++i) {
        auto begin = s.tokens.begin() + i * config_.block_tokens;
        std::vector<uint32_t> tokens(begin, begin + config_.block_tokens);
        int node = find_child(s.root, s.cursor, tokens);
        if (node < 0) {
            for (size_t g = 0; g < blocks_.size(); ++g) {
                if (is_cross(g)) continue;
                int block = s.tables[g][static_cast<size_t>(i)];
                if (block >= 0 && blocks_[g][static_cast<size_t>(block)].node >= 0) return;
            }
            node = static_cast<int>(nodes_.size());
            nodes_.push_back(
                Node{true, false, s.cursor, s.root, tokens, std::vector<int>(blocks_.size(), -1)});
        }
        attach(slot, i, node, ready);
        s.cursor = node;
        s.published = i + 1;
    }
}

int Reference::create(int slot, const std::string &root, int ns, int priority, int cross,
                      int index) {
    at(slot) = Seq{};
    at(slot).index = index;
    at(slot).cross = cross;
    at(slot).live = true;
    at(slot).root = root;
    at(slot).ns = ns;
    at(slot).priority = priority;
    at(slot).tables.resize(blocks_.size());
    return slot;
}

// The longest length at which the next token finds all that it sees, and the block it goes into if
// that block already has tokens.
int Reference::whole_windows(const Seq &s, int tokens) const {
    for (; tokens > 0; --tokens) {
        bool whole = true;
        for (size_t g = 0; g < blocks_.size(); ++g) {
            if (is_cross(g)) continue;
            for (int i = 0; i < block_count(tokens); ++i) {
                bool partly = (i + 1) * config_.block_tokens > tokens;
                bool wanted = partly || needs(static_cast<int>(g), tokens, i);
                whole &= !wanted || s.tables[g][static_cast<size_t>(i)] >= 0;
            }
        }
        if (whole) return tokens;
    }
    return 0;
}

void Reference::rewind(int slot) {
    Seq &s = at(slot);
    int full = s.computed / config_.block_tokens;
    if (s.published <= full) return;
    s.published = full;
    for (size_t g = 0; g < blocks_.size() && full > 0 && !s.swapped; ++g) {
        if (is_cross(g)) continue;
        int block = s.tables[g][static_cast<size_t>(full - 1)];
        int node = block >= 0 ? blocks_[g][static_cast<size_t>(block)].node : -1;
        if (node < 0) continue;
        s.cursor = node;
        return;
    }
    s.published = 0;
    s.cursor = -1;
}

void Reference::lower_computed(int slot, int tokens, int wrong_from) {
    Seq &s = at(slot);
    s.computed = whole_windows(s, std::min(s.computed, tokens));
    trim_pending(slot);
    size_t moved = static_cast<size_t>(std::max(0, s.computed - s.move_begin));
    if (s.moves.size() > moved) s.moves.resize(moved);
    int covered = s.moves.empty() ? s.computed : s.moves.back() + 1;
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int length = s.computed == 0 ? 0 : table_length(static_cast<int>(g), covered, s);
        size_t keep = static_cast<size_t>(length);
        while (s.tables[g].size() > keep) {
            int block = s.tables[g].back();
            s.tables[g].pop_back();
            if (block < 0) continue;
            if (s.swapped) {
                Block &b = host_[g][static_cast<size_t>(block)];
                b.refs = 0;
                b.touch = std::max(b.touch, s.last_step);
                continue;
            }
            int node = blocks_[g][static_cast<size_t>(block)].node;
            int end = (static_cast<int>(s.tables[g].size()) + 1) * config_.block_tokens;
            if (wrong_from >= 0 && end > wrong_from && node >= 0) kill(node);
            drop_ref(static_cast<int>(g), block, s.last_step);
            int &owner = blocks_[g][static_cast<size_t>(block)].owner;
            if (owner == slot) owner = -1;
        }
    }
    rewind(slot);
    if (s.computed == 0) s.swapped = s.unpublished = false;
}

// True if another sequence uses a block named by the node of this sequence's block `index`.
bool Reference::used_by_others(const Seq &s, size_t index, int node) const {
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int named = nodes_[static_cast<size_t>(node)].blocks[g];
        if (named < 0) continue;
        bool own = !s.swapped && index < s.tables[g].size() && s.tables[g][index] == named;
        if (blocks_[g][static_cast<size_t>(named)].refs > (own ? 1 : 0)) return true;
    }
    return false;
}

// Drops the nodes that the tokens lead to, and then others that the tables name.
void Reference::drop_prefix(const Seq &s) {
    if (s.cross != 0 || config_.prefix_off) return;  // it published nothing
    auto unknown = std::find(s.tokens.begin(), s.tokens.end() - s.drafts, kUnknown);
    int settled = static_cast<int>(unknown - s.tokens.begin());
    std::vector<int> found = match(s, settled / config_.block_tokens, true);
    for (size_t g = 0; g < blocks_.size() && !s.swapped; ++g) {
        for (size_t i = s.tables[g].size(); i-- > found.size();) {
            int block = s.tables[g][i];
            int node = block >= 0 ? blocks_[g][static_cast<size_t>(block)].node : -1;
            if (node >= 0 && !used_by_others(s, i, node)) kill(node);
        }
    }
    for (size_t i = found.size(); i-- > 0;) {
        if (!nodes_[static_cast<size_t>(found[i])].alive || used_by_others(s, i, found[i]))
            continue;
        if (has_full_group()) {
            kill(found[i]);
        } else {
            free_parts(found[i]);
            free_if_bare(found[i]);
        }
    }
}

void Reference::end(int slot, bool drops) {
    Seq &s = at(slot);
    if (drops) drop_prefix(s);
    lower_computed(slot, 0, -1);
    s = Seq{};
}

bool Reference::fork(int slot, int child, int token_count, int index) {
    Seq &p = at(slot);
    if (p.in_step || p.gave_up || p.swapped || p.drafts != 0) return false;
    if (token_count > static_cast<int>(p.tokens.size())) return false;
    Seq s = p;
    s.index = index;
    s.tokens.resize(static_cast<size_t>(token_count));
    int computed = std::min(p.computed, token_count);
    if (!p.moves.empty()) computed = std::min(computed, p.move_begin);
    s.computed = whole_windows(p, computed);
    s.moves.clear();
    s.lookahead = s.preemptions = 0;
    s.lost = s.preempted = false;
    s.admitted = s.computed != 0 ? ++admissions_ : 0;
    s.unpublished = s.unpublished && s.computed != 0;
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int length = s.computed == 0 ? 0 : table_length(static_cast<int>(g), s.computed, s);
        s.tables[g].resize(static_cast<size_t>(length));
        for (size_t i = 0; i < s.tables[g].size(); ++i) {
            if (s.tables[g][i] < 0) continue;
            Block &b = blocks_[g][static_cast<size_t>(s.tables[g][i])];
            ++b.refs;
            if (is_cross(g)) continue;
            int readable = std::min(config_.block_tokens,
                                    s.computed - static_cast<int>(i) * config_.block_tokens);
            b.frozen = std::max(b.frozen, readable);
        }
    }
    for (auto it = s.pending.begin(); it != s.pending.end();) {
        it = it->second < s.computed ? std::next(it) : s.pending.erase(it);
    }
    at(child) = s;
    rewind(child);
    return true;
}

bool Reference::truncate(int slot, int token_count) {
    Seq &s = at(slot);
    int known = static_cast<int>(s.tokens.size());
    if (s.in_step || s.gave_up || token_count > known) return false;
    s.drafts = std::max(0, token_count - (known - s.drafts));
    s.tokens.resize(static_cast<size_t>(token_count));
    s.lookahead = 0;
    lower_computed(slot, token_count, -1);
    return true;
}

bool Reference::accept(int slot, int count) {
    Seq &s = at(slot);
    if (s.in_step || s.gave_up || count > s.drafts + s.lookahead || s.swapped) return false;
    for (int i = 0; i < count && i < s.drafts; ++i) {
        if (s.draft_parents[static_cast<size_t>(i)] != i - 1) return false;
    }
    size_t old_known = s.tokens.size();
    size_t known = old_known - static_cast<size_t>(s.drafts) + static_cast<size_t>(count);
    if (known > old_known && s.computed == static_cast<int>(old_known))
        s.computed = static_cast<int>(known);
    s.tokens.resize(known, kUnknown);
    s.drafts = s.lookahead = 0;
    lower_computed(slot, static_cast<int>(known), -1);
    publish(slot, s.last_step);
    return true;
}

bool Reference::accept_path(int slot, const std::vector<int> &path) {
    Seq &s = at(slot);
    if (s.in_step || s.gave_up || s.swapped) return false;
    if (s.drafts == 0) return path.empty();
    for (size_t i = 0; i < path.size(); ++i) {
        if (path[i] < 0 || path[i] >= s.drafts) return false;
        int parent = s.draft_parents[static_cast<size_t>(path[i])];
        if (parent != (i == 0 ? -1 : path[i - 1])) return false;
    }
    int base = static_cast<int>(s.tokens.size()) - s.drafts;
    std::vector<uint32_t> kept(s.tokens.begin(), s.tokens.begin() + base);
    s.moves.clear();
    for (size_t i = 0; i < path.size(); ++i) {
        kept.push_back(s.tokens[static_cast<size_t>(base + path[i])]);
        if (path[i] == static_cast<int>(i)) continue;
        if (s.moves.empty()) s.move_begin = base + static_cast<int>(i);
        s.moves.push_back(base + path[i]);
    }
    s.tokens = kept;
    s.drafts = s.lookahead = 0;
    lower_computed(slot, static_cast<int>(kept.size()), -1);
    publish(slot, s.last_step);
    return true;
}

bool Reference::set_tokens(int slot, int position, const std::vector<uint32_t> &tokens) {
    Seq &s = at(slot);
    if (s.in_step || s.gave_up) return false;
    for (size_t i = 0; i < tokens.size(); ++i) {
        size_t p = static_cast<size_t>(position) + i;
        if (p >= s.tokens.size() || s.tokens[p] != kUnknown) return false;
    }
    std::copy(tokens.begin(), tokens.end(), s.tokens.begin() + position);
    publish(slot, s.last_step);
    return true;
}

int Reference::probe(int slot, const std::vector<uint32_t> &tokens) const {
    Seq s = seq(slot);
    if (config_.prefix_off || s.computed != 0 || s.in_step || s.gave_up || s.cross != 0) return 0;
    s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    int settled = std::min(static_cast<int>(s.tokens.size()) - 1, first_unknown(s));
    if (settled < 0) return 0;
    return best_hit(match(s, settled / config_.block_tokens, true)) * config_.block_tokens;
}

void Reference::reset() {
    for (Node &node : nodes_) node.alive = false;
    for (auto &blocks : blocks_) {
        for (Block &b : blocks) b.node = -1;
    }
    for (Seq &s : seqs_) {
        if (s.live && s.computed != 0) s.unpublished = true;
    }
}

}  // namespace quire::model

// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/tier_keys.hpp"

namespace quire {

namespace {

constexpr char kFormat[16] = "quire tier 1";  // the version of all that is hashed here

}  // namespace

bool TierKeys::open(const uint8_t fingerprint[32]) {
    std::memcpy(fingerprint_, fingerprint, sizeof fingerprint_);
    return names_.create(books_.journal.tree().capacity());
}

const Digest *TierKeys::tenant(uint32_t root) const {
    const Scopes &scopes = books_.journal.tree().scopes();
    const Namespace &ns = books_.namespaces[scopes.account(root)];
    return ns.has_digest ? &ns.digest : nullptr;
}

uint32_t TierKeys::root_of(uint32_t node) const {
    const PrefixTree &tree = books_.journal.tree();
    return tree.scopes().root_of(tree.scope(node));
}

Digest TierKeys::root_name(uint32_t root) const {
    const Scopes &scopes = books_.journal.tree().scopes();
    const uint32_t count = scopes.word_count(root) - Scopes::kNamespaceWords;
    Sha256 hash;
    hash.add(kFormat, sizeof kFormat);
    hash.add(fingerprint_, sizeof fingerprint_);
    hash.add(tenant(root)->bytes, sizeof(Digest));
    hash.add(books_.geometry.block_tokens);
    hash.add(count);
    hash.add(scopes.words(root) + Scopes::kNamespaceWords, uint64_t{count} * 4);
    return hash.finish();
}

Digest TierKeys::next_name(const Digest &previous, const uint32_t *tokens,
                           const Extra &extra) const {
    const uint32_t block_tokens = books_.geometry.block_tokens;
    Sha256 hash;
    hash.add(previous.bytes, sizeof previous.bytes);
    if (extra.scope != kNone) {
        const Scopes &scopes = books_.journal.tree().scopes();
        scopes.each_overlap(extra.scope, extra.begin, extra.begin + block_tokens,
                            [&](const Span &span, const uint32_t *words, uint32_t count) {
                                hash.add(span.begin);
                                hash.add(span.end);
                                hash.add(count);
                                hash.add(words, uint64_t{count} * 4);
                            });
    }
    hash.add(uint32_t{0});  // no span ends at token 0
    hash.add(uint32_t{0});
    hash.add(tokens, uint64_t{block_tokens} * 4);
    return hash.finish();
}

// Walks up to a node whose name is known, or to the root, and names all on the way down again.
NodeName *TierKeys::of_node(uint32_t node) {
    const PrefixTree &tree = books_.journal.tree();
    if (names_.size() < tree.capacity()) {  // the cache has moved to larger pools
        const uint64_t before = names_.size();
        if (!names_.reserve(tree.capacity())) return nullptr;
        names_.resize_within(tree.capacity());
        std::memset(names_.data() + before, 0, (names_.size() - before) * sizeof(NodeName));
    }
    path_.shrink(0);
    uint32_t at = node;
    while (names_[at].generation != tree.generation(at)) {
        if (!path_.push_growing(at)) return nullptr;
        if (tree.is_first(at)) {
            at = kNone;
            break;
        }
        at = tree.parent(at);
        if (at == kNone) return nullptr;
    }
    if (path_.empty()) return &names_[node];
    const uint32_t root = root_of(node);
    if (tenant(root) == nullptr) return nullptr;
    Digest name = at != kNone ? names_[at].name : root_name(root);
    uint32_t index = at != kNone ? names_[at].index + 1 : 0;
    for (uint64_t i = path_.size(); i-- > 0; ++index) {
        const uint32_t scope = tree.scope(path_[i]);
        const Extra extra =
            scope != root ? tree.extra(scope, books_.geometry.span.first_token(index)) : Extra{};
        name = next_name(name, tree.tokens(path_[i]), extra);
        names_[path_[i]] = NodeName{tree.generation(path_[i]), index, 0, name};
    }
    return &names_[node];
}

}  // namespace quire

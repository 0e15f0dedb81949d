// SPDX-License-Identifier: Apache-2.0

#include <set>
#include <tuple>

#include "player.hpp"

namespace quire::model {

Player::Tables Player::tables() {
    Tables out;
    for (int slot = 0; slot < kSlots; ++slot) {
        size_t groups = seqs_[slot] != 0 ? reference_[0].config().groups.size() : 0;
        for (uint32_t g = 0; g < groups; ++g) {
            std::vector<int32_t> ids(128);
            uint32_t count = 0;
            api_.step_blocks(cache_, 0, seqs_[slot], g, 0, ids.data(), 128, &count, &error_);
            ids.resize(count);
            out[{slot, g}] = ids;
        }
    }
    return out;
}

// Every table entry became what the move list says, and no two blocks became one.
void Player::expect_moved(const Tables &before, const std::vector<quire_block_move> &moves) {
    using Place = std::tuple<uint32_t, uint32_t, int32_t>;
    std::map<Place, int32_t> became;
    std::set<Place> targets;
    for (const quire_block_move &move : moves) {
        became[{move.group, move.tier, move.src}] = move.dst;
        targets.insert({move.group, move.tier, move.dst});
        tally_->renumbered += move.src != move.dst ? 1 : 0;
        tally_->host_moves += move.tier == QUIRE_TIER_HOST ? 1 : 0;
    }
    if (became.size() != moves.size() || targets.size() != moves.size())
        return differ("two blocks have one number");
    const Tables after = tables();
    for (const auto &[key, ids] : before) {
        bool swapped = reference_[0].seq(key.first).swapped;
        uint32_t tier = swapped ? QUIRE_TIER_HOST : QUIRE_TIER_DEVICE;
        const std::vector<int32_t> &now = after.at(key);
        expect("table length", static_cast<int64_t>(now.size()), static_cast<int64_t>(ids.size()));
        for (size_t i = 0; i < ids.size() && difference_.empty(); ++i) {
            auto it = became.find({key.second, tier, ids[i]});
            if (ids[i] != 0 && it == became.end()) return differ("a live block did not move");
            expect("moved block", now[i], ids[i] != 0 ? it->second : 0);
        }
    }
}

void Player::migrate(int percent, int host_blocks) {
    const Config &config = reference_[0].config();
    std::vector<int> blocks;
    std::vector<uint32_t> given;
    for (size_t g = 0; g < config.groups.size(); ++g) {
        int count = first_blocks_[g] * (followed_ != nullptr ? 100 : percent) / 100;
        blocks.push_back(std::max(count, 1));
        given.push_back(static_cast<uint32_t>(blocks.back()) + 1);
    }
    if (host_blocks == 0 || followed_ != nullptr) host_blocks = config.host_blocks;
    std::vector<quire_block_move> moves(4096);
    auto desc = described<quire_migrate_desc>();
    desc.group_blocks = given.data();
    desc.host_blocks = static_cast<uint32_t>(host_blocks);
    desc.moves = moves.data();
    desc.move_capacity = static_cast<uint32_t>(moves.size());
    desc.move_stride = sizeof(quire_block_move);
    auto info = described<quire_migrate_info>();
    const Tables before = tables();
    quire_status status = api_.cache_migrate(cache_, &desc, &info, &error_);
    int wanted = reference_[0].migrate(blocks, host_blocks);
    if (!agree(status, wanted >= 0)) return;
    expect("does it fit", status == QUIRE_OK, wanted == 1);
    expect("blocks short", info.blocks_short != 0, wanted == 0);
    if (status != QUIRE_OK) {
        ++tally_->short_targets;
        return;
    }
    ++tally_->migrations;
    tally_->blocks_dropped += info.blocks_dropped;
    moves.resize(info.move_count);
    expect_moved(before, moves);
    if (followed_ != nullptr) expect_followed(followed_->migrate());
}

}  // namespace quire::model

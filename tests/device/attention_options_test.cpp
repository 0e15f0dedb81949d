// SPDX-License-Identifier: Apache-2.0
//
// Which options of attention a batch refuses, for each kind of group, and with what message.

#include <string>

#include "cpu_cache.hpp"

namespace {

using namespace quire::test;

// A cache of the groups on one cpu device.
class Groups {
 public:
    explicit Groups(std::vector<quire_group_desc> groups)
        : group_count_(static_cast<uint32_t>(groups.size())) {
        auto instance_desc = described<quire_instance_desc>();
        must(api_.instance_create(&instance_desc, &instance_, &error_));
        auto device_desc = described<quire_device_desc>();
        device_desc.backend = "cpu";
        must(api_.device_open(instance_, &device_desc, &device_, &error_));
        auto shard = described<quire_shard_desc>();
        shard.device = device_;
        auto desc = described<quire_cache_desc>();
        desc.groups = groups.data();
        desc.group_count = group_count_;
        desc.group_stride = sizeof groups[0];
        desc.shards = &shard;
        desc.shard_count = 1;
        desc.shard_stride = sizeof shard;
        desc.blocks = 8;
        desc.block_tokens = 16;
        must(api_.cache_create(instance_, &desc, &cache_, &error_));
    }
    ~Groups() {
        must(api_.cache_destroy(cache_, &error_));
        must(api_.device_close(device_, &error_));
        must(api_.instance_destroy(instance_, &error_));
    }
    Groups(const Groups &) = delete;
    Groups &operator=(const Groups &) = delete;

    // The message of a refused batch; "" if the batch was created.
    std::string answer(std::vector<quire_attention_desc> attention, uint32_t max_mask_words = 0) {
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = 4;
        desc.max_mask_words = max_mask_words;
        desc.attention = attention.data();
        desc.attention_count = static_cast<uint32_t>(attention.size());
        desc.attention_stride = sizeof(quire_attention_desc);
        quire_batch *batch = nullptr;
        if (api_.batch_create(cache_, &desc, &batch, &error_) < 0) return error_.message;
        must(api_.batch_destroy(batch, &error_));
        return "";
    }

 private:
    void must(quire_status status) { ASSERT_GE(status, 0) << error_.message; }

    const quire_api &api_ = library();
    quire_error error_ = described<quire_error>();
    quire_instance *instance_ = nullptr;
    quire_device *device_ = nullptr;
    quire_cache *cache_ = nullptr;
    uint32_t group_count_;
};

quire_group_desc group_of(uint32_t kind) {
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = 1;
    group.k_head_dim = group.v_head_dim = 64;
    group.k_dtype = QUIRE_DTYPE_F32;
    group.kind = kind;
    return group;
}

quire_attention_desc attention_with(uint32_t flags = 0, const quire_rope_desc *rope = nullptr) {
    auto attention = described<quire_attention_desc>();
    attention.q_heads = 4;
    attention.flags = flags;
    attention.rope = rope;
    return attention;
}

void expect_says(const std::string &answer, const std::string &words) {
    EXPECT_NE(answer.find(words), std::string::npos) << "'" << answer << "' without '" << words;
}

TEST(AttentionOptions, of_a_cross_group_have_no_positions_and_no_masks) {
    Groups groups({group_of(QUIRE_GROUP_FULL), group_of(QUIRE_GROUP_CROSS)});
    auto rope = described<quire_rope_desc>();
    quire_attention_desc plain = attention_with();
    EXPECT_EQ(groups.answer({plain, plain}), "");
    EXPECT_EQ(groups.answer({attention_with(0, &rope), plain}), "");
    expect_says(groups.answer({plain, attention_with(0, &rope)}), "attention[1].rope");
    quire_attention_desc masks = attention_with(QUIRE_ATTENTION_MASK);
    EXPECT_EQ(groups.answer({masks, plain}, 8), "");
    expect_says(groups.answer({masks, masks}, 8), "attention[1].flags");
    // A single description for all groups applies to the sequences' own tokens.
    EXPECT_EQ(groups.answer({attention_with(QUIRE_ATTENTION_MASK, &rope)}, 8), "");
}

TEST(AttentionOptions, are_for_all_groups_or_one_a_group) {
    Groups groups({group_of(QUIRE_GROUP_FULL), group_of(QUIRE_GROUP_FULL)});
    quire_attention_desc plain = attention_with(), masks = attention_with(QUIRE_ATTENTION_MASK);
    expect_says(groups.answer({plain, plain, plain}), "attention_count is 3");
    expect_says(groups.answer({plain}, 8), "max_mask_words is 8");
    expect_says(groups.answer({masks}), "max_mask_words is 0");
    expect_says(groups.answer({masks, plain}, 8), "attention[1]");
    expect_says(groups.answer({masks}, uint32_t{1} << 31), "max_mask_words is 2147483648");
}

TEST(AttentionOptions, of_a_latent_group_need_a_scale_and_a_rotated_part) {
    quire_group_desc latent = group_of(QUIRE_GROUP_LATENT);
    latent.k_head_dim = 80;
    auto rope = described<quire_rope_desc>();
    quire_attention_desc turned = attention_with(0, &rope);
    expect_says(Groups({latent}).answer({turned}), "scale is 0");
    turned.scale = 0.1f;
    EXPECT_EQ(Groups({latent}).answer({turned}), "");
    latent.k_head_dim = 64;
    expect_says(Groups({latent}).answer({turned}), "no rotated part");
}

}  // namespace

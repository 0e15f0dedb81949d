/* SPDX-License-Identifier: Apache-2.0
 *
 * cache: the paged KV cache, its pools, statistics and namespaces.
 *
 * For each group of layers a cache holds a pool of blocks of `block_tokens` tokens. Its sequences
 * (sequence.h) are extended by steps (step.h). Full blocks of computed and named tokens are
 * published in a prefix tree, where sequences of the same namespace and keys find them. A found
 * block and all blocks before it are compared token by token before they are used.
 *
 * The tree has one node per published block. In a cache in which every group has a window, a block
 * that has left the windows of its own sequence can still be found, through the nodes of the blocks
 * before it, which then hold tokens but no K or V. The tree has room for five nodes per block of
 * the pools. When it is nearly full, prefixes are forgotten: first of sequences that keep more
 * nodes than the pools have blocks; then those that no sequence uses, the least recently used
 * first; then those of the longest sequences.
 *
 * Limits: 16 groups, 4,096 layers, 2^31 - 1 blocks a group, 2^31 - 1 tokens a sequence.
 */
#ifndef QUIRE_CACHE_H
#define QUIRE_CACHE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a group, with its window and sinks, decides which tokens a token sees. Single tokens
 * inside a sequence of full attention cannot be evicted: its blocks are kept, or given up from the
 * end. */
enum {
    QUIRE_GROUP_FULL = 0,   /* every token sees all tokens before it */
    QUIRE_GROUP_WINDOW = 1, /* every token sees the `window` newest tokens, itself included, and the
                               first `sink_tokens` of the sequence */
    /* Every token sees the tokens of its own chunk up to itself: positions p - p % window to p,
     * where p is its position. */
    QUIRE_GROUP_CHUNKED = 2,
    /* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): one row of
     * k_head_dim elements per token, shared by all query heads (kv_heads is 1). V is the first
     * v_head_dim elements, the latent; the rest is the rotated part of the key. */
    QUIRE_GROUP_LATENT = 3,
    /* Attention over another input, such as the output of an encoder: quire_seq_desc.cross_tokens
     * rows, written once and read by every step, not causal. */
    QUIRE_GROUP_CROSS = 4,
    /* A recurrence that has one state instead of K and V of each token (Mamba, arXiv 2312.00752;
     * linear attention). A block holds one state: that after the last computed token of the block.
     * An item reads the state in the block of the token before its first one. It leaves a state in
     * every block that it computes tokens of: a snapshot, at the end of the block, in each that is
     * full then, and the running state in the last one if that is not. quire_step_blocks lists
     * these blocks; an engine that cannot stop within an item ends it at a border (max_compute), or
     * states a state_interval.
     *
     * With quire_group_desc.state_interval an item leaves one state only, at its end, however many
     * borders it crosses: the other entries of the table are null. The state is in the block of the
     * item's last token; there the item also reads it, once the step's copies have run. An item
     * that ends in another block than its state is in, as it does after a hit, takes a block for
     * it; the step copies the state there (QUIRE_COPY_ON_WRITE), and the older block is given back.
     * An item that ends on a border, at a multiple of state_interval, leaves a snapshot. After a
     * truncation to fewer tokens than are computed, nothing is computed: what comes next begins
     * with a hit.
     *
     * There, draft_states more blocks of the group follow the running state's in the table, for an
     * engine that runs drafts and keeps the state after each, and beside these the item's lookahead
     * reserves as many as its tokens would need. They hold nothing that the library knows of, so
     * lookahead cannot be accepted. When the running state takes a place in the table that one of
     * them has, it is in that block from then on; those whose places are passed move to the end of
     * the table, in their order, and the ones that are missing are taken.
     *
     * Snapshots are published and found like blocks of other kinds: a hit at n needs the one that
     * ends at n. A sequence keeps the newest block; a commit gives back those before the block of
     * token first_position - 1, whose entries become null. A state that another sequence reads, as
     * after a fork, is copied to a block of its own before it is overwritten (QUIRE_COPY_ON_WRITE).
     * States of single tokens are not kept: where a truncation, a fork or a failed step takes
     * computed tokens away, those up to the newest snapshot that the sequence still has stay
     * computed, or none.
     *
     * Only in a bookkeeping-only cache, where items have no drafts, masks or, but for the above,
     * lookahead, and find nothing that earlier items of the same step compute. Heads, dims and
     * types, or opaque_bytes, say only how large a state is, per token of a block, for pool_bytes
     * and QUIRE_PREEMPT_AUTO. */
    QUIRE_GROUP_RECURRENT = 5
};

/* Where the scales of a pool's K or V come from: value = code * scale. f32, f16 and bf16 hold
 * values and have no scales. i8, i4 and the 8-bit floats need one of the other kinds; unit scales
 * are never assumed. A code is value / scale, computed in f32 and rounded to nearest, ties to even.
 * A value out of range, infinity included, becomes the largest code. A NaN becomes 0 in an integer
 * type and stays a NaN in a float type. K and V may differ in type and in kind of scale; a latent
 * group has one type and one kind. */
enum {
    QUIRE_SCALE_NONE = 0,
    /* One scale for K and one for V of each layer, from quire_cache_desc.calibration
     * (calibration.h): the largest measured magnitude, times calibration_margin, divided in f32 by
     * 127 (i8), 7 (i4), 448 (E4M3FN) or 57344 (E5M2). */
    QUIRE_SCALE_TENSOR = 1,
    QUIRE_SCALE_HEAD = 2, /* one per KV head, computed in the same way */
    /* One per token and KV head, in planes of f32 next to the codes, which are copied and moved
     * with their blocks and tokens. kv_write computes it: the largest magnitude of the row, divided
     * in f32 by the same numbers. With a scale of 0 the codes are 0; a row that holds a NaN or an
     * infinity has a scale of NaN and codes of 0. */
    QUIRE_SCALE_TOKEN_HEAD = 3
};

/* Layers with the same kind of attention and the same geometry. */
typedef struct quire_group_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint32_t kind;
    uint32_t window; /* tokens, >= 1; only for QUIRE_GROUP_WINDOW and QUIRE_GROUP_CHUNKED */
    uint32_t layer_count;
    uint32_t kv_heads;
    uint32_t k_head_dim; /* elements; even with QUIRE_DTYPE_I4 */
    uint32_t v_head_dim;
    uint32_t k_dtype; /* 0 = QUIRE_DTYPE_F16 */
    uint32_t v_dtype; /* 0 = as k_dtype */
    uint32_t blocks;  /* 0: from the cache's blocks, pool_bytes or pool_fraction */
    uint32_t
        sink_tokens;  /* below 2^31, only for QUIRE_GROUP_WINDOW: kept while the sequence lives */
    uint32_t k_scale; /* QUIRE_SCALE_*, a kind that k_dtype allows */
    uint32_t v_scale; /* if v_dtype is 0, 0 = as k_scale */
    /* Tokens of the group's blocks; 0 = the cache's block_tokens, of which it is a multiple, up to
     * 4,096. Only in a bookkeeping-only cache; see quire_cache_desc.block_tokens. */
    uint32_t block_tokens;
    /* Only for QUIRE_GROUP_RECURRENT. 0: an item leaves a state in every block that it computes
     * tokens of. Else a multiple of block_tokens: only at its end, and that is a snapshot if it is
     * at a multiple of this. */
    uint32_t state_interval;
    uint32_t draft_states; /* blocks beside the running state's, at most 64; needs state_interval */
    /* 0: K and V as the heads, dims, types and scales say. Else these are 0, and this is how many
     * bytes a token takes in a layer, in a format of the caller's: an indexer's keys, codes and
     * their scales in one row. Only in a bookkeeping-only cache, and not for QUIRE_GROUP_LATENT;
     * the group's kind still says which tokens a token sees. */
    uint32_t opaque_bytes;
} quire_group_desc;

/* One device's part of a cache: a range of the model's layers and a range of KV heads (pipeline and
 * tensor parallelism). Block ids, tables and lengths are the same on all shards; a step is done
 * when it is done on all of them. Every KV head of every layer is held by at least one shard. A
 * head held by several shards is replicated, and quire_kv_write must write it on each of them.
 *
 * Heads are counted in the group that has the most KV heads. With `most` heads in that group and
 * `own` in another, the shard holds the other group's heads from head_begin * own / most, rounded
 * down, up to (head_begin + head_count) * own / most, rounded up. So a group with one KV head, as
 * every latent group, is complete on every shard. A group with no layer in the shard's range has no
 * pool there.
 *
 * Each shard needs a quire_device object of its own, even on the same physical device: the device
 * of a launch's queue determines the shard. The devices may belong to different backends. */
typedef struct quire_shard_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    quire_device *device;
    uint32_t layer_begin;
    uint32_t layer_count; /* 0: to the last layer */
    uint32_t head_begin;
    uint32_t head_count; /* KV heads; 0: to the last one */
} quire_shard_desc;

enum {
    QUIRE_CACHE_NO_PREFIX = 1 << 0, /* publish nothing, look nothing up */
    /* Key the prefix hash with hash_seed instead of a random number; for tests. */
    QUIRE_CACHE_FIXED_HASH = 1 << 1,
    /* log.h: a leader, whose steps have logs, or a follower, which only applies them. The shards
     * are then those of this process; other ranks hold the remaining heads and layers. */
    QUIRE_CACHE_LOG = 1 << 2,
    QUIRE_CACHE_FOLLOWER = 1 << 3,
    /* calibration.h: kv_write records the largest magnitudes of K, after any rope, and of V. All
     * groups must be f32, f16 or bf16, and the cache must have memory. */
    QUIRE_CACHE_CALIBRATE = 1 << 4,
    /* Content does not outlive its use in the pool: each commit, a step without items included,
     * zeroes after its own copies the blocks that became free before it. Blocks that running work
     * of other queues may still touch wait for a later commit. Until that step is done, the blocks
     * that it zeroes are not available to other queues, like all blocks that it touches. A block
     * that is taken before it was zeroed is zeroed first, within one namespace too. Cached blocks
     * are in use until they are evicted or forgotten (QUIRE_END_DROP_PREFIX,
     * QUIRE_CACHE_NO_PREFIX). Not zeroed are blocks of the host tier, and memory given back by
     * quire_cache_destroy or a migration. Not for a follower, whose leader decides. */
    QUIRE_CACHE_ZERO_ON_FREE = 1 << 5,
    /* Records for each step, until it is done, which slots of which blocks it reads and writes, so
     * that quire_cache_check can prove that no block is reused too early and that no two steps
     * conflict which their queues do not order. A commit then takes time and host memory for every
     * table entry of its items. Not for a follower. */
    QUIRE_CACHE_AUDIT = 1 << 6,
    /* events.h: note which published blocks change. Costs 64 bytes per node of the prefix tree. */
    QUIRE_CACHE_EVENTS = 1 << 7,
    /* Events of the default namespace carry its tokens. */
    QUIRE_CACHE_EVENT_TOKENS = 1 << 8,
    /* Cached blocks that are evicted live on in the host tier, which they share with swapped
     * sequences: a step copies a block there before it takes it, and a hit there is copied back to
     * a block of the pool by the step that runs the item. A block is on the device or in the host
     * tier, never in both, so together they hold as much as one pool of both sizes, less one block
     * of the host tier, which stays free for such exchanges. What was released longest ago is lost
     * first, and also when a swap needs its room. Needs a host tier and a group with full
     * attention. Not for a follower, whose leader decides. */
    QUIRE_CACHE_HOST_PREFIXES = 1 << 9,
    /* All groups take their blocks from one pool, as in vLLM's hybrid layout: a block id means one
     * block, whichever group holds it, and block 0 is the null block of all. `blocks` of the cache
     * is the size of that pool, and that of each group is 0 or the same; host_blocks is the size of
     * one host tier. The longest unused block is evicted whichever group it is of. If that group is
     * of full attention, the blocks of the same tokens in other groups become free at the commit.
     * Only in a bookkeeping-only cache, and not with QUIRE_CACHE_HOST_PREFIXES. */
    QUIRE_CACHE_ONE_POOL = 1 << 10,
    /* The cache has leases and no sequences, for an engine that keeps its requests itself. Its
     * prefix tree has no nodes: a published block stands for its own place and names its
     * neighbours, so that leases insert and find blocks of few tokens in a fraction of the time. It
     * takes at most 4 * block_tokens + 52 bytes per block of the pool.
     *
     * Needs one group, with full attention, and no host tier, and goes together with
     * QUIRE_CACHE_FIXED_HASH, QUIRE_CACHE_LOG, QUIRE_CACHE_ZERO_ON_FREE and QUIRE_CACHE_AUDIT
     * alone; its followers are as any others. Sequences and what needs one, quire_lease_publish
     * (quire_lease_insert publishes) and tiers are unsupported. What quire_lease_take evicts stays
     * evicted if its step is aborted. */
    QUIRE_CACHE_LEASES_ONLY = 1 << 11,
    /* A hit may end within a block: where no cached block goes on with all of an item's next
     * tokens, the step copies (QUIRE_COPY_ON_WRITE) the one that begins with the most of them to a
     * block of the sequence, whose rest the item computes. So a prompt that is cached whole is
     * computed from its last token on, and one that leaves a cached text within a block from there
     * on. The block must have at least 4 of the tokens, or 1 if block_tokens is below 8, in all
     * groups on the device, no span of keys may lie over it, and earlier steps must have computed
     * it; the 16 that were published last under the same first tokens are compared. An item that
     * lacks the room for such a block runs without it. Costs 24 bytes per node of the prefix tree.
     * Not with recurrent groups or groups that have block_tokens of their own. Not for a follower,
     * whose leader decides. */
    QUIRE_CACHE_PARTIAL_HITS = 1 << 12
};

enum { QUIRE_EVICT_LRU = 0 };

enum {
    /* The sequence that was admitted last. A fork with computed tokens is admitted when it is
     * created, any other sequence when it first runs. */
    QUIRE_VICTIM_NEWEST = 0,
    QUIRE_VICTIM_PRIORITY = 1 /* the lowest priority, among equals the newest */
};

typedef struct quire_cache_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_CACHE_* */
    const quire_chain *next;
    /* [shard_count], at most 64, shard_stride bytes apart. With no shards this is a
     * bookkeeping-only cache, which has no memory: kv_write and attend are unsupported, and the
     * engine runs the copies of each step itself (quire_step_copies). */
    const quire_shard_desc *shards;
    const quire_group_desc *groups; /* [group_count] */
    /* [sum of layer_counts] the group of each layer; NULL: group 0's layers come first, then group
     * 1's, and so on. */
    const uint32_t *layer_groups;
    uint32_t shard_count;
    uint32_t shard_stride;
    uint32_t group_count;
    uint32_t group_stride;
    /* Tokens of a block, 1 to 4,096; 0 = 16. In a cache with memory a power of two up to 256, of
     * which its backend's kernels may refuse some.
     *
     * Groups may have larger blocks (quire_group_desc.block_tokens), as the layers of hybrid models
     * do. Then a prefix is published, found and forgotten in spans that are whole blocks of all
     * groups, but for those of cross attention: the least common multiple of their block_tokens, at
     * most 65,536. So hits end at multiples of it, and what follows the last one is not cached. Of
     * two sequences that share a block and go on differently within its span, only the first one
     * is published from there on. Evicting a block then takes time O(span / its block_tokens).
     * Where a group has block_tokens of its own, one must be of full attention, and there are no
     * prefixes in the host tier. */
    uint32_t block_tokens;
    uint32_t max_sequences;       /* live at once, at most 2^24; 0 = 1024 */
    uint32_t max_sequence_tokens; /* 0 = 2^31 - 1 */
    /* Size of each group's pool: exactly one of blocks, pool_bytes and pool_fraction, unless every
     * group states its own `blocks`. With pool_bytes and pool_fraction all groups get the same
     * number. The null block is included: `blocks` serve blocks - 1. Bytes and fractions are per
     * shard; the shard with room for the fewest blocks decides for all. With QUIRE_CACHE_ONE_POOL
     * there is one pool, of `blocks`. */
    uint32_t blocks;
    uint64_t pool_bytes;
    uint64_t reserve_bytes;    /* left free when pool_fraction is used */
    float pool_fraction;       /* of the device's free memory */
    uint32_t watermark_blocks; /* left free by the admission of new sequences, in each pool */
    /* Host tier for swapping: bytes per shard in a cache with memory (host_blocks is 0), blocks per
     * group, or beside the one pool, in a bookkeeping-only cache (host_bytes is 0), its null block
     * not included. */
    uint64_t host_bytes;
    uint32_t host_blocks;
    uint32_t eviction; /* QUIRE_EVICT_* */
    uint32_t victim;   /* QUIRE_VICTIM_* */
    /* Calibrated magnitudes are multiplied by this, which is above 0, before they become scales.
     * Above 1, values larger than any in the calibration run can be represented too. 0 = 1. */
    float calibration_margin;
    uint64_t hash_seed;
    /* For QUIRE_PREEMPT_AUTO: swap if moving the blocks out and in again takes less time than
     * computing them again. If either is 0: swap whenever the host tier has room. */
    float swap_bytes_per_second;
    float prefill_tokens_per_second;
    /* [calibration_bytes] of any alignment: a calibration of this model, see calibration.h. Needed
     * if a group has QUIRE_SCALE_TENSOR or QUIRE_SCALE_HEAD; checked whenever it is given. */
    const void *calibration;
    uint64_t calibration_bytes;
    uint64_t key_bytes; /* of the default namespace, see quire_namespace_desc */
} quire_cache_desc;

typedef struct quire_cache_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint32_t group_count;
    uint32_t layer_count;
    uint32_t block_tokens;
    uint32_t shard_count;
    /* Tokens that the smallest pool of full attention holds, or else the smallest pool; one pool of
     * all groups holds each token once per group of full attention, or else per group. */
    uint64_t pool_tokens;
    uint64_t max_sequences; /* with max_sequence_tokens each, that fit at once */
    uint64_t pool_bytes;    /* over all shards */
    uint64_t host_bytes;
    /* A prefix is published, found and told of (lease.h, events.h) in spans of so many tokens:
     * block_tokens, or more where groups have block_tokens of their own. */
    uint32_t span_tokens;
    uint32_t span_blocks; /* of a span in all groups, one of a cross group */
} quire_cache_info;

/* Where the K and V of a group are in memory. All offsets and strides are in bytes.
 * An element of K is at
 *   block * block_stride + layer * layer_stride + head * k_head_stride + slot * k_token_stride
 *   + dim * element size (dim / 2 for QUIRE_DTYPE_I4, which has two elements per byte)
 * where `layer` and `head` count within the shard's part of the group. V starts v_offset after K.
 * With QUIRE_SCALE_TOKEN_HEAD the f32 scale of a row is at
 *   block * block_stride + layer * layer_stride + k_scale_offset + head * scale_head_stride
 *   + slot * 4
 * for K, with v_scale_offset for V. Without such scales the offset is 0.
 * With QUIRE_SCALE_TENSOR or QUIRE_SCALE_HEAD `scales` is the address of f32
 * [layer_count][2][head_count], K before V; with TENSOR the number is the same for all heads. */
typedef struct quire_pool_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t address; /* of block 0; 0 in a bookkeeping-only cache, or if no layer is held */
    uint64_t size_bytes;
    int64_t block_stride;
    int64_t layer_stride;
    int64_t v_offset;
    int64_t k_head_stride;
    int64_t k_token_stride;
    int64_t v_head_stride;
    int64_t v_token_stride;
    uint32_t blocks; /* the null block included */
    uint32_t block_tokens;
    uint32_t host_blocks; /* its null block included; 0: no host tier */
    uint32_t reserved0;
    uint32_t layer_begin; /* the first of the group's layers that the shard holds */
    uint32_t layer_count; /* 0: the shard holds none, and strides and address are 0 */
    uint32_t head_begin;
    uint32_t head_count;
    int64_t k_scale_offset;
    int64_t v_scale_offset; /* in a latent group the same as for K */
    int64_t scale_head_stride;
    uint64_t scales; /* 0: no such scales */
} quire_pool_info;

/* Current counts. A metric that vLLM has too is named as in vLLM. */
typedef struct quire_cache_stats {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t prefix_cache_queries; /* tokens looked up */
    uint64_t prefix_cache_hits;    /* tokens found */
    uint64_t num_preemptions;      /* of both kinds */
    uint64_t preemptions_swap;
    uint64_t preemptions_recompute;
    uint64_t tokens_preempted; /* computed tokens given up by recompute */
    uint64_t evictions;        /* cached blocks whose content was lost to other content */
    uint64_t copies_on_write;
    uint64_t blocks_swapped_out;
    uint64_t blocks_swapped_in;
    uint64_t forks;
    uint64_t steps; /* committed */
    uint64_t bytes_hashed;
    uint64_t bytes_compared;
    uint64_t sequences;        /* live */
    uint64_t sequences_lost;   /* lost computed tokens through a failed step of other sequences */
    uint64_t host_blocks_used; /* by swapped sequences, over all pools */
    uint64_t blocks_total;     /* usable, over all pools: without the null blocks */
    uint64_t blocks_free;      /* free, or free once running work has ended */
    /* Held by no sequence or lease, and can be found; or could, until a block before it, or another
     * group's block of its tokens, was lost: then it counts until it is evicted. */
    uint64_t blocks_cached;
    uint64_t blocks_held;        /* by sequences and leases; a shared block counts once */
    uint64_t nodes;              /* of the prefix tree */
    double kv_cache_usage_perc;  /* blocks_held / blocks_total */
    uint64_t migrations;         /* migrate.h */
    uint64_t bytes_migrated;     /* copied by them, including the host tier */
    uint64_t blocks_demoted;     /* evicted from the device to the host tier */
    uint64_t blocks_promoted;    /* found there and brought back */
    uint64_t host_blocks_cached; /* of no sequence, as blocks_cached */
    uint64_t leases;             /* live; lease.h */
    uint64_t blocks_leased;      /* held by leases; a block that several hold counts for each */
} quire_cache_stats;

/* Creates a cache. `instance` provides the host allocator. The call does not wait for any work of
 * the caller, except on an engine's own device (vulkan.h); scales, a few KB, are uploaded before it
 * returns.
 * Errors   QUIRE_E_ARG            the message names the field; for shards also which one, or the
 *                                 layer and KV head that no shard holds; for a calibration what is
 *                                 wrong with it, or the first layer and KV head for which it has no
 *                                 number.
 *          QUIRE_E_LIMIT          max_sequences is above 2^24.
 *          QUIRE_E_INCOMPATIBLE   the calibration has another version.
 *          QUIRE_E_UNSUPPORTED    the backend cannot serve a group; the message says which and why.
 *          QUIRE_E_DEVICE_MEMORY  the pool does not fit.
 * Time     O(blocks of the pools + max_sequences). */
QUIRE_EXPORT quire_status quire_cache_create(quire_instance *instance, const quire_cache_desc *desc,
                                             quire_cache **out, quire_error *error);
/* Destroys the cache and all its sequences.
 * Errors   QUIRE_E_BUSY         a batch is alive, a step is open or committed and not done, or the
 *                               cache has a tier: detach it first.
 *          QUIRE_E_DEVICE_LOST  a device failed to report whether a step is done.
 * Time     O(blocks of the pools + max_sequences). */
QUIRE_EXPORT quire_status quire_cache_destroy(quire_cache *cache, quire_error *error);
/* Time     O(groups + shards). */
QUIRE_EXPORT quire_status quire_cache_get_info(quire_cache *cache, quire_cache_info *info,
                                               quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_cache_get_pool(quire_cache *cache, uint32_t group, uint32_t shard,
                                               quire_pool_info *info, quire_error *error);
/* Time     O(groups). */
QUIRE_EXPORT quire_status quire_cache_get_stats(quire_cache *cache, quire_cache_stats *stats,
                                                quire_error *error);
/* Forgets every published prefix, for example after the weights changed. Live sequences keep their
 * blocks and publish nothing any more.
 * Errors   QUIRE_E_BUSY  a step is open.
 * Time     O(blocks of the pools + max_sequences). */
QUIRE_EXPORT quire_status quire_cache_reset(quire_cache *cache, quire_error *error);
/* Proves the cache's books, for tests and operators:
 *   - each block is in exactly one state, and in as many table entries as its count says
 *   - no sequence may write to a slot that another one reads
 *   - no block that unfinished work touches can be handed out
 *   - a published block is found by exactly the tokens, keys and namespace of the sequences that
 *     hold it
 *   - everything that a failed step would have to take back is recorded
 *   - each namespace is charged for what its sequences hold
 * Without QUIRE_CACHE_AUDIT only a part can be proved about unfinished work. Changes nothing. If it
 * finds an error the cache continues to work: dump it, then destroy it. For a follower (log.h) it
 * recounts the tables.
 * Errors   QUIRE_E_INTERNAL     something is wrong; the message says what, and names the block, the
 *                               sequence (its index, as in a dump) and the step.
 *          QUIRE_E_HOST_MEMORY  no room for the counts: 24 bytes per block.
 * Time     O(blocks of the pools + max_sequences + table entries + known tokens). */
QUIRE_EXPORT quire_status quire_cache_check(quire_cache *cache, quire_error *error);

/* Include tokens in the dump. They are prompts and answers, readable to everyone who gets the
 * dump. */
enum { QUIRE_DUMP_TOKENS = 1 << 0 };

/* Writes all state that decides what the cache does next, as one line of JSON per block, node,
 * sequence, table, namespace, step, and change of the open step. docs/dump.md describes the format,
 * and `quire dump` reads it. Tokens and keys appear only as hashes, with a random key per cache.
 * Two dumps of a cache that did not change in between are equal byte for byte. Changes nothing,
 * allocates nothing, and also works for a cache that stopped with QUIRE_E_INTERNAL.
 *
 * flags       QUIRE_DUMP_*.
 * size_bytes  receives the size, about 300 bytes per block. buffer may be NULL if capacity is 0.
 * Returns  QUIRE_S_INCOMPLETE  capacity is too short; nothing was written.
 * Time     O(blocks of the pools + nodes + max_sequences + table entries + known tokens). */
QUIRE_EXPORT quire_status quire_cache_dump(quire_cache *cache, uint32_t flags, void *buffer,
                                           uint64_t capacity, uint64_t *size_bytes,
                                           quire_error *error);

enum {
    QUIRE_NAMESPACE_EVENT_TOKENS = 1 << 0 /* events.h: events carry the namespace's tokens */
};

typedef struct quire_namespace_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_NAMESPACE_* */
    const quire_chain *next;
    /* [key_size_bytes] from the server, never from a request; at most 256 bytes. Only its size and
     * pointer are checked: it names the tenant's blocks in tiers that outlive the cache
     * (cache_tier.h). Within a cache the handle alone tells namespaces apart. */
    const void *key;
    uint32_t key_size_bytes;
    /* Limit on the table entries of its sequences and the blocks of its leases, over all groups; a
     * block that several share counts once for each; 0 = no limit. Blocks that an item of the open
     * step gives back because its window has passed them count against every other item until
     * commit, because quire_step_drop takes them back. */
    uint32_t quota_blocks;
    /* Limit on the host memory that the keys of its sequences take (quire_key), in bytes;
     * 0 = 256 MiB. Each of the following counts once, for as long as a sequence or a cached block
     * needs it. Sizes of keys are rounded up to a multiple of 4:
     *   a list of whole-sequence keys, even empty:  64 + max(64, 12 + sum of (8 + size_bytes))
     *   a list of spans together with one of those: 64 + max(64, 12 * spans)
     *   the type and bytes of a span's key:         32 + max(64, 8 + size_bytes) */
    uint64_t key_bytes;
} quire_namespace_desc;

typedef struct quire_namespace_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t sequences;
    uint64_t blocks_held; /* table entries of its sequences, and blocks of its leases */
    uint64_t quota_blocks;
    uint64_t prefix_cache_queries;
    uint64_t prefix_cache_hits;
    uint64_t key_bytes;       /* host memory that its keys take now */
    uint64_t key_bytes_limit; /* host memory that they may take */
    uint64_t leases;          /* lease.h */
} quire_namespace_info;

/* Creates a namespace, the sharing domain of one tenant: sequences of two namespaces never share a
 * block. Two namespaces are two tenants even if their keys are equal. The default namespace always
 * exists; calls that take a namespace accept 0 for it, and it has no handle. At most 65,535
 * namespaces exist at once.
 * A tenant does not see what another one left behind either: a device block that another namespace
 * wrote last, and that a sequence takes for writing, is zeroed by the commit that hands it over, on
 * the step's queues before any other work of the step. Until then, and in the host tier until it is
 * overwritten, the content stays where it is. This isolates tenants who read through block tables,
 * not those who can read the whole pool. In a bookkeeping-only cache the engine zeroes the blocks,
 * as listed by quire_step_copies (QUIRE_COPY_ZERO).
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_namespace_create(quire_cache *cache,
                                                 const quire_namespace_desc *desc,
                                                 quire_namespace *out, quire_error *error);
/* Destroys a namespace and forgets its cached prefixes.
 * Errors   QUIRE_E_BUSY   sequences or leases live in it, or a step is open.
 *          QUIRE_E_STALE  it was destroyed before, or it is 0: the default one cannot be destroyed.
 * Time     O(cached blocks of the namespace). */
QUIRE_EXPORT quire_status quire_namespace_destroy(quire_cache *cache, quire_namespace ns,
                                                  quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_namespace_get_info(quire_cache *cache, quire_namespace ns,
                                                   quire_namespace_info *info, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_CACHE_H */

/* SPDX-License-Identifier: Apache-2.0
 *
 * cache: the paged KV cache, its namespaces and its sequences.
 *
 * A cache holds, for each group of layers, a pool of blocks of `block_tokens` tokens. A sequence is
 * one token stream: what is *known* of it (its tokens), and how many of those are *computed* (their
 * K and V are in blocks, or will be once the steps that were committed have run). Steps (step.h)
 * extend both. Full blocks of computed, known tokens are published in a prefix tree, where
 * sequences of the same namespace and keys find them; a found block is compared token by token
 * before it is used, and so is everything before it.
 *
 * The tree has a node for each published block. Where every group has a window, a block is found
 * after it has left the windows of its own sequence, by the nodes of the blocks before it, which
 * hold tokens and no K or V. The tree has room for five nodes per block of the pools. When it is
 * nearly full, prefixes give way: of sequences that keep more nodes than the pools have blocks;
 * then of none, the least recently used first; then of the longest sequences.
 *
 * Limits: 16 groups, 4,096 layers, 2^31 - 1 blocks a group, 2^31 - 1 tokens a sequence.
 */
#ifndef QUIRE_CACHE_H
#define QUIRE_CACHE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which tokens a token sees is decided by its group's kind, windows and sinks among them: single
 * tokens inside a sequence of full attention cannot be evicted, its blocks are kept, or given up
 * from its end. */
enum {
    QUIRE_GROUP_FULL = 0,   /* every token sees all tokens before it */
    QUIRE_GROUP_WINDOW = 1, /* every token sees the `window` newest, itself among them, and the
                               sequence's first `sink_tokens` */
    /* Every token sees those before it of its own chunk: with p the token's position, positions
     * p - p % window to p. */
    QUIRE_GROUP_CHUNKED = 2,
    /* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): one row of
     * k_head_dim elements a token, which all query heads share (kv_heads 1). V is its first
     * v_head_dim elements, the latent; behind them lies the rotated part of the key. */
    QUIRE_GROUP_LATENT = 3,
    /* Attention over another input, such as an encoder's output: quire_seq_desc.cross_tokens rows,
     * written once, read by every step, not causal. */
    QUIRE_GROUP_CROSS = 4
};

/* Where the scales of a pool's K or V come from: value = code * scale. f32, f16 and bf16 hold
 * values and have none; i8, i4 and the 8-bit floats need one of the others: unit scales are never
 * assumed. A code is value / scale in f32, rounded to the nearest even one of its type; what is too
 * large, infinity too, becomes the largest. A NaN becomes 0 in an integer type and stays a NaN in a
 * float. K and V may differ in type and in kind; a latent group has one of each. */
enum {
    QUIRE_SCALE_NONE = 0,
    /* One for all of a layer's K, one for its V, from quire_cache_desc.calibration (calibration.h):
     * the largest magnitude that was measured, times calibration_margin, divided in f32 by 127
     * (i8), 7 (i4), 448 (E4M3FN) or 57344 (E5M2). */
    QUIRE_SCALE_TENSOR = 1,
    QUIRE_SCALE_HEAD = 2, /* one for each KV head of them, made likewise */
    /* One for each token's row of each KV head, in planes of f32 beside the codes: a copied block
     * and a moved token take theirs along. kv_write makes it: the row's largest magnitude, divided
     * in f32 by the same. A scale of 0 has codes of 0; a row that holds a NaN or an infinity has a
     * scale of NaN, and codes of 0. */
    QUIRE_SCALE_TOKEN_HEAD = 3
};

/* Layers that share attention kind and geometry. */
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
    uint32_t k_dtype;     /* 0 = QUIRE_DTYPE_F16 */
    uint32_t v_dtype;     /* 0 = as k_dtype */
    uint32_t blocks;      /* 0: from the cache's blocks, pool_bytes or pool_fraction */
    uint32_t sink_tokens; /* only for QUIRE_GROUP_WINDOW: kept for as long as the sequence lives */
    uint32_t k_scale;     /* QUIRE_SCALE_*, of a kind that goes with k_dtype */
    uint32_t v_scale;     /* where v_dtype is 0, 0 = as k_scale */
} quire_group_desc;

/* One device's part of a cache: a range of the model's layers and a range of KV heads (tensor and
 * pipeline parallelism). Block ids, tables and lengths are the same on all shards; a step is done
 * when it is on all. Every KV head of every layer is held by one shard at least; held by several it
 * is replicated, and each of them is given it by quire_kv_write.
 *
 * Heads are counted in the group that has the most KV heads, `most`. A group with fewer, `own`,
 * holds its heads from head_begin * own / most, rounded down, up to (head_begin + head_count) * own
 * / most, rounded up: a group with one KV head, as latent ones, is whole on every shard. A group of
 * which a shard's range holds no layer has no pool there.
 *
 * Each shard needs a quire_device object of its own, be it the same physical device: a launch's
 * queue says by its device which shard it is for. Devices may be of different backends. */
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
    QUIRE_CACHE_FIXED_HASH =
        1 << 1, /* key the prefix hash with hash_seed, not at random; for tests */
    /* log.h: a leader, whose steps have logs, or a follower, which only applies them. Shards are
     * then what this process holds; the heads and layers that they leave out are other ranks'. */
    QUIRE_CACHE_LOG = 1 << 2,
    QUIRE_CACHE_FOLLOWER = 1 << 3,
    /* calibration.h: kv_write keeps the largest magnitudes of K, as it is after a rope, and of V.
     * All groups are f32, f16 or bf16, and there is a device. */
    QUIRE_CACHE_CALIBRATE = 1 << 4,
    /* Content does not outlive its use in the pool: each commit zeroes, behind its own copies, the
     * blocks that had become free before it and that running work of other queues does not hold
     * up; those wait for a later commit. A step without items does it as well. Until that step is
     * done, the blocks that it zeroes are not there for other queues, as any that it touches. A
     * block that is taken before it is zeroed is zeroed first, in the same namespace too. Cached
     * blocks are in use until they are evicted or forgotten (QUIRE_END_DROP_PREFIX,
     * QUIRE_CACHE_NO_PREFIX). Host-tier blocks are not zeroed, nor is memory that is given back:
     * by quire_cache_destroy, or by a migration. Not of a follower, whose leader decides. */
    QUIRE_CACHE_ZERO_ON_FREE = 1 << 5,
    /* Remembers for each step until it is done which slots of which blocks it reads and writes, so
     * that quire_cache_check proves that no block is given away too early, and that no two steps
     * which their queues do not put in order are in each other's way. A commit then takes time and
     * host memory for every table entry of its items. Not of a follower. */
    QUIRE_CACHE_AUDIT = 1 << 6
};

enum { QUIRE_EVICT_LRU = 0 };

enum {
    QUIRE_VICTIM_NEWEST =
        0, /* the sequence that was first admitted last; a fork with computed tokens is admitted
              when made, another when it first runs */
    QUIRE_VICTIM_PRIORITY = 1 /* the lowest priority, among equals the newest */
};

typedef struct quire_cache_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_CACHE_* */
    const quire_chain *next;
    /* [shard_count], at most 64, stride bytes apart. None: a bookkeeping-only cache, which has no
     * memory; kv_write and attend are unsupported, and the copies that a commit needs come back as
     * a list. */
    const quire_shard_desc *shards;
    const quire_group_desc *groups; /* [group_count] */
    /* [sum of layer_counts] group of each layer; NULL: group 0's layers come first, then group
     * 1's. */
    const uint32_t *layer_groups;
    uint32_t shard_count;
    uint32_t shard_stride;
    uint32_t group_count;
    uint32_t group_stride;
    uint32_t block_tokens;        /* a power of two, 1 to 256; 0 = 16 */
    uint32_t max_sequences;       /* live at once, at most 2^24; 0 = 1024 */
    uint32_t max_sequence_tokens; /* 0 = 2^31 - 1 */
    /* Size of each group's pool. Exactly one of these, unless every group states its own `blocks`;
     * with pool_bytes and pool_fraction all groups get the same number. The null block is one of
     * them. Bytes and fractions are a shard's; the one that can pay for the fewest blocks decides
     * for all. */
    uint32_t blocks;
    uint64_t pool_bytes;
    uint64_t reserve_bytes;    /* left free when pool_fraction is used */
    float pool_fraction;       /* of the device's free memory */
    uint32_t watermark_blocks; /* left free by the admission of new sequences, in each group */
    /* Host tier for swapping: bytes a shard for a cache with memory (host_blocks 0), blocks a group
     * for one without (host_bytes 0). */
    uint64_t host_bytes;
    uint32_t host_blocks;
    uint32_t eviction; /* QUIRE_EVICT_* */
    uint32_t victim;   /* QUIRE_VICTIM_* */
    /* What calibrated magnitudes are multiplied by before they become scales: above 0; above 1,
     * values larger than any of the run have codes too. 0 = 1. */
    float calibration_margin;
    uint64_t hash_seed;
    /* For QUIRE_PREEMPT_AUTO: swap when moving the blocks out and in again takes less time than
     * computing them again. 0 in either: swap whenever the host tier has room. */
    float swap_bytes_per_second;
    float prefill_tokens_per_second;
    /* [calibration_bytes] of any alignment: a calibration of this model, see calibration.h. Needed
     * where a group has QUIRE_SCALE_TENSOR or QUIRE_SCALE_HEAD; checked wherever it is given. */
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
    uint64_t
        pool_tokens; /* tokens held by the smallest full-attention pool, or the smallest pool */
    uint64_t max_sequences; /* of max_sequence_tokens each that fit at once */
    uint64_t pool_bytes;    /* over all shards */
    uint64_t host_bytes;
} quire_cache_info;

/* Where a group's K and V lie. Byte offset of an element of K:
 * block * block_stride + layer * layer_stride + head * k_head_stride + slot * k_token_stride + dim
 * * size, where `layer` and `head` count within what the shard holds of the group; V starts
 * v_offset after K. All in bytes.
 * QUIRE_DTYPE_I4 has two elements a byte, so dim / 2 there.
 * With QUIRE_SCALE_TOKEN_HEAD the f32 scale of a row of K lies k_scale_offset behind the layer, and
 * then at head * scale_head_stride + slot * 4; of V v_scale_offset behind it. Without one the
 * offset is 0.
 * With QUIRE_SCALE_TENSOR or QUIRE_SCALE_HEAD `scales` is the address of f32
 * [layer_count][2][head_count], K's before V's; with TENSOR all heads of a side hold one number. */
typedef struct quire_pool_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t address; /* of block 0; 0 in a bookkeeping-only cache, and where no layer is held */
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
    uint32_t layer_begin; /* of the group's layers, the first that the shard holds */
    uint32_t layer_count; /* 0: none of them, and strides and address are 0 */
    uint32_t head_begin;
    uint32_t head_count;
    int64_t k_scale_offset;
    int64_t v_scale_offset; /* in a latent group the same as K's */
    int64_t scale_head_stride;
    uint64_t scales; /* 0: there are none */
} quire_pool_info;

/* Counts, as of now. Where vLLM has a metric of the same meaning, the name is vLLM's. */
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
    uint64_t evictions;        /* cached blocks given to another content */
    uint64_t copies_on_write;
    uint64_t blocks_swapped_out;
    uint64_t blocks_swapped_in;
    uint64_t forks;
    uint64_t steps; /* committed */
    uint64_t bytes_hashed;
    uint64_t bytes_compared;
    uint64_t sequences;         /* live */
    uint64_t sequences_lost;    /* that had computed tokens taken back by a failed step of others */
    uint64_t host_blocks_used;  /* over all groups */
    uint64_t blocks_total;      /* usable, over all groups: without the null blocks */
    uint64_t blocks_free;       /* free or draining */
    uint64_t blocks_cached;     /* of no sequence, content findable */
    uint64_t blocks_held;       /* by sequences; a shared block counts once */
    uint64_t nodes;             /* of the prefix tree */
    double kv_cache_usage_perc; /* blocks_held / blocks_total */
    uint64_t migrations;        /* migrate.h */
    uint64_t bytes_migrated;    /* that they copied, of the host tier too */
} quire_cache_stats;

/* Creates a cache. `instance` provides the host allocator.
 * Waits for no work of the caller's, but on an engine's own device (vulkan.h); scales are uploaded,
 * a few KB, before it returns.
 * Errors   QUIRE_E_ARG            the message names the field; for shards also which one, or the
 *                                 layer and KV head that none holds; for a calibration what is
 *                                 wrong with it, or the first layer and KV head that it has no
 *                                 number for.
 *          QUIRE_E_LIMIT          max_sequences is above 2^24.
 *          QUIRE_E_INCOMPATIBLE   the calibration is of another version.
 *          QUIRE_E_UNSUPPORTED    the backend cannot serve a group; the message says which and why.
 *          QUIRE_E_DEVICE_MEMORY  the pool does not fit.
 * Time     O(blocks of the pools + max_sequences). */
QUIRE_EXPORT quire_status quire_cache_create(quire_instance *instance, const quire_cache_desc *desc,
                                             quire_cache **out, quire_error *error);
/* Destroys the cache and all its sequences.
 * Errors   QUIRE_E_BUSY         a batch is alive, or a step is open or committed and not done.
 *          QUIRE_E_DEVICE_LOST  a device does not say whether a step is done.
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
/* Forgets every published prefix (after a change of weights). Blocks of live sequences stay theirs,
 * and are not published any more. Errors   QUIRE_E_BUSY  a step is open.
 * Time     O(blocks of the pools + max_sequences). */
QUIRE_EXPORT quire_status quire_cache_reset(quire_cache *cache, quire_error *error);
/* Proves that the cache's books are true, for tests and operators: that each block is in one state
 * and as often in tables as it says; that nobody may write what another reads; that nobody gets a
 * block which unfinished work touches; that a block is found by the tokens, keys and namespace of
 * those who hold it; that what a failed step may take back is known; that namespaces are charged
 * what their sequences hold. Nothing changes. Where it finds that something is wrong it says so,
 * and the cache goes on: dump it, and destroy it. What can be proved of unfinished
 * work is all of it only with QUIRE_CACHE_AUDIT. A follower (log.h) counts its tables anew.
 * Errors   QUIRE_E_INTERNAL     something is wrong; the message says what, and names the block, the
 *                               sequence (its index, as in a dump) and the step.
 *          QUIRE_E_HOST_MEMORY  there is no room for the counts: 24 bytes per block.
 * Time     O(blocks of the pools + max_sequences + table entries + known tokens). */
QUIRE_EXPORT quire_status quire_cache_check(quire_cache *cache, quire_error *error);

/* With it a dump holds tokens: prompts and answers, to whoever reads it. */
enum { QUIRE_DUMP_TOKENS = 1 << 0 };

/* Writes all that decides what the cache does next, a line of JSON for each block, node, sequence,
 * table, namespace, step, and change of the open step: docs/dump.md says what is in each, and
 * `quire dump` reads it. Of tokens and keys there are only hashes, keyed at random for each cache.
 * A dump of a cache that did not change is the same, byte for byte. Nothing changes, nothing is
 * allocated, and a cache that stopped with QUIRE_E_INTERNAL is dumped too.
 *
 * flags       QUIRE_DUMP_*.
 * size_bytes  gets the size, about 300 bytes per block. buffer may be NULL when capacity is 0.
 * Returns  QUIRE_S_INCOMPLETE  capacity is too short; nothing was written.
 * Time     O(blocks of the pools + nodes + max_sequences + table entries + known tokens). */
QUIRE_EXPORT quire_status quire_cache_dump(quire_cache *cache, uint32_t flags, void *buffer,
                                           uint64_t capacity, uint64_t *size_bytes,
                                           quire_error *error);

typedef struct quire_namespace_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    const void *key; /* [key_size_bytes] from the server, never from a request; at most 256 bytes */
    uint32_t key_size_bytes;
    uint32_t quota_blocks; /* table entries of its sequences, over all groups, a block that several
                              share counted for each; 0 = no limit */
    /* Host memory that the keys of its sequences may take (quire_key), in bytes; 0 = 256 MiB.
     * Counted is what is allocated, each thing once, for as long as a sequence or a cached block
     * needs it. With sizes of keys rounded up to a multiple of 4:
     *   a list of whole-sequence keys, none too:    64 + max(64, 12 + sum of (8 + size_bytes))
     *   a list of spans beside one of those:        64 + max(64, 12 * spans)
     *   the type and bytes of a span's key:         32 + max(64, 8 + size_bytes) */
    uint64_t key_bytes;
} quire_namespace_desc;

typedef struct quire_namespace_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t sequences;
    uint64_t blocks_held; /* table entries of its sequences */
    uint64_t quota_blocks;
    uint64_t prefix_cache_queries;
    uint64_t prefix_cache_hits;
    uint64_t key_bytes;       /* of host memory that its keys take now */
    uint64_t key_bytes_limit; /* that they may take */
} quire_namespace_info;

/* A tenant's sharing domain: sequences of two namespaces never share a block. The default one
 * always
 * exists: 0 where a call takes a namespace, and no handle is its. Two namespaces are two tenants
 * even if their keys are equal. At most 65,535 at once.
 * Nor do they see what the other left: a block of the device that another namespace wrote last, and
 * that a sequence takes to write, is zeroed by the commit that hands it over, on the step's queues
 * before anything of the step. Until then, and in the host tier until it is overwritten, content
 * stays where it was: this keeps tenants apart who read through their tables, not who can read the
 * pool. In a bookkeeping-only cache the engine zeroes, as its list of copies says
 * (QUIRE_COPY_ZERO).
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_namespace_create(quire_cache *cache,
                                                 const quire_namespace_desc *desc,
                                                 quire_namespace *out, quire_error *error);
/* Its cached prefixes are forgotten.
 * Errors   QUIRE_E_BUSY   sequences live in it, or a step is open.
 *          QUIRE_E_STALE  it was destroyed before, or it is 0: the default one stays.
 * Time     O(cached blocks of the namespace). */
QUIRE_EXPORT quire_status quire_namespace_destroy(quire_cache *cache, quire_namespace ns,
                                                  quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_namespace_get_info(quire_cache *cache, quire_namespace ns,
                                                   quire_namespace_info *info, quire_error *error);

/* Something beside the tokens that decides K and V. */
enum { QUIRE_KEY_ADAPTER = 1, QUIRE_KEY_SALT = 2, QUIRE_KEY_MEDIA = 3, QUIRE_KEY_OTHER = 4 };

/* An element of an array; no struct head. A key of the whole sequence has begin = end = 0; a span
 * (an image's content at its placeholder tokens) covers tokens [begin, end). */
typedef struct quire_key {
    uint32_t type;       /* QUIRE_KEY_* */
    uint32_t size_bytes; /* at most 4,096 */
    const void *bytes;
    uint32_t begin;
    uint32_t end;
} quire_key;

typedef struct quire_seq_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    quire_namespace ns;    /* 0: the default one */
    const quire_key *keys; /* [key_count], whole-sequence keys and spans, copied; at most 64 */
    uint32_t key_count;
    uint32_t key_stride;
    int32_t priority; /* higher is served longer */
    /* Rows that it has in cross groups. Its own K and V depend on them, and no key of ours names
     * them: such a sequence publishes nothing and finds nothing. */
    uint32_t cross_tokens;
} quire_seq_desc;

enum {
    QUIRE_SEQ_SWAPPED = 1 << 0,   /* its blocks are in the host tier */
    QUIRE_SEQ_LOST = 1 << 1,      /* a failed step took computed tokens back; cleared when added */
    QUIRE_SEQ_IN_STEP = 1 << 2,   /* in the open step */
    QUIRE_SEQ_PREEMPTED = 1 << 3, /* preempted and not back yet */
    /* Publishes nothing any more: quire_cache_reset was called, or, where every group has a window,
     * the prefix tree ran out of nodes for sequences as long as this one. */
    QUIRE_SEQ_UNPUBLISHED = 1 << 4
};

typedef struct quire_seq_info {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_SEQ_*, written */
    const quire_chain *next;
    uint32_t known_tokens;
    uint32_t computed_tokens;
    uint32_t draft_tokens;     /* provisional ones at the end, see quire_seq_accept */
    uint32_t lookahead_tokens; /* reserved behind the last known token by its last item */
    uint32_t
        blocks_held; /* table entries that are not null, over all groups, shared ones included */
    uint32_t preemptions;
    int32_t priority;
    uint32_t reserved0;
} quire_seq_info;

/* Makes a sequence without tokens. Where its keys would take its namespace past key_bytes, cached
 * prefixes of the namespace are forgotten, those whose keys no sequence has had for longest first.
 * Errors   QUIRE_E_ARG          a span's begin is not before its end, or cross_tokens without a
 *                               cross group.
 *          QUIRE_E_STALE        no such namespace.
 *          QUIRE_E_LIMIT        max_sequences are alive, or more than 64 keys, or one above 4,096
 *                               bytes; or the keys would take more than key_bytes even so: nothing
 *                               is forgotten then.
 *          QUIRE_E_HOST_MEMORY  there is none for the keys; nothing changed.
 * Time     O(bytes of the keys); where prefixes give way, O(cached blocks of the namespace). */
QUIRE_EXPORT quire_status quire_seq_create(quire_cache *cache, const quire_seq_desc *desc,
                                           quire_seq *out, quire_error *error);

enum {
    /* Forget the published blocks of its tokens, those included that it no longer holds (out of its
     * window, swapped, preempted), except where another sequence holds one. Tokens that were
     * truncated are not its own any more. Takes time in its known tokens; fails with
     * QUIRE_E_HOST_MEMORY, and then changes nothing. */
    QUIRE_END_DROP_PREFIX = 1 << 0
};

/* Ends a sequence. Its blocks go back at once for later work on the same queue, for others when the
 * steps that use them are done. Published blocks stay cached, the tail older than the head.
 * Errors   QUIRE_E_STALE  it was ended before.  QUIRE_E_BUSY  it is in the open step.
 * Time     O(blocks of the sequence); with QUIRE_END_DROP_PREFIX O(known tokens). */
QUIRE_EXPORT quire_status quire_seq_end(quire_cache *cache, quire_seq seq, uint32_t flags,
                                        quire_error *error);
/* Makes a sequence of the first `token_count` known tokens, sharing their blocks. Neither sees what
 * the other writes: the one that may write a shared block in place goes on after the slots that the
 * other reads, and any other writer gets a copy of its own. What was computed, counting committed
 * steps, stays so. The fork is of its parent's namespace, which pays for its table too.
 * Errors   QUIRE_E_BUSY   the sequence is in the open step, swapped out, or has drafts not
 *                         accepted.
 *          QUIRE_E_LIMIT  max_sequences are alive, or the namespace's quota would be passed.
 * Time     O(blocks of the fork). */
QUIRE_EXPORT quire_status quire_seq_fork(quire_cache *cache, quire_seq seq, uint32_t token_count,
                                         quire_seq *out, quire_error *error);
/* Shortens to the first `token_count` known tokens and gives the blocks behind them back. With
 * window groups *computed* may fall further: to the longest length whose windows are whole.
 * Time     O(blocks given back). */
QUIRE_EXPORT quire_status quire_seq_truncate(quire_cache *cache, quire_seq seq,
                                             uint32_t token_count, quire_error *error);
/* Keeps the first `count` of the draft tokens of the last item and forgets the others. A count
 * above the drafts reaches into that item's lookahead: what the engine wrote there becomes known,
 * as QUIRE_TOKEN_UNKNOWN until quire_seq_set_tokens names it, and computed. A sequence is accepted
 * before its next item.
 * Errors   QUIRE_E_ARG  count is above drafts + lookahead; or under the item's mask one of them
 *                       does not follow the one before it.
 * Time     O(count + blocks given back). */
QUIRE_EXPORT quire_status quire_seq_accept(quire_cache *cache, quire_seq seq, uint32_t count,
                                           quire_error *error);

/* Keeps the drafts that `path` names by their indices among the drafts of the last item, rising,
 * and forgets the others: a way through the tree that the item's mask spanned, each its parent's
 * child. What does not lie where it now belongs in the cache is moved on the device when the
 * sequence's next step is committed. Until then a fork takes only what comes before the first such
 * token, and a swap gives the moved tokens up, to be computed again.
 * path     [count] NULL when count is 0.
 * Without drafts, as in a second call, a path of none changes nothing.
 * Errors   QUIRE_E_ARG          an index is not above the one before it, or no draft's; or the path
 *                               is no way through the mask.
 *          QUIRE_E_UNSUPPORTED  tokens would have to be moved, and the backend cannot.
 * Time     O(count + blocks given back). */
QUIRE_EXPORT quire_status quire_seq_accept_path(quire_cache *cache, quire_seq seq,
                                                const uint32_t *path, uint32_t count,
                                                quire_error *error);

/* Names unknown tokens. An element of an array: no struct head. */
typedef struct quire_token_span {
    quire_seq seq;
    uint32_t position;     /* of the first token named */
    uint32_t token_offset; /* into `tokens` */
    uint32_t token_count;
    uint32_t reserved0;
} quire_token_span;

/* Gives tokens that were added as QUIRE_TOKEN_UNKNOWN their ids; blocks that become wholly known
 * are published. All spans are checked before any is applied.
 * Errors   QUIRE_E_ARG   a position holds a known token, or is past the end.
 *          QUIRE_E_BUSY  a sequence is in the open step.
 * Time     O(spans + tokens named), and the search for the next unknown token. */
QUIRE_EXPORT quire_status quire_seq_set_tokens(quire_cache *cache, const quire_token_span *spans,
                                               uint32_t span_count, uint32_t span_stride,
                                               const quire_token *tokens, uint32_t token_count,
                                               quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_seq_get_info(quire_cache *cache, quire_seq seq,
                                             quire_seq_info *info, quire_error *error);

/* How many of the sequence's known tokens followed by `tokens` would be found if it were added now,
 * on the queue that wrote them. 0 when anything of it is computed. No effect, no statistics.
 * Time     O(known tokens + token_count). */
QUIRE_EXPORT quire_status quire_prefix_probe(quire_cache *cache, quire_seq seq,
                                             const quire_token *tokens, uint32_t token_count,
                                             uint32_t *hit_tokens, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_CACHE_H */

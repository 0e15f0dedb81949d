/* SPDX-License-Identifier: Apache-2.0
 *
 * script: runs the operations of a file on a cache and prints each result; README.md. */
#include <quire/dyn.h>

enum { PLACES = 12, LEASES = 3, MAX_TOKENS = 1024, MAX_LIST = 256 };

typedef struct Leased {
    quire_lease lease; /* 0: none */
    int32_t hand[MAX_LIST];
    uint32_t count; /* of the hand */
} Leased;

static const quire_api *q;
static quire_cache *cache;
static quire_seq seqs[PLACES];
static Leased leases[LEASES];
static quire_step open_step, committed[QUIRE_UNFINISHED_STEPS + 1];
static uint32_t committed_count;
static uint32_t tokens[MAX_TOKENS];

static const char *name_of(quire_status status) {
    switch (status) {
        case QUIRE_OK:
            return "ok";
        case QUIRE_S_NO_BLOCKS:
            return "short";
        case QUIRE_E_ARG:
            return "argument";
        case QUIRE_E_STALE:
            return "stale";
        case QUIRE_E_BUSY:
            return "busy";
        case QUIRE_E_UNSUPPORTED:
            return "unsupported";
        case QUIRE_E_LIMIT:
            return "limit";
        default:
            return "other";
    }
}

static int say(quire_status status) {
    printf(" %s", name_of(status));
    return status == QUIRE_OK;
}

static void count_from(uint32_t first, uint32_t count, uint32_t unknown) {
    uint32_t i;
    for (i = 0; i < count; ++i) tokens[i] = i + unknown < count ? first + i : QUIRE_TOKEN_UNKNOWN;
}

static void make_cache(const uint32_t *a) {
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_group_desc layers = {.struct_size = sizeof layers,
                               .layer_count = 1,
                               .kv_heads = 1,
                               .k_head_dim = 8,
                               .v_head_dim = 8};
    quire_cache_desc desc = {.struct_size = sizeof desc,
                             .groups = &layers,
                             .group_count = 1,
                             .group_stride = sizeof layers,
                             .block_tokens = 4,
                             .blocks = a[0],
                             .host_blocks = a[1]};
    quire_instance *instance;
    if (q->instance_create(&host, &instance, NULL) < 0) exit(1);
    say(q->cache_create(instance, &desc, &cache, NULL));
}

static void create(const uint32_t *a) {
    quire_seq_desc desc = {.struct_size = sizeof desc, .priority = (int32_t)a[1]};
    if (seqs[a[0]] != 0) {
        printf(" taken");
        return;
    }
    say(q->seq_create(cache, &desc, &seqs[a[0]], NULL));
}

static void begin(const uint32_t *a) {
    quire_step_desc desc = {
        .struct_size = sizeof desc, .flags = a[1], .preempt = a[2], .queue_tag = a[0]};
    quire_step made;
    if (say(q->step_begin(cache, &desc, NULL, 0, sizeof(quire_step_item), NULL, 0, NULL,
                          sizeof(quire_step_result), &made, NULL)))
        open_step = made;
}

static void add(const uint32_t *a) {
    quire_step_item item = {.token_count = a[2], .max_compute = a[3], .draft_count = a[4]};
    quire_step_result r;
    item.seq = seqs[a[0]];
    count_from(a[1], a[2], a[5]);
    if (say(q->step_add(cache, open_step, &item, 1, sizeof item, tokens, a[2], &r, sizeof r, NULL)))
        printf(" %u %u %u %u %u %u %u", r.outcome, r.reason, r.hit_tokens, r.first_position,
               r.compute_count, r.blocks_short, r.row);
}

static void commit(void) {
    quire_block_copy copies[MAX_LIST];
    quire_preemption gone[MAX_LIST];
    uint32_t copy_count = 0, gone_count = 0, had = 0, i;
    if (!say(q->step_commit(cache, open_step, NULL, NULL))) return;
    q->step_copies(cache, open_step, copies, MAX_LIST, sizeof copies[0], &copy_count, NULL);
    q->step_preempted(cache, open_step, gone, MAX_LIST, sizeof gone[0], &gone_count, NULL);
    for (i = 0; i < gone_count; ++i) had += gone[i].computed_tokens;
    printf(" %u %u %u", copy_count, gone_count, had);
    committed[committed_count++] = open_step;
    open_step = 0;
}

static void finish(uint32_t outcome) {
    if (committed_count == 0) {
        printf(" none");
        return;
    }
    say(q->step_finish(cache, committed[0], NULL, outcome, NULL));
    memmove(committed, committed + 1, --committed_count * sizeof committed[0]);
}

static void fork_place(const uint32_t *a) {
    quire_seq child;
    if (seqs[a[1]] != 0) {
        printf(" taken");
        return;
    }
    if (say(q->seq_fork(cache, seqs[a[0]], a[2], &child, NULL))) seqs[a[1]] = child;
}

static void pair(const uint32_t *a) {
    quire_step_desc desc = {.struct_size = sizeof desc};
    quire_step_item items[2] = {{.token_count = a[3]}, {.token_offset = a[3], .token_count = a[3]}};
    quire_step_result r[2];
    quire_step step;
    uint32_t i;
    items[0].seq = seqs[a[0]];
    items[1].seq = seqs[a[1]];
    for (i = 0; i < 2 * a[3]; ++i) tokens[i] = a[2] + (i < a[3] ? i : i - a[3] + 7);
    if (!say(q->step_begin(cache, &desc, items, 2, sizeof items[0], tokens, 2 * a[3], r,
                           sizeof r[0], &step, NULL)))
        return;
    q->step_commit(cache, step, NULL, NULL);
    q->step_finish(cache, step, NULL, QUIRE_STEP_OK, NULL);
    for (i = 0; i < 2; ++i)
        printf(" %u %u %u %u %u", r[i].outcome, r[i].hit_tokens, r[i].first_position,
               r[i].compute_count, r[i].row);
}

static void set(const uint32_t *a) {
    quire_token_span span = {.position = a[1], .token_count = a[3]};
    span.seq = seqs[a[0]];
    count_from(a[2], a[3], 0);
    say(q->seq_set_tokens(cache, &span, 1, sizeof span, tokens, a[3], NULL));
}

static void probe(const uint32_t *a) {
    uint32_t hits;
    count_from(a[1], a[2], 0);
    if (say(q->prefix_probe(cache, seqs[a[0]], tokens, a[2], &hits, NULL))) printf(" %u", hits);
}

static void migrate(const uint32_t *a) {
    quire_migrate_desc desc = {.struct_size = sizeof desc, .blocks = a[0]};
    quire_migrate_info info = {.struct_size = sizeof info};
    quire_status status = q->cache_migrate_wait(cache, &desc, &info, 0, NULL);
    say(status < 0 ? status : QUIRE_OK);
    if (status >= 0)
        printf(" %d %u %u %u", status == QUIRE_OK, (unsigned)info.blocks_moved,
               (unsigned)info.blocks_dropped, info.blocks_short);
}

static void info(const uint32_t *a) {
    quire_seq_info i = {.struct_size = sizeof i};
    if (say(q->seq_get_info(cache, seqs[a[0]], &i, NULL)))
        printf(" %u %u %u %u %u", i.known_tokens, i.computed_tokens, i.draft_tokens, i.blocks_held,
               i.preemptions);
}

static void say_ids(const int32_t *ids, uint32_t count) {
    uint32_t i;
    for (i = 0; i < count; ++i) printf(" %d", ids[i]);
}

static void blocks(const uint32_t *a) {
    int32_t ids[MAX_LIST];
    uint32_t count;
    if (!say(q->step_blocks(cache, 0, seqs[a[0]], 0, 0, ids, MAX_LIST, &count, NULL))) return;
    say_ids(ids, count);
}

static void stats(void) {
    quire_cache_stats s = {.struct_size = sizeof s};
    uint64_t all[15];
    int i;
    if (!say(q->cache_get_stats(cache, &s, NULL))) return;
    all[0] = s.prefix_cache_queries, all[1] = s.prefix_cache_hits, all[2] = s.num_preemptions;
    all[3] = s.evictions, all[4] = s.copies_on_write, all[5] = s.blocks_swapped_out;
    all[6] = s.blocks_swapped_in, all[7] = s.forks, all[8] = s.steps, all[9] = s.sequences;
    all[10] = s.blocks_free, all[11] = s.blocks_cached, all[12] = s.blocks_held;
    all[13] = s.leases, all[14] = s.blocks_leased;
    for (i = 0; i < 15; ++i) printf(" %llu", (unsigned long long)all[i]);
}

static void of_sequence(const char *op, const uint32_t *a) {
    quire_seq seq = seqs[a[0]];
    quire_seq dropped[PLACES];
    uint32_t count;
    if (strcmp(op, "end") == 0) {
        if (say(q->seq_end(cache, seq, 0, NULL))) seqs[a[0]] = 0;
    }
    if (strcmp(op, "fork") == 0) fork_place(a);
    if (strcmp(op, "truncate") == 0) say(q->seq_truncate(cache, seq, a[1], NULL));
    if (strcmp(op, "accept") == 0) say(q->seq_accept(cache, seq, a[1], NULL));
    if (strcmp(op, "set") == 0) set(a);
    if (strcmp(op, "pair") == 0) {
        if (seqs[a[1]] == 0)
            printf(" none");
        else
            pair(a);
    }
    if (strcmp(op, "probe") == 0) probe(a);
    if (strcmp(op, "info") == 0) info(a);
    if (strcmp(op, "blocks") == 0) blocks(a);
    if (strcmp(op, "add") == 0) add(a);
    if (strcmp(op, "drop") == 0) {
        if (say(q->step_drop(cache, open_step, seq, dropped, PLACES, &count, NULL)))
            printf(" %u", count);
    }
    if (strcmp(op, "preempt") == 0) {
        if (say(q->step_preempt(cache, open_step, seq, a[1], &count, NULL))) printf(" %u", count);
    }
}

/* False: the call failed, or lacked blocks. */
static int say_asked(quire_status status, const quire_lease_result *result) {
    if (say(status)) return 1;
    if (status == QUIRE_S_NO_BLOCKS) printf(" %u %u", result->blocks_short, result->reason);
    return 0;
}

static void lease(const uint32_t *a) {
    quire_lease_desc desc = {.struct_size = sizeof desc};
    if (leases[a[0]].lease != 0) {
        printf(" taken");
        return;
    }
    leases[a[0]].count = 0;
    say(q->lease_create(cache, &desc, &leases[a[0]].lease, NULL));
}

static void held(Leased *of) {
    quire_lease_block list[MAX_LIST];
    uint32_t count, i;
    if (!say(q->lease_blocks(cache, of->lease, 0, 0, list, MAX_LIST, sizeof list[0], &count, NULL)))
        return;
    for (i = 0; i < count; ++i) printf(" %d %u %u", list[i].block, list[i].holds, list[i].flags);
}

/* Calls whose ids become the hand. */
static void ask(const char *op, Leased *of, const uint32_t *a) {
    quire_lease_result result = {.struct_size = sizeof result};
    int32_t ids[MAX_LIST] = {0};
    uint32_t count = of->count;
    quire_status status;
    if (strcmp(op, "take") == 0) {
        status = q->lease_take(cache, open_step, of->lease, 0, a[1], ids, &result, NULL);
        count = a[1];
    } else if (strcmp(op, "publish") == 0) {
        count_from(a[1], count * 4, 0);
        status = q->lease_publish(cache, open_step, of->lease, tokens, count * 4, of->hand, ids,
                                  &result, NULL);
    } else {
        count_from(a[1], a[2], 0);
        status = q->lease_match(cache, a[3] == QUIRE_MATCH_PIN ? open_step : 0, of->lease, tokens,
                                a[2], a[3], ids, &result, NULL);
        count = result.blocks;
    }
    if (say_asked(status, &result)) {
        say_ids(ids, count);
        memcpy(of->hand, ids, count * sizeof ids[0]);
        of->count = count;
    }
}

static void pin(Leased *of, const uint32_t *a) {
    quire_lease_result result = {.struct_size = sizeof result};
    int32_t id = (int32_t)a[1];
    say_asked(q->lease_pin(cache, open_step, of->lease, 0, &id, 1, &result, NULL), &result);
}

static void of_lease(const char *op, const uint32_t *a) {
    Leased *of = &leases[a[0]];
    uint32_t count;
    if (strcmp(op, "unlease") == 0) {
        if (say(q->lease_end(cache, of->lease, NULL))) of->lease = 0;
    } else if (strcmp(op, "give") == 0) {
        count = a[1] < of->count ? a[1] : of->count;
        say(q->lease_give(cache, open_step, of->lease, 0, of->hand, count, NULL));
    } else if (strcmp(op, "forget") == 0) {
        if (say(q->lease_forget(cache, of->lease, 0, of->hand, of->count, &count, NULL)))
            printf(" %u", count);
    } else if (strcmp(op, "held") == 0) {
        held(of);
    } else if (strcmp(op, "pin") == 0) {
        pin(of, a);
    } else {
        ask(op, of, a);
    }
}

static void evict(const uint32_t *a) {
    int32_t ids[MAX_LIST];
    uint32_t count;
    if (say(q->cache_evict(cache, 0, a[0], ids, &count, NULL))) say_ids(ids, count);
}

static int needs(const char *op, const char *list) {
    char word[20];
    snprintf(word, sizeof word, " %s ", op);
    return strstr(list, word) != NULL;
}

static void run(const char *op, const uint32_t *a) {
    int is_stepped = needs(op, " add drop preempt abort commit ");
    int is_of_sequence =
        needs(op, " end fork truncate accept set probe info blocks pair add drop preempt ");
    int is_of_lease = needs(op, " unlease take publish match give pin forget held ");
    if (needs(op, " take publish give pin ")) is_stepped = 1;
    if (strcmp(op, "match") == 0 && a[3] == QUIRE_MATCH_PIN) is_stepped = 1;
    if ((is_stepped && open_step == 0) || (is_of_sequence && seqs[a[0]] == 0) ||
        (is_of_lease && leases[a[0]].lease == 0))
        printf(" none");
    else if (is_of_lease)
        of_lease(op, a);
    else if (strcmp(op, "lease") == 0)
        lease(a);
    else if (strcmp(op, "evict") == 0)
        evict(a);
    else if (is_of_sequence)
        of_sequence(op, a);
    else if (strcmp(op, "cache") == 0)
        make_cache(a);
    else if (strcmp(op, "create") == 0)
        create(a);
    else if (strcmp(op, "begin") == 0)
        begin(a);
    else if (strcmp(op, "commit") == 0)
        commit();
    else if (strcmp(op, "finish") == 0)
        finish(QUIRE_STEP_OK);
    else if (strcmp(op, "fail") == 0)
        finish(QUIRE_STEP_FAILED);
    else if (strcmp(op, "migrate") == 0)
        migrate(a);
    else if (strcmp(op, "reset") == 0)
        say(q->cache_reset(cache, NULL));
    else if (strcmp(op, "stats") == 0)
        stats();
    else if (strcmp(op, "abort") == 0) {
        say(q->step_abort(cache, open_step, NULL));
        open_step = 0;
    }
}

static void read_fields(const char *line, uint32_t a[6]) {
    const char *at = line;
    uint32_t i = 0;
    memset(a, 0, 6 * sizeof a[0]);
    for (; i < 6 && (at = strchr(at, '=')) != NULL; ++i) a[i] = (uint32_t)strtoul(++at, NULL, 10);
}

int main(int argc, char **argv) {
    char why[512], line[128], op[16];
    uint32_t a[6], number = 0;
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (file == NULL) return puts("usage: script FILE"), 2;
    if (quire_dyn_load(NULL, &q, why, sizeof why) < 0) return puts(why), 1;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%15s", op) < 1) continue;
        read_fields(line, a);
        printf("%u", ++number);
        run(op, a);
        putchar('\n');
    }
    fclose(file);
    return q->cache_check(cache, NULL) < 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * session: one sequence as bytes, and back: its tokens, and the K and V that are computed of them.
 *
 * A session outlives its cache: it can be kept in a file while a user is away, or be sent to
 * another process. It comes back as a sequence in the host tier, as if it had been swapped out: the
 * next step that runs it copies its blocks to the device, whichever device that is. Nothing is
 * computed again, and tokens and K and V are the same bits.
 *
 *   quire_seq_save_wait(cache, seq, &save, "chat.session", NULL, UINT64_MAX, &error);
 *   quire_seq_end(cache, seq, 0, &error);
 *   ...
 *   quire_seq_restore(cache, &restore, "chat.session", &seq, NULL, &error);
 *
 * docs/session-format.md describes the bytes. They need not be trusted to be read: damaged or
 * foreign ones are refused and change nothing. They are not authenticated: whoever can change a
 * session decides what the model reads.
 */
#ifndef QUIRE_SESSION_H
#define QUIRE_SESSION_H

#include "base.h"
#include "sequence.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the next bytes of a session. QUIRE_OK, or a failure, which ends the export. Called without
 * the cache's lock. An exception ends it too, with QUIRE_E_ARG. */
typedef quire_status (*quire_session_write)(void *user, const void *bytes, uint64_t size_bytes);
/* Fills all of `bytes` with the next ones. QUIRE_OK, or a failure, which ends the import. */
typedef quire_status (*quire_session_read)(void *user, void *bytes, uint64_t size_bytes);

typedef struct quire_export_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    /* Names the model's weights and everything else that decides K and V and that Quire does not
     * know. An import must give the same. */
    uint8_t fingerprint[32];
    uint8_t name_space[32];    /* names the tenant, likewise; zeros: the default one */
    quire_session_write write; /* NULL in quire_seq_save_wait */
    void *user;
} quire_export_desc;

typedef struct quire_import_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint8_t fingerprint[32];
    uint8_t name_space[32];
    /* The new sequence; NULL: zeros. Its keys and cross_tokens must be those of the exported one,
     * in the same order. */
    const quire_seq_desc *seq;
    quire_session_read read; /* NULL in quire_seq_restore */
    void *user;
} quire_import_desc;

typedef struct quire_session_info {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint32_t known_tokens;
    uint32_t computed_tokens; /* of these the session holds K and V */
    uint64_t blocks;          /* over all groups */
    uint64_t size_bytes;
} quire_session_info;

/* Writes a sequence's session. Waits until the sequence's last step has run; the sequence then
 * stays as it is. Until the call returns, no step takes it, no other call changes it, and it is not
 * preempted, while everything else goes on: between calls of `write` the cache's lock is held for
 * about as long as 4 MiB take from the device. Tokens from the first QUIRE_TOKEN_UNKNOWN on, and
 * lookahead, are left out; accepted drafts that are still to be moved count as not computed.
 *
 * info     what was written; NULL: not wanted.
 * Returns  QUIRE_S_TIMEOUT      the sequence's last step did not end in time; nothing was written.
 * Errors   QUIRE_E_BUSY         it is in the open step or being exported; has drafts that were not
 *                               accepted; or its last step is not finished, or failed while a step
 *                               is open.
 *          QUIRE_E_UNSUPPORTED  the cache has no memory, or leads or follows others; or the
 *                               sequence was computed before quire_cache_reset.
 *          what `write` returned; QUIRE_E_ARG if that is no failure of base.h.
 * Time     O(bytes). */
QUIRE_EXPORT quire_status quire_seq_export_wait(quire_cache *cache, quire_seq seq,
                                                const quire_export_desc *desc,
                                                quire_session_info *info, uint64_t timeout_ns,
                                                quire_error *error);

/* Creates a sequence from a session. Its blocks take room in the host tier. The cache's groups,
 * block_tokens and, for static scales, scales must be those of the exporting cache; devices,
 * shards and numbers of blocks may differ. Blocks are published when the sequence next runs.
 *
 * Returns  QUIRE_S_NO_BLOCKS    the host tier is short of blocks; there is no sequence.
 * Errors   QUIRE_E_ARG          the bytes are damaged, or not of such a cache, fingerprint, name
 *                               space, keys or cross_tokens; the message says which.
 *          QUIRE_E_INCOMPATIBLE the format has another version.
 *          QUIRE_E_LIMIT        it has more than max_sequence_tokens tokens; or as for
 *                               quire_seq_create.
 *          QUIRE_E_UNSUPPORTED  as for quire_seq_export_wait.
 *          what `read` returned; QUIRE_E_ARG if that is no failure of base.h.
 * Time     O(bytes). */
QUIRE_EXPORT quire_status quire_seq_import(quire_cache *cache, const quire_import_desc *desc,
                                           quire_seq *out, quire_session_info *info,
                                           quire_error *error);

/* Exports into a file of its own: a new one, which takes the place of `path` only when it is whole
 * and on the disk. Others may not read it (mode 0600).
 * Errors   QUIRE_E_OS  the file cannot be written; native_code holds errno, and `path` is as
 *                      before.
 * Time     O(bytes). */
QUIRE_EXPORT quire_status quire_seq_save_wait(quire_cache *cache, quire_seq seq,
                                              const quire_export_desc *desc, const char *path,
                                              quire_session_info *info, uint64_t timeout_ns,
                                              quire_error *error);
/* Imports from a file, which must end with the session.
 * Time     O(bytes). */
QUIRE_EXPORT quire_status quire_seq_restore(quire_cache *cache, const quire_import_desc *desc,
                                            const char *path, quire_seq *out,
                                            quire_session_info *info, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_SESSION_H */

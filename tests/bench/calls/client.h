/* SPDX-License-Identifier: Apache-2.0
 *
 * client: the measured loop, as a program writes it that has only dyn.h of Quire.
 *
 * If any call fails, its message is printed and the process ends. Threads: none.
 */
#ifndef QUIRE_BENCH_CALLS_CLIENT_H
#define QUIRE_BENCH_CALLS_CLIENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The cache of every loop: bookkeeping only, one group, room for one sequence of 8176 tokens. */
enum { BENCH_BLOCKS = 512, BENCH_PROMPT = 512, BENCH_SEED = 7 };

typedef struct client client;

/* The library's table, found as dyn.h finds it. */
client *client_open(void);
void client_close(client *c);

/* Steps without items: begin, commit without a batch, finish. */
void client_run_empty(client *c, uint32_t steps);
/* The same loop through a table of functions that do nothing. */
void client_run_nothing(client *c, uint32_t steps);

/* A sequence with a prompt of BENCH_PROMPT unique tokens; steps of one new token. */
void client_start(client *c);
void client_run_decode(client *c, uint32_t steps);
void client_end(client *c);

#ifdef __cplusplus
}
#endif
#endif

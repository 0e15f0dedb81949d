/* SPDX-License-Identifier: Apache-2.0
 *
 * step: the sizes of the measured step, equal in each language. */
#ifndef QUIRE_BENCH_STEP_H
#define QUIRE_BENCH_STEP_H

#define STEP_SEQUENCES 256
#define STEP_ROW_BLOCKS 256 /* of 16 tokens: room for 4,096 steps */
#define STEP_BLOCKS (STEP_SEQUENCES * STEP_ROW_BLOCKS + 1)

#endif /* QUIRE_BENCH_STEP_H */

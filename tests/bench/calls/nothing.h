/* SPDX-License-Identifier: Apache-2.0
 *
 * nothing: a table whose step functions return at once. In a file of its own, so that a compiler
 * cannot see through the table.
 */
#ifndef QUIRE_BENCH_CALLS_NOTHING_H
#define QUIRE_BENCH_CALLS_NOTHING_H

#include <quire/dyn.h>

const quire_api *nothing_api(void);

#endif

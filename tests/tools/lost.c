/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes an instance and loses its address. Only valgrind notices, and only if it watches the heap
 * of libquire; without it this exits with 0. */

#include <quire/dyn.h>

static void make_and_forget(const quire_api *quire) {
    quire_instance *instance;
    quire_instance_desc desc = {.struct_size = sizeof desc};
    quire->instance_create(&desc, &instance, NULL);
}

int main(void) {
    const quire_api *quire;
    char why[512];
    /* A failure here would look as if the fault had been detected. */
    if (quire_dyn_load(NULL, &quire, why, sizeof why) < 0) return 0;
    make_and_forget(quire);
    return 0;
}

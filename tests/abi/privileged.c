/* SPDX-License-Identifier: Apache-2.0
 *
 * privileged: prints what a program finds through the environment; privileged.py runs it with and
 * without privilege.
 *
 *   privileged LIBRARY    prints "secure=0|1 library=0|1 backends=N"
 *
 * library   whether QUIRE_LIBRARY led to the library. backends: how many candidates
 *           QUIRE_PLUGIN_PATH led to, once the library was opened by path.
 */
#include <quire/dyn.h>
#include <sys/auxv.h>

int main(int argc, char **argv) {
    const quire_api *q;
    quire_instance *instance;
    quire_instance_desc desc = {.struct_size = sizeof desc};
    uint32_t count = 0;
    char why[512];
    int found;

    if (argc != 2) return 2;
    found = quire_dyn_load(NULL, &q, why, sizeof why) == QUIRE_OK;
    if (quire_dyn_load(argv[1], &q, why, sizeof why) < 0) return puts(why), 1;
    if (q->instance_create(&desc, &instance, NULL) < 0) return 1;
    if (q->backend_count(instance, &count, NULL) < 0) return 1;
    printf("secure=%d library=%d backends=%u\n", getauxval(AT_SECURE) != 0, found, (unsigned)count);
    return q->instance_destroy(instance, NULL) < 0;
}

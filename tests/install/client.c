/* SPDX-License-Identifier: Apache-2.0
 *
 * client: opens the cpu device and prints the file from which its backend was loaded.
 *
 *   client          through the libquire that it is linked with
 *   client PATH     through the one at PATH, by dlopen
 */
#include <quire/dyn.h>

int main(int argc, char **argv) {
    const quire_api *api = NULL;
    quire_instance_desc host = {.struct_size = sizeof host};
    quire_device_desc desc = {.struct_size = sizeof desc, .backend = "cpu"};
    quire_error error = {.struct_size = sizeof error};
    quire_instance *instance;
    quire_device *device;
    uint32_t count = 0, i;
    char why[512] = "";

    if (argc > 1) {
        if (quire_dyn_load(argv[1], &api, why, sizeof why) < 0) return puts(why), 1;
    } else if (quire_get_api(QUIRE_VERSION_MAJOR, QUIRE_VERSION_MINOR, &api, &error) < 0) {
        return puts(error.message), 1;
    }
    if (api->instance_create(&host, &instance, &error) < 0) return puts(error.message), 1;
    if (api->device_open(instance, &desc, &device, &error) < 0) return puts(error.message), 1;
    if (api->backend_count(instance, &count, &error) < 0) return puts(error.message), 1;
    for (i = 0; i < count; ++i) {
        quire_backend_info info = {.struct_size = sizeof info};
        if (api->backend_get_info(instance, i, &info, &error) < 0) return puts(error.message), 1;
        if (strcmp(info.name, "cpu") == 0) puts(info.path);
    }
    return api->device_close(device, NULL) < 0 || api->instance_destroy(instance, NULL) < 0;
}

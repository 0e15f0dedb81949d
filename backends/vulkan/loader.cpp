// SPDX-License-Identifier: Apache-2.0

#define VOLK_IMPLEMENTATION
#include "loader.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "shared/checks.hpp"

namespace quire::vulkan {

namespace {

constexpr char kValidationLayer[] = "VK_LAYER_KHRONOS_validation";

struct Process {
    std::mutex mutex;
    void *loader =
        nullptr;  // libvulkan; never closed: drivers may have threads and destructors of their own
    PFN_vkGetInstanceProcAddr entry = nullptr;
    VkInstance instance = VK_NULL_HANDLE;
    VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
    uint32_t holders = 0;
};

Process &process() {
    static auto *one = new Process;  // never destroyed: nothing of ours runs at exit
    return *one;
}

VKAPI_ATTR VkBool32 VKAPI_CALL end_on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                              VkDebugUtilsMessageTypeFlagsEXT,
                                              const VkDebugUtilsMessengerCallbackDataEXT *data,
                                              void *) {
    std::fprintf(stderr, "quire vulkan: the validation layer says: %s\n", data->pMessage);
    std::abort();
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info() {
    VkDebugUtilsMessengerCreateInfoEXT info{};
    info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
    info.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                       VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
    info.pfnUserCallback = end_on_message;
    return info;
}

bool is_validating() {
    const char *value = environment("QUIRE_VULKAN_VALIDATION");
    return value != nullptr && std::strcmp(value, "0") != 0;
}

// False: the library is missing, or is not a Vulkan loader.
bool load_library(Process &one, std::string *why) {
    if (one.loader != nullptr) return true;
    const char *given = environment("QUIRE_VULKAN_LIBRARY");
    const char *named = given != nullptr ? given : "libvulkan.so.1";
    one.loader = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (one.loader == nullptr) {
        const char *said = dlerror();
        *why = said != nullptr ? said : std::string(named) + " cannot be opened";
        return false;
    }
    auto entry =
        reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(one.loader, "vkGetInstanceProcAddr"));
    if (entry == nullptr) {  // another library
        dlclose(one.loader);
        one.loader = nullptr;
        *why = std::string(named) + " is not a Vulkan loader: it has no vkGetInstanceProcAddr";
        return false;
    }
    volkInitializeCustom(entry);
    one.entry = entry;
    return true;
}

VkResult create(Process &one) {
    bool validates = is_validating();
    VkApplicationInfo application{};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.pEngineName = "quire";
    application.apiVersion = VK_API_VERSION_1_3;
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    const char *layer = kValidationLayer;
    const char *extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME,
                                VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
    VkValidationFeatureEnableEXT enabled =
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
    VkValidationFeaturesEXT features{};
    features.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT;
    features.enabledValidationFeatureCount = 1;
    features.pEnabledValidationFeatures = &enabled;
    if (validates) {
        info.pNext = &features;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &layer;
        info.enabledExtensionCount = 2;
        info.ppEnabledExtensionNames = extensions;
    }
    if (VkResult result = vkCreateInstance(&info, nullptr, &one.instance)) return result;
    volkLoadInstanceOnly(one.instance);
    if (!validates) return VK_SUCCESS;
    VkDebugUtilsMessengerCreateInfoEXT messages = messenger_info();
    return vkCreateDebugUtilsMessengerEXT(one.instance, &messages, nullptr, &one.messenger);
}

void destroy(Process &one) {
    if (one.messenger != VK_NULL_HANDLE) {
        vkDestroyDebugUtilsMessengerEXT(one.instance, one.messenger, nullptr);
    }
    if (one.instance != VK_NULL_HANDLE) vkDestroyInstance(one.instance, nullptr);
    one.messenger = VK_NULL_HANDLE;
    one.instance = VK_NULL_HANDLE;
}

}  // namespace

const char *environment(const char *name) {
    const char *value = secure_getenv(name);
    return value != nullptr && value[0] != 0 ? value : nullptr;
}

quire_status fail_vulkan(quire_error *error, VkResult result, const char *what) {
    quire_status status = QUIRE_E_BACKEND;
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY) status = QUIRE_E_HOST_MEMORY;
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY) status = QUIRE_E_DEVICE_MEMORY;
    if (result == VK_ERROR_DEVICE_LOST) status = QUIRE_E_DEVICE_LOST;
    const char *why = "";
    if (status == QUIRE_E_HOST_MEMORY) why = " (no host memory)";
    if (status == QUIRE_E_DEVICE_MEMORY) why = " (no device memory)";
    if (status == QUIRE_E_DEVICE_LOST) why = " (the device is lost)";
    return fail(error, status, "the Vulkan driver refused %s: VkResult %d%s", what,
                static_cast<int>(result), why);
}

const char *Instance::load(PFN_vkGetInstanceProcAddr entry, VkInstance of) {
    handle = of;
    entry_ = entry;
#define QUIRE_VULKAN_LOAD(name)                            \
    name = reinterpret_cast<PFN_##name>(entry(of, #name)); \
    if (name == nullptr) return #name;
    QUIRE_VULKAN_INSTANCE_FUNCTIONS(QUIRE_VULKAN_LOAD)
#undef QUIRE_VULKAN_LOAD
    return nullptr;
}

void Instance::load_device(VkDevice device, VolkDeviceTable *table) const {
    // Volk uses its global function; an engine's instance may come from another loader.
    std::lock_guard lock(process().mutex);
    PFN_vkGetDeviceProcAddr before = ::vkGetDeviceProcAddr;
    ::vkGetDeviceProcAddr = vkGetDeviceProcAddr;
    volkLoadDeviceTable(table, device);
    ::vkGetDeviceProcAddr = before;
}

quire_status InstanceHold::acquire(quire_error *error) {
    Process &one = process();
    std::lock_guard lock(one.mutex);
    if (!load_library(one, &why_none_)) return QUIRE_OK;
    if (one.holders == 0) {
        VkResult result = create(one);
        if (result != VK_SUCCESS) destroy(one);
        if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
            why_none_ = "the Vulkan loader found no driver: vulkaninfo lists the installed ones";
            return QUIRE_OK;
        }
        if (result == VK_ERROR_LAYER_NOT_PRESENT || result == VK_ERROR_EXTENSION_NOT_PRESENT) {
            return fail(error, QUIRE_E_UNSUPPORTED,
                        "QUIRE_VULKAN_VALIDATION is set, but %s is not installed",
                        kValidationLayer);
        }
        if (result != VK_SUCCESS) return fail_vulkan(error, result, "to create an instance");
    }
    const char *missing = instance_.load(one.entry, one.instance);
    if (missing != nullptr) {
        instance_ = {};
        if (one.holders == 0) destroy(one);
        return fail(error, QUIRE_E_BACKEND, "the Vulkan loader has no function %s", missing);
    }
    ++one.holders;
    return QUIRE_OK;
}

quire_status InstanceHold::borrow(PFN_vkGetInstanceProcAddr entry, VkInstance engines,
                                  quire_error *error) {
    const char *missing = instance_.load(entry, engines);
    is_engines_ = true;
    if (missing == nullptr) return QUIRE_OK;
    return fail(error, QUIRE_E_UNSUPPORTED,
                "get_instance_proc_addr has no function %s for this instance: create it with "
                "apiVersion 1.3",
                missing);
}

void InstanceHold::release() {
    if (instance_.handle == VK_NULL_HANDLE) return;
    instance_ = {};
    if (is_engines_) return;
    Process &one = process();
    std::lock_guard lock(one.mutex);
    if (--one.holders == 0) destroy(one);
}

}  // namespace quire::vulkan

// SPDX-License-Identifier: Apache-2.0

#include "conform.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "library.hpp"

namespace quire::cli {

namespace {

namespace fs = std::filesystem;

// One of the suites: named by the variable, else beside the installed tree's others.
std::string find_program(const char *variable, const char *from_bin) {
    if (const char *path = std::getenv(variable); path != nullptr && *path != 0) return path;
    std::error_code failed;
    fs::path directory = fs::read_symlink("/proc/self/exe", failed).parent_path();
    fs::path candidate = (directory / from_bin).lexically_normal();
    if (fs::exists(candidate, failed)) return candidate;
    throw Failure("no conformance suite at " + candidate.string() +
                      ": it is built and installed if GoogleTest (libgtest-dev) is found and "
                      "-Dtests is not disabled; " +
                      variable + " can name another path",
                  kFailed);
}

// Becomes the program; does not return.
[[noreturn]] void become(std::vector<std::string> words) {
    std::vector<char *> arguments;
    for (std::string &word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(words.front().c_str(), arguments.data());
    throw Failure(words.front() + " cannot be run: " + std::strerror(errno), kFailed);
}

// The file that the library would load: stores lie beside backends.
std::string file_of_store(const std::string &name) {
    Instance instance;
    Error error;
    uint32_t count = 0;
    check(library().backend_count(instance.get(), &count, &error), error);
    for (uint32_t i = 0; i < count; ++i) {
        auto info = described<quire_backend_info>();
        check(library().backend_get_info(instance.get(), i, &info, &error), error);
        fs::path candidate = fs::path(info.path).parent_path() / ("quire_store_" + name + ".so");
        std::error_code failed;
        if (fs::exists(candidate, failed)) return candidate;
    }
    throw Failure("no store '" + name + "' beside the backends: give the path of its .so", kUsage);
}

bool is_path(const std::string &backend) {
    return backend.find('/') != std::string::npos || backend.ends_with(".so");
}

// The file that the library would load for this name.
std::string find_backend(const std::string &name) {
    Instance instance;
    Error error;
    uint32_t count = 0;
    check(library().backend_count(instance.get(), &count, &error), error);
    std::string known;
    for (uint32_t i = 0; i < count; ++i) {
        auto info = described<quire_backend_info>();
        check(library().backend_get_info(instance.get(), i, &info, &error), error);
        if (name == info.name) return info.path;
        known += std::string(known.empty() ? "" : ", ") + info.name;
    }
    if (known.empty()) throw Failure(why_no_backend(instance.get()), kUsage);
    throw Failure("no backend '" + name + "'; found: " + known, kUsage);
}

std::string file_of(const std::string &backend) {
    if (!is_path(backend)) return find_backend(backend);
    std::error_code failed;
    fs::path path = fs::canonical(backend, failed);
    if (failed) throw Failure(backend + ": " + failed.message(), kUsage);
    return path;
}

}  // namespace

void add_conform_options(CLI::App *app, ConformOptions *options) {
    app->add_option("backend", options->backend, "the backend's name, or the path of its .so")
        ->capture_default_str();
    auto value = [=](const std::string &name, const char *type, const char *meaning) {
        auto pass = [=](const std::string &given) {
            options->passed.push_back(name + "=" + given);
        };
        app->add_option_function<std::string>(name, pass, meaning)
            ->type_name(type)
            ->trigger_on_parse();
    };
    auto flag = [=](const std::string &name, const char *meaning) {
        app->add_flag_callback(name, [=] { options->passed.push_back(name); }, meaning);
    };
    value("--report", "FILE", "write an HTML report to this file");
    flag("--json", "print JSON");
    value("--only", "PATTERN", "run only the cases that match, such as 'Copy*:Fill*'");
    value("--without", "NAME", "do not test this optional capability; repeatable");
    value("--patience", "SECONDS",
          "seconds without output before a case counts as hung (default 120)");
    flag("--short", "fewer random shapes");
    value("--seed", "NUMBER", "any number; chooses the shapes of a short run");
    flag("--huge", "also copy more than 4 GiB");
    flag("--fast-16bit", "open devices with QUIRE_DEVICE_FAST_16BIT");
    flag("--inline", "open devices with QUIRE_DEVICE_INLINE");
    flag("--list", "print capabilities and cases, and run nothing");
    app->footer("example: quire conform cpu --report cpu.html");
}

void conform(const ConformOptions &options) {
    std::string program = find_program("QUIRE_CONFORM", QUIRE_CONFORM_FROM_BIN);
    std::vector<std::string> words = {program, file_of(options.backend)};
    const quire_api &api = library();
    words.push_back("--library=" + std::to_string(api.major) + "." + std::to_string(api.minor));
    words.insert(words.end(), options.passed.begin(), options.passed.end());
    become(words);
}

void add_conform_store_options(CLI::App *app, StoreConformOptions *options) {
    app->add_option("store", options->store, "the store's name, or the path of its .so")
        ->required();
    app->add_option("--option", options->options,
                    "NAME=VALUE for the store; {dir} is an empty folder of each case's own")
        ->allow_extra_args(false);
    app->add_option("--only", options->only, "run only the cases that match, such as 'Value*'");
    app->footer(
        "example: quire conform-store disk --option directory={dir} --option capacity=64MiB");
}

void conform_store(const StoreConformOptions &options) {
    const bool is_file = is_path(options.store);
    std::vector<std::string> words = {
        find_program("QUIRE_CONFORM_STORE", QUIRE_CONFORM_FROM_BIN "-store"),
        is_file ? file_of(options.store) : file_of_store(options.store)};
    for (const std::string &option : options.options) {
        words.emplace_back("--option");
        words.push_back(option);
    }
    if (!options.only.empty()) words.push_back("--gtest_filter=" + options.only);
    become(words);
}

}  // namespace quire::cli

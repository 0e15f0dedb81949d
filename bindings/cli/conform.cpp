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

std::string find_program() {
    if (const char *path = std::getenv("QUIRE_CONFORM"); path != nullptr && *path != 0) return path;
    std::error_code failed;
    fs::path directory = fs::read_symlink("/proc/self/exe", failed).parent_path();
    fs::path candidate = (directory / QUIRE_CONFORM_FROM_BIN).lexically_normal();
    if (fs::exists(candidate, failed)) return candidate;
    throw Failure(
        "no conformance suite at " + candidate.string() +
            ": it is built and installed if GoogleTest (libgtest-dev) is found and -Dtests is not "
            "disabled; QUIRE_CONFORM can name another path",
        kFailed);
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
    std::string program = find_program();
    std::vector<std::string> words = {program, file_of(options.backend)};
    const quire_api &api = library();
    words.push_back("--library=" + std::to_string(api.major) + "." + std::to_string(api.minor));
    words.insert(words.end(), options.passed.begin(), options.passed.end());
    std::vector<char *> arguments;
    for (std::string &word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(program.c_str(), arguments.data());
    throw Failure(program + " cannot be run: " + std::strerror(errno), kFailed);
}

}  // namespace quire::cli

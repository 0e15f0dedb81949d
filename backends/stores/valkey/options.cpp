// SPDX-License-Identifier: Apache-2.0

#include "valkey/options.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "shared/numbers.hpp"
#include "shared/refusal.hpp"
#include "valkey/record.hpp"

namespace quire::valkey {

const char kHelp[] =
    "nodes            -        host:port of some nodes of the cluster, with commas; must be given\n"
    "username         -        of an ACL user; without it, 'default'\n"
    "password         -        of the user\n"
    "password_file    -        a file whose first line is the password\n"
    "tls              no       'yes': connections are encrypted, and certificates are checked\n"
    "tls_ca           -        PEM file of whom to trust; without it, whom the system trusts\n"
    "tls_cert         -        PEM file of this client's certificate\n"
    "tls_key          -        PEM file of its key\n"
    "tls_name         -        what each node's certificate must name; without it, its address\n"
    "prefix           quire:   of each key: letters, digits and _ - . : / @\n"
    "ttl              0        seconds after which the cluster drops a value; 0: never\n"
    "timeout          1000     milliseconds after which a request has failed\n"
    "connect_timeout  1000     milliseconds for a connection with its login\n"
    "max_value        64MiB    larger values are refused; up to 256MiB\n"
    "threads          1        each has one connection to each node, 1 to 16\n"
    "breaker_failures 3        in a row, after which requests to a node fail at once\n"
    "breaker_cooldown 1000     milliseconds until one request may try the node again\n"
    "known            200000   keys that are remembered: a cache need not ask for them\n"
    "scan             0        seconds between looks at the keys of others; 0: never, not at "
    "open\n";

namespace {

constexpr uint64_t kMostValue = uint64_t{256} << 20;
constexpr uint64_t kMostMilliseconds = 3'600'000;
constexpr uint64_t kMostSeconds = uint64_t{100} * 365 * 86'400;
constexpr const char *kNames[] = {"nodes",
                                  "username",
                                  "password",
                                  "password_file",
                                  "tls",
                                  "tls_ca",
                                  "tls_cert",
                                  "tls_key",
                                  "tls_name",
                                  "prefix",
                                  "ttl",
                                  "timeout",
                                  "connect_timeout",
                                  "max_value",
                                  "threads",
                                  "breaker_failures",
                                  "breaker_cooldown",
                                  "known",
                                  "scan"};

// A name or an address, and no URL: a password in one would reach the resolver and messages.
bool is_host(std::string_view text) {
    constexpr std::string_view kOthers = "-_.:%";
    return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
        return std::isalnum(c) != 0 || kOthers.find(c) != std::string_view::npos;
    });
}

bool read_nodes(std::string_view text, std::vector<Address> *out) {
    while (true) {
        const size_t at = text.find(',');
        Address address;
        if (!read_address(text.substr(0, at), &address) || !is_host(address.host)) return false;
        out->push_back(address);
        if (at == std::string_view::npos) return true;
        text.remove_prefix(at + 1);
    }
}

// Braces would put all keys into one slot, and the others have a meaning in SCAN's pattern.
bool is_prefix(std::string_view text) {
    constexpr std::string_view kOthers = "_-.:/@";
    return text.size() <= 200 && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
               return std::isalnum(c) != 0 || kOthers.find(c) != std::string_view::npos;
           });
}

bool read_password(const std::string &path, std::string *out) {
    std::ifstream file(path);
    return static_cast<bool>(std::getline(file, *out)) && !out->empty();
}

bool read_within(std::string_view text, uint64_t least, uint64_t most, uint64_t *out) {
    return read_count(text, out) && *out >= least && *out <= most;
}

bool read_milliseconds(std::string_view text, uint64_t *out_ns) {
    if (!read_within(text, 1, kMostMilliseconds, out_ns)) return false;
    *out_ns *= 1'000'000;
    return true;
}

// Empty, or the values that the option takes.
const char *read_text(std::string_view name, const char *value, Options *out) {
    const bool is_empty = *value == '\0';
    if (name == "nodes") {
        return read_nodes(value, &out->nodes)
                   ? ""
                   : "host:port, several with commas, and no URL or password";
    }
    if (name == "username") return (out->username = value, is_empty ? "a name" : "");
    if (name == "password") return (out->password = value, is_empty ? "not empty" : "");
    if (name == "password_file") {
        out->password_file = value;
        return read_password(value, &out->password) ? "" : "a file whose first line is a password";
    }
    if (name == "tls") {
        out->uses_tls = std::string_view(value) == "yes";
        return out->uses_tls || std::string_view(value) == "no" ? "" : "yes or no";
    }
    if (name == "tls_ca") return (out->tls_ca = value, is_empty ? "a path" : "");
    if (name == "tls_cert") return (out->tls_cert = value, is_empty ? "a path" : "");
    if (name == "tls_key") return (out->tls_key = value, is_empty ? "a path" : "");
    if (name == "tls_name") return (out->tls_name = value, is_empty ? "a host's name" : "");
    out->prefix = value;
    return is_prefix(value) ? "" : "up to 200 letters, digits and _ - . : / @";
}

const char *read_number(std::string_view name, std::string_view value, Options *out) {
    uint64_t count = 0;
    if (name == "ttl" || name == "scan") {
        if (!read_within(value, 0, kMostSeconds, &count)) return "seconds, or 0";
        if (name == "ttl") out->ttl_ms = count * 1'000;
        if (name == "scan") out->scan_ns = count * 1'000'000'000;
        return "";
    }
    constexpr const char *kMilliseconds = "1 to 3600000 milliseconds";
    if (name == "timeout") return read_milliseconds(value, &out->timeout_ns) ? "" : kMilliseconds;
    if (name == "connect_timeout") {
        return read_milliseconds(value, &out->connect_timeout_ns) ? "" : kMilliseconds;
    }
    if (name == "breaker_cooldown") {
        return read_milliseconds(value, &out->cooldown_ns) ? "" : kMilliseconds;
    }
    if (name == "max_value") {
        uint64_t *most = &out->max_value_bytes;
        return read_size(value, most) && *most >= 1 && *most <= kMostValue
                   ? ""
                   : "a size of at most 256MiB, such as 64MiB";
    }
    if (name == "known") {
        return read_within(value, 0, 100'000'000, &out->known_count) ? "" : "a number to 100000000";
    }
    const uint64_t most = name == "threads" ? 16 : 1'000'000;
    if (!read_within(value, 1, most, &count)) {
        return most == 16 ? "a number from 1 to 16" : "a number from 1 to 1000000";
    }
    (name == "threads" ? out->thread_count : out->failure_count) = static_cast<uint32_t>(count);
    return "";
}

const char *read_one(std::string_view name, const char *value, Options *out) {
    const auto *first_number = std::find(std::begin(kNames), std::end(kNames), "ttl");
    const auto *at = std::find(std::begin(kNames), std::end(kNames), name);
    return at < first_number ? read_text(name, value, out) : read_number(name, value, out);
}

quire_status check_together(const Options &options, const bool *is_given, quire_error *error) {
    auto given = [is_given](std::string_view name) {
        return is_given[std::find(std::begin(kNames), std::end(kNames), name) - kNames];
    };
    if (!given("nodes")) {
        return fail(error, QUIRE_E_ARG,
                    "option 'nodes' is missing: host:port of some nodes of the cluster");
    }
    if (given("password") && given("password_file")) {
        return fail(error, QUIRE_E_ARG, "give 'password' or 'password_file', not both");
    }
    if (given("username") && options.password.empty()) {
        return fail(error, QUIRE_E_ARG, "option 'username' needs 'password' or 'password_file'");
    }
    for (const char *name : {"tls_ca", "tls_cert", "tls_key", "tls_name"}) {
        if (options.uses_tls || !given(name)) continue;
        return fail(error, QUIRE_E_ARG, "option '%s' needs 'tls' to be 'yes'", name);
    }
    if (given("tls_cert") != given("tls_key")) {
        return fail(error, QUIRE_E_ARG, "give both 'tls_cert' and 'tls_key', or neither");
    }
    return QUIRE_OK;
}

}  // namespace

quire_status read_options(const quire_store_desc &desc, Options *out, quire_error *error) {
    bool is_given[std::size(kNames)] = {};
    for (uint32_t i = 0; i < desc.option_count; ++i) {
        auto option = element_of<quire_store_option>(desc.options, i, desc.option_stride);
        if (option.name == nullptr || option.value == nullptr) {
            return fail(error, QUIRE_E_ARG, "option %u has no name or no value", i);
        }
        const std::string_view name = option.name;
        const auto *known = std::find(std::begin(kNames), std::end(kNames), name);
        if (known == std::end(kNames)) {
            return fail(error, QUIRE_E_ARG,
                        "there is no option '%.64s'; the plugin's help lists them", option.name);
        }
        if (is_given[known - kNames]) {
            return fail(error, QUIRE_E_ARG, "option '%s' is given twice", *known);
        }
        is_given[known - kNames] = true;
        const char *wanted = read_one(name, option.value, out);
        if (*wanted == '\0') continue;
        // A password may have been given under the wrong name.
        return fail(error, QUIRE_E_ARG, "option '%s' is wrong; it must be %s", *known, wanted);
    }
    return check_together(*out, is_given, error);
}

std::string current_password(const Options &options) {
    struct stat found{};
    std::string password;
    const char *path = options.password_file.c_str();
    const bool is_file = *path != '\0' && ::stat(path, &found) == 0 && S_ISREG(found.st_mode);
    return is_file && read_password(path, &password) ? password : options.password;
}

}  // namespace quire::valkey

// SPDX-License-Identifier: Apache-2.0

#include "subject.hpp"

#include <dlfcn.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace quire::stores {

namespace {

namespace fs = std::filesystem;

quire_store_query_fn query = nullptr;
const quire_store_api *found_table = nullptr;

void *allocate(void *, uint64_t size_bytes, uint64_t alignment) {
    void *pointer = nullptr;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment,
                       size_bytes) != 0) {
        return nullptr;
    }
    return pointer;
}

void release(void *, void *pointer, uint64_t, uint64_t) { std::free(pointer); }

void log(void *, int32_t, const char *component, const char *message) {
    std::fprintf(stderr, "%s: %s\n", component, message);
}

std::string path_of_subject() {
    const std::string &store = options().store;
    if (store.find('/') != std::string::npos) return store;
    const char *folder = std::getenv("QUIRE_PLUGIN_PATH");
    return std::string(folder != nullptr ? folder : ".") + "/quire_store_" + store + ".so";
}

// A stream of numbers from one (splitmix64: Steele, Lea and Flood, OOPSLA 2014).
uint64_t next_number(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

void fill_from(uint64_t seed, void *out, uint64_t size_bytes) {
    auto *at = static_cast<unsigned char *>(out);
    while (size_bytes != 0) {
        uint64_t number = next_number(&seed);
        uint64_t part = size_bytes < sizeof number ? size_bytes : sizeof number;
        std::memcpy(at, &number, part);
        at += part;
        size_bytes -= part;
    }
}

void cut(Request *request, const std::vector<uint64_t> &cuts) {
    uint64_t at = 0;
    for (uint64_t size_bytes : cuts) {
        request->pieces.push_back({request->bytes.data() + at, size_bytes});
        at += size_bytes;
    }
    request->pieces.push_back({request->bytes.data() + at, request->bytes.size() - at});
    request->raw.pieces = request->pieces.data();
    request->raw.piece_count = static_cast<uint32_t>(request->pieces.size());
}

}  // namespace

Options &options() {
    static Options options;
    return options;
}

std::string load_subject() {
    const std::string path = path_of_subject();
    void *module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) return dlerror();
    query = reinterpret_cast<quire_store_query_fn>(dlsym(module, QUIRE_STORE_ENTRY));
    if (query == nullptr) return path + " does not export " QUIRE_STORE_ENTRY;
    quire_host_info host = host_info();
    Error error;
    if (query(&host, &found_table, &error) != QUIRE_OK) return error.message;
    if (found_table == nullptr || found_table->struct_size < sizeof(quire_store_api)) {
        return path + " hands out no table, or one that is too short";
    }
    return {};
}

std::string promised_name() {
    std::string name = fs::path(path_of_subject()).filename();
    const std::string prefix = "quire_store_", suffix = ".so";
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) return {};
    return name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
}

const quire_store_api &api() { return *found_table; }
const quire_store_api *table() { return found_table; }
quire_store_query_fn query_function() { return query; }

quire_host_info host_info() {
    quire_host_info host{};
    host.struct_size = sizeof host;
    host.abi_major = QUIRE_STORE_ABI_MAJOR;
    host.abi_minor = QUIRE_STORE_ABI_MINOR;
    host.allocate = allocate;
    host.release = release;
    host.log = log;
    return host;
}

void must(quire_status status, const quire_error &error) {
    if (status == QUIRE_OK) return;
    throw std::runtime_error("status " + std::to_string(status) + ": " + error.message);
}

void expect_refused(quire_status status, const quire_error &error, quire_status expected) {
    EXPECT_EQ(status, expected) << error.message;
    EXPECT_EQ(error.status, expected);
    EXPECT_NE(error.message[0], 0) << "a refusal says why";
}

Place::Place(Settings more) {
    std::string made = (fs::temp_directory_path() / "quire-store-XXXXXX").string();
    if (mkdtemp(made.data()) == nullptr) throw std::runtime_error("no folder " + made);
    folder_ = made;
    for (const auto &[name, value] : options().settings) {
        bool is_replaced = false;
        for (const auto &other : more) is_replaced |= other.first == name;
        if (is_replaced) continue;
        std::string filled = value;
        if (size_t at = filled.find("{dir}"); at != std::string::npos) {
            filled.replace(at, 5, folder_);
        }
        settings_.emplace_back(name, filled);
    }
    settings_.insert(settings_.end(), more.begin(), more.end());
}

Place::~Place() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

quire_status Place::try_open(uint32_t flags, quire_store **out, quire_error *error) const {
    std::vector<quire_store_option> given;
    for (const auto &[name, value] : settings_) given.push_back({name.c_str(), value.c_str()});
    quire_store_desc desc{};
    desc.struct_size = sizeof desc;
    desc.flags = flags;
    desc.options = given.data();
    desc.option_count = static_cast<uint32_t>(given.size());
    desc.option_stride = sizeof(quire_store_option);
    return api().open(&desc, out, error);
}

quire_store_label label_of(uint64_t key, uint64_t model, uint64_t tenant) {
    quire_store_label label{};
    fill_from(key * 2 + 1, label.key, sizeof label.key);
    fill_from(model * 2 + 1'000'003, label.fingerprint, sizeof label.fingerprint);
    if (tenant != 0) fill_from(tenant * 2 + 2'000'003, label.name_space, sizeof label.name_space);
    return label;
}

bool same(const quire_store_label &a, const quire_store_label &b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

Bytes value_of(const quire_store_label &label, uint64_t size_bytes) {
    uint64_t seed = size_bytes;
    for (size_t i = 0; i < sizeof label; i += sizeof seed) {
        uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const char *>(&label) + i, sizeof word);
        seed ^= word;
        seed = next_number(&seed);
    }
    Bytes bytes(size_bytes);
    fill_from(seed, bytes.data(), bytes.size());
    return bytes;
}

Request put_request(uint64_t cookie, const quire_store_label &label, Bytes value,
                    const std::vector<uint64_t> &cuts) {
    Request request = other_request(cookie, QUIRE_STORE_PUT, label);
    request.bytes = std::move(value);
    cut(&request, cuts);
    return request;
}

Request get_request(uint64_t cookie, const quire_store_label &label, uint64_t size_bytes,
                    const std::vector<uint64_t> &cuts) {
    Request request = other_request(cookie, QUIRE_STORE_GET, label);
    request.bytes.resize(size_bytes, 0xEE);
    cut(&request, cuts);
    return request;
}

Request other_request(uint64_t cookie, uint32_t kind, const quire_store_label &label) {
    Request request;
    request.raw.kind = kind;
    request.raw.cookie = cookie;
    request.raw.label = label;
    return request;
}

Store::Store(const Place &place, uint32_t flags) {
    Error error;
    must(place.try_open(flags, &handle_, &error), error);
}

Store::~Store() {
    if (handle_ == nullptr) return;
    Error error;
    EXPECT_EQ(api().close_wait(handle_, UINT64_MAX, &error), QUIRE_OK) << error.message;
}

void Store::close() {
    Error error;
    must(api().close_wait(handle_, options().patience_s * uint64_t{1'000'000'000}, &error), error);
    handle_ = nullptr;
}

quire_store_info Store::info() const {
    quire_store_info info{};
    info.struct_size = sizeof info;
    Error error;
    must(api().get_info(handle_, &info, &error), error);
    return info;
}

quire_store_stats Store::stats() const {
    quire_store_stats stats{};
    stats.struct_size = sizeof stats;
    Error error;
    must(api().get_stats(handle_, &stats, &error), error);
    return stats;
}

std::vector<quire_store_answer> Store::reap() {
    quire_store_answer answers[16];
    uint32_t count = 0;
    Error error;
    must(api().reap(handle_, answers, 16, sizeof *answers, &count, &error), error);
    if (count > 16) throw std::runtime_error("more answers than there was room for");
    std::vector<quire_store_answer> kept;
    for (uint32_t i = 0; i < count; ++i) {
        if (answers[i].outcome == QUIRE_STORE_NOTICE_GONE) {
            gone.push_back(answers[i].label);
        } else if (answers[i].outcome == QUIRE_STORE_NOTICE_LOST) {
            has_lost = true;
        } else {
            kept.push_back(answers[i]);
        }
    }
    return kept;
}

bool Store::wait() const {
    const int descriptor = api().descriptor == nullptr ? -1 : api().descriptor(handle_);
    if (descriptor < 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return true;
    }
    pollfd asked{descriptor, POLLIN, 0};
    return poll(&asked, 1, static_cast<int>(options().patience_s * 1000)) == 1;
}

std::vector<quire_store_answer> Store::run(std::vector<Request> &requests) {
    std::vector<quire_store_request> raw;
    for (const Request &request : requests) raw.push_back(request.raw);
    std::vector<quire_store_answer> answers;
    size_t submitted = 0;
    const auto begin = std::chrono::steady_clock::now();
    while (answers.size() < requests.size()) {
        if (submitted < raw.size()) {
            uint32_t taken = 0;
            Error error;
            must(api().submit(handle_, raw.data() + submitted,
                              static_cast<uint32_t>(raw.size() - submitted), sizeof raw[0], &taken,
                              &error),
                 error);
            submitted += taken;
        }
        if (!wait()) throw std::runtime_error("the store fell silent");
        for (const quire_store_answer &answer : reap()) answers.push_back(answer);
        if (std::chrono::steady_clock::now() - begin >
            std::chrono::seconds(2 * options().patience_s)) {
            throw std::runtime_error("an answer is missing");
        }
    }
    return answers;
}

quire_store_answer Store::put(const quire_store_label &label, const Bytes &value) {
    std::vector<Request> requests;
    requests.push_back(put_request(1, label, value));
    return run(requests).front();
}

quire_store_answer Store::get(const quire_store_label &label, uint64_t size_bytes, Bytes *value) {
    std::vector<Request> requests;
    requests.push_back(get_request(2, label, size_bytes));
    quire_store_answer answer = run(requests).front();
    if (value != nullptr) *value = requests.front().bytes;
    return answer;
}

quire_store_answer Store::ask(uint32_t kind, const quire_store_label &label) {
    std::vector<Request> requests;
    requests.push_back(other_request(3, kind, label));
    return run(requests).front();
}

uint8_t Store::find(const quire_store_label &label) const {
    uint8_t found = 99;
    Error error;
    must(api().find(handle_, &label, 1, sizeof label, &found, &error), error);
    return found;
}

std::vector<quire_store_record> Store::list(uint32_t capacity) const {
    constexpr size_t kMost = 100'000;  // far more than any test puts
    std::vector<quire_store_record> all;
    std::vector<quire_store_record> some(capacity);
    uint64_t cursor = 0;
    while (true) {
        uint32_t count = 0;
        Error error;
        must(api().list(handle_, &cursor, some.data(), capacity, sizeof some[0], &count, &error),
             error);
        if (count == 0) return all;
        if (count > capacity) throw std::runtime_error("more records than there was room for");
        all.insert(all.end(), some.begin(), some.begin() + count);
        if (all.size() > kMost) throw std::runtime_error("the list does not end");
    }
}

}  // namespace quire::stores

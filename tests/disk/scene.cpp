// SPDX-License-Identifier: Apache-2.0

#include "scene.hpp"

#include <poll.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace quire::disk::tests {

namespace {

constexpr int kPatienceMs = 60'000;  // longer is a hang

uint64_t mixed(uint64_t number) {  // splitmix64
    number += 0x9e3779b97f4a7c15;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
    number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
    return number ^ (number >> 31);
}

std::unique_ptr<Store> open_store(const Options &options, std::shared_ptr<Memory> memory,
                                  std::unique_ptr<DataIo> io, quire_error *error) {
    std::unique_ptr<Directory> directory;
    std::unique_ptr<Store> store;
    if (memory != nullptr) {
        directory = make_directory(std::move(memory));
        if (io == nullptr) io = make_inline_io();
    } else if (open_directory({options.directory, !options.must_exist, options.direct},
                              &directory) != 0) {
        return nullptr;
    }
    Store::open(options, std::move(directory), std::move(io), &store, error);
    return store;
}

}  // namespace

Options small_options(const std::string &directory) {
    Options options;
    options.directory = directory;
    options.capacity_bytes = 1024 * kKiB;
    options.segment_bytes = 64 * kKiB;
    options.thread_count = 1;
    return options;
}

quire_store_label label_of(uint64_t number, uint8_t model, uint8_t tenant) {
    quire_store_label label{};
    for (uint64_t i = 0; i < 4; ++i) {
        uint64_t word = mixed(number * 4 + i);
        std::memcpy(label.key + 8 * i, &word, sizeof word);
    }
    std::memset(label.fingerprint, model, sizeof label.fingerprint);
    std::memset(label.name_space, tenant, sizeof label.name_space);
    return label;
}

std::string key_of(const quire_store_label &label) {
    return {reinterpret_cast<const char *>(label.key), sizeof label.key};
}

Bytes value_of(uint64_t number, uint64_t version, uint64_t size_bytes) {
    Bytes value(size_bytes);
    uint64_t state = mixed(number) ^ mixed(version + 1'000'000) ^ size_bytes;
    for (uint64_t i = 0; i < size_bytes; i += 8) {
        uint64_t word = mixed(state + i);
        std::memcpy(value.data() + i, &word, std::min<uint64_t>(8, size_bytes - i));
    }
    return value;
}

Folder::Folder(bool in_memory) {
    const char *base = std::getenv("TMPDIR");
    if (in_memory && std::filesystem::is_directory("/dev/shm")) base = "/dev/shm";
    path_ = std::string(base != nullptr ? base : "/tmp") + "/quire-disk-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder " + path_);
}

Folder::~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::unique_ptr<Session> Session::open(const Options &options, quire_error *error) {
    return open(options, nullptr, error);
}

std::unique_ptr<Session> Session::open(const Options &options, std::shared_ptr<Memory> memory,
                                       quire_error *error) {
    std::unique_ptr<Store> store = open_store(options, std::move(memory), nullptr, error);
    if (store == nullptr) return nullptr;
    return std::unique_ptr<Session>(new Session(std::move(store)));
}

Session::Session(const Options &options) : Session(options, nullptr) {}

Session::Session(const Options &options, std::shared_ptr<Memory> memory,
                 std::unique_ptr<DataIo> io) {
    quire_error error{};
    error.struct_size = sizeof error;
    store_ = open_store(options, std::move(memory), std::move(io), &error);
    if (store_ == nullptr) throw std::runtime_error(std::string("open: ") + error.message);
}

bool Session::wait() {
    pollfd waiting{store_->descriptor(), POLLIN, 0};
    return ::poll(&waiting, 1, kPatienceMs) == 1;
}

bool Session::reap(std::vector<quire_store_answer> *answers) {
    quire_store_answer found[16];
    uint32_t count = store_->reap(found, 16, sizeof *found);
    for (uint32_t i = 0; i < count; ++i) {
        if (found[i].outcome == QUIRE_STORE_NOTICE_GONE)
            gone.insert(key_of(found[i].label));
        else if (found[i].outcome == QUIRE_STORE_NOTICE_LOST)
            has_lost = true;
        else
            answers->push_back(found[i]);
    }
    return count != 0;
}

quire_store_answer Session::run(quire_store_request request) {
    request.cookie = next_cookie_++;
    if (store_->submit(&request, 1, sizeof request) != 1) throw std::runtime_error("not taken");
    std::vector<quire_store_answer> answers;
    while (answers.empty()) {
        if (!wait()) throw std::runtime_error("a request was not answered in time");
        reap(&answers);
    }
    while (reap(&answers)) {
    }
    return answers.front();
}

quire_store_answer Session::put(const quire_store_label &label, const Bytes &value) {
    quire_store_piece piece{const_cast<uint8_t *>(value.data()), value.size()};
    quire_store_request request{};
    request.kind = QUIRE_STORE_PUT;
    request.label = label;
    request.pieces = &piece;
    request.piece_count = 1;
    return run(request);
}

std::optional<Bytes> Session::get(const quire_store_label &label, uint64_t size_bytes,
                                  quire_store_answer *answer) {
    Bytes value(size_bytes);
    quire_store_piece piece{value.data(), value.size()};
    quire_store_request request{};
    request.kind = QUIRE_STORE_GET;
    request.label = label;
    request.pieces = &piece;
    request.piece_count = 1;
    quire_store_answer got = run(request);
    if (answer != nullptr) *answer = got;
    if (got.outcome != QUIRE_STORE_DONE) return std::nullopt;
    return value;
}

std::optional<Bytes> Session::get(const quire_store_label &label) {
    quire_store_answer answer{};
    std::optional<Bytes> value = get(label, 0, &answer);
    if (answer.outcome != QUIRE_STORE_SIZE) return value;
    return get(label, answer.size_bytes);
}

quire_store_answer Session::ask(uint32_t kind, const quire_store_label &label) {
    quire_store_request request{};
    request.kind = kind;
    request.label = label;
    return run(request);
}

bool Session::has(const quire_store_label &label) {
    uint8_t found = 0;
    store_->find(&label, 1, sizeof label, &found);
    return found == QUIRE_STORE_PRESENT;
}

std::vector<quire_store_record> Session::list() {
    std::vector<quire_store_record> all;
    uint64_t cursor = 0;
    quire_store_record records[7];
    while (uint32_t count = store_->list(&cursor, records, 7, sizeof *records)) {
        all.insert(all.end(), records, records + count);
    }
    return all;
}

}  // namespace quire::disk::tests

// SPDX-License-Identifier: Apache-2.0
//
// throughput: how fast the disk store puts and gets large values, beside plain writes and reads of
// the same sizes on the same disk, with as many in flight, in turns.
//
//   throughput FOLDER [--json] [--total-mib N] [--depth N] [--rounds N] [--io auto|uring|threads]
//
// The plain side has one file of the same size as the values, written with pwrite and read with
// pread by `depth` threads: with O_DIRECT into an allocated file, and through the page cache, with
// one fdatasync at the end. The store's puts end with a FLUSH, so both sides end with the bytes on
// the disk. Each round runs all sides one after another; the table has the medians.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "disk/store.hpp"

namespace {

using namespace quire::disk;

struct Settings {
    std::string folder;
    bool is_json = false;
    uint64_t total_mib = 4096;
    uint32_t depth = 8;
    uint32_t rounds = 3;
    std::string io = "auto";
};

[[noreturn]] void give_up(const std::string &why) {
    std::fprintf(stderr, "throughput: %s\n", why.c_str());
    std::exit(1);
}

double seconds_of(const std::function<void()> &work) {
    auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Memory {
    explicit Memory(uint64_t size) : bytes(static_cast<uint8_t *>(std::aligned_alloc(4096, size))) {
        uint64_t state = 1;
        for (uint64_t i = 0; i < size; i += 8) {
            state = state * 6364136223846793005 + 1442695040888963407;
            std::memcpy(bytes + i, &state, 8);
        }
    }
    ~Memory() { std::free(bytes); }
    uint8_t *bytes;
};

// `depth` threads move the parts of a file, each part once.
void move_plainly(const Settings &settings, int file, uint64_t size, uint64_t count, bool writes) {
    std::atomic<uint64_t> next{0};
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<Memory>> memories;
    for (uint32_t i = 0; i < settings.depth; ++i)
        memories.push_back(std::make_unique<Memory>(size));
    for (uint32_t i = 0; i < settings.depth; ++i) {
        threads.emplace_back([&, i] {
            uint8_t *bytes = memories[i]->bytes;
            for (uint64_t part = next++; part < count; part = next++) {
                auto at = static_cast<off_t>(part * size);
                ssize_t moved =
                    writes ? ::pwrite(file, bytes, size, at) : ::pread(file, bytes, size, at);
                if (moved != static_cast<ssize_t>(size)) give_up("a plain transfer failed");
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    if (writes && ::fdatasync(file) != 0) give_up("fdatasync failed");
}

struct Speeds {
    double write_mib_s, read_mib_s;
};

Speeds run_plain(const Settings &settings, uint64_t size, bool is_direct) {
    std::string path = settings.folder + "/plain";
    uint64_t count = (settings.total_mib << 20) / size;
    int flags = O_RDWR | O_CREAT | O_TRUNC | (is_direct ? O_DIRECT : 0);
    int file = ::open(path.c_str(), flags, 0600);
    if (file < 0) give_up("cannot open " + path);
    if (::fallocate(file, 0, 0, static_cast<off_t>(size * count)) != 0) give_up("no room");
    double wrote = seconds_of([&] { move_plainly(settings, file, size, count, true); });
    // Read from the disk, not from memory.
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    double read = seconds_of([&] { move_plainly(settings, file, size, count, false); });
    ::close(file);
    ::unlink(path.c_str());
    auto mib = static_cast<double>(size * count) / (1 << 20);
    return {mib / wrote, mib / read};
}

class Client {
 public:
    Client(const Settings &settings, uint64_t size, Store *store)
        : store_(store), size_(size), depth_(settings.depth) {
        for (uint32_t i = 0; i < depth_; ++i) memories_.push_back(std::make_unique<Memory>(size));
    }

    // Runs `count` requests of this kind, `depth` at a time, each with a buffer of its own.
    void run(uint32_t kind, uint64_t count) {
        uint64_t started = 0, ended = 0;
        for (; started < std::min<uint64_t>(depth_, count); ++started)
            submit(kind, started, started);
        while (ended < count) {
            pollfd waiting{store_->descriptor(), POLLIN, 0};
            ::poll(&waiting, 1, -1);
            quire_store_answer answers[16];
            uint32_t found = store_->reap(answers, 16, sizeof answers[0]);
            for (uint32_t i = 0; i < found; ++i) {
                if (answers[i].outcome != QUIRE_STORE_DONE) {
                    give_up("an answer has outcome " + std::to_string(answers[i].outcome));
                }
                ++ended;
                if (started < count) submit(kind, started++, answers[i].cookie);
            }
        }
    }

    void flush() {
        quire_store_request request{};
        request.kind = QUIRE_STORE_FLUSH;
        store_->submit(&request, 1, sizeof request);
        quire_store_answer answer{};
        while (store_->reap(&answer, 1, sizeof answer) == 0) {
            pollfd waiting{store_->descriptor(), POLLIN, 0};
            ::poll(&waiting, 1, -1);
        }
    }

 private:
    void submit(uint32_t kind, uint64_t number, uint64_t buffer) {
        quire_store_piece piece{memories_[buffer]->bytes, size_};
        quire_store_request request{};
        request.kind = kind;
        request.cookie = buffer;
        std::memcpy(request.label.key, &number, sizeof number);
        request.pieces = &piece;
        request.piece_count = 1;
        if (store_->submit(&request, 1, sizeof request) != 1) give_up("a request was not taken");
    }

    Store *const store_;
    const uint64_t size_;
    const uint32_t depth_;
    std::vector<std::unique_ptr<Memory>> memories_;
};

Speeds run_store(const Settings &settings, uint64_t size) {
    Options options;
    options.directory = settings.folder + "/store";
    options.segment_bytes = uint64_t{256} << 20;
    options.capacity_bytes = (settings.total_mib << 20) * 5 / 4 + (uint64_t{1} << 30);
    options.io = settings.io == "uring"     ? IoChoice::uring
                 : settings.io == "threads" ? IoChoice::threads
                                            : IoChoice::automatic;
    if (settings.io == "threads") options.thread_count = settings.depth;
    std::unique_ptr<Directory> directory;
    std::unique_ptr<Store> store;
    quire_error error{};
    error.struct_size = sizeof error;
    std::filesystem::remove_all(options.directory);
    if (open_directory({options.directory, true, options.direct}, &directory) != 0 ||
        Store::open(options, std::move(directory), nullptr, &store, &error) != QUIRE_OK) {
        give_up(error.message);
    }
    uint64_t count = (settings.total_mib << 20) / size;
    Client client(settings, size, store.get());
    double wrote = seconds_of([&] {
        client.run(QUIRE_STORE_PUT, count);
        client.flush();
    });
    double read = seconds_of([&] { client.run(QUIRE_STORE_GET, count); });
    store.reset();
    std::filesystem::remove_all(options.directory);
    auto mib = static_cast<double>(size * count) / (1 << 20);
    return {mib / wrote, mib / read};
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct Row {
    uint64_t size;
    const char *direction;
    double store, direct, buffered;
};

std::vector<Row> measure(const Settings &settings) {
    std::vector<Row> rows;
    for (uint64_t size : {uint64_t{1} << 20, uint64_t{2} << 20}) {
        std::map<std::string, std::vector<double>> found;
        for (uint32_t round = 0; round < settings.rounds; ++round) {
            Speeds store = run_store(settings, size);
            Speeds direct = run_plain(settings, size, true);
            Speeds buffered = run_plain(settings, size, false);
            found["sw"].push_back(store.write_mib_s), found["sr"].push_back(store.read_mib_s);
            found["dw"].push_back(direct.write_mib_s), found["dr"].push_back(direct.read_mib_s);
            found["bw"].push_back(buffered.write_mib_s), found["br"].push_back(buffered.read_mib_s);
            std::fprintf(
                stderr, "%llu MiB: store %.0f %.0f, direct %.0f %.0f, buffered %.0f %.0f\n",
                static_cast<unsigned long long>(size >> 20), store.write_mib_s, store.read_mib_s,
                direct.write_mib_s, direct.read_mib_s, buffered.write_mib_s, buffered.read_mib_s);
        }
        rows.push_back(
            {size, "put", median(found["sw"]), median(found["dw"]), median(found["bw"])});
        rows.push_back(
            {size, "get", median(found["sr"]), median(found["dr"]), median(found["br"])});
    }
    return rows;
}

void print(const Settings &settings, const std::vector<Row> &rows) {
    if (settings.is_json)
        std::printf("[");
    else
        std::printf("value   what  store MiB/s  O_DIRECT MiB/s  ratio  buffered MiB/s  ratio\n");
    for (const Row &row : rows) {
        auto mib = static_cast<unsigned long long>(row.size >> 20);
        if (settings.is_json) {
            std::printf(
                "%s{\"value_mib\": %llu, \"what\": \"%s\", \"store_mib_s\": %.0f, "
                "\"direct_mib_s\": %.0f, \"buffered_mib_s\": %.0f, \"ratio\": %.3f}",
                &row == rows.data() ? "" : ",\n ", mib, row.direction, row.store, row.direct,
                row.buffered, row.store / row.direct);
        } else {
            std::printf("%llu MiB   %s   %11.0f  %14.0f  %4.0f %%  %14.0f  %4.0f %%\n", mib,
                        row.direction, row.store, row.direct, 100 * row.store / row.direct,
                        row.buffered, 100 * row.store / row.buffered);
        }
    }
    if (settings.is_json) std::printf("]\n");
}

}  // namespace

int main(int count, char **arguments) {
    Settings settings;
    for (int i = 1; i < count; ++i) {
        std::string name = arguments[i];
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (name == "--json") {
            settings.is_json = true;
            continue;
        }
        if (name[0] != '-') {
            settings.folder = name;
            continue;
        }
        if (name == "--total-mib")
            settings.total_mib = std::strtoull(value, nullptr, 10);
        else if (name == "--depth")
            settings.depth = static_cast<uint32_t>(std::atoi(value));
        else if (name == "--rounds")
            settings.rounds = static_cast<uint32_t>(std::atoi(value));
        else if (name == "--io")
            settings.io = value;
        else
            give_up("there is no option " + name);
        ++i;
    }
    if (settings.folder.empty() || settings.depth == 0 || settings.rounds == 0) {
        give_up("FOLDER is missing, or --depth or --rounds is 0");
    }
    print(settings, measure(settings));
    return 0;
}

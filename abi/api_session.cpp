// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of session.h. The callbacks run without the cache's lock.

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "abi/cache_call.hpp"
#include "abi/key_list.hpp"

namespace {

// Calls a callback of the caller's. OK, or what it returned.
template <typename Call>
Status call_back(const char *what, Call call) {
    quire_status status = QUIRE_OK;
    try {
        status = call();
    } catch (...) {
        return fail(QUIRE_E_ARG, "the callback threw an exception");
    }
    if (status == QUIRE_OK) [[likely]]
        return Status{};
    if (known_failure(status)) return fail(status, what, static_cast<uint64_t>(-int64_t{status}));
    return fail(QUIRE_E_ARG, "the callback returned a status that is no failure of base.h");
}

// errno as a status.
Status file_status(int code, const char *what, quire_error *error) {
    if (code == 0) [[likely]]
        return Status{};
    error->domain = QUIRE_DOMAIN_OS;
    error->native_code = code;
    std::snprintf(error->message, sizeof error->message, ": %s", std::strerror(code));
    return fail(QUIRE_E_OS, what);
}

// Where a session goes: the caller's callback, or a file that is not yet in its place.
class Target {
 public:
    explicit Target(const quire_export_desc &desc) : desc_(desc) {}
    ~Target() {
        if (file_ >= 0) os::drop_new_file(file_, temporary_.c_str());
    }
    Target(const Target &) = delete;
    Target &operator=(const Target &) = delete;

    Status open(const char *path, quire_error *error) {
        path_ = path;
        // Unique among the threads of all processes that save to the same path.
        static std::atomic<uint64_t> count{0};
        temporary_ =
            path_ + ".new-" + std::to_string(os::process_id()) + "-" + std::to_string(++count);
        return file_status(os::create_file(temporary_.c_str(), &file_),
                           "the file cannot be created beside `path`", error);
    }
    Status write(const void *bytes, uint64_t size_bytes, quire_error *error) {
        if (file_ < 0) {
            return call_back("desc.write returned the failure -{}",
                             [&] { return desc_.write(desc_.user, bytes, size_bytes); });
        }
        return file_status(os::write_file(file_, bytes, size_bytes),
                           "the session cannot be written", error);
    }
    Status finish(quire_error *error) {
        if (file_ < 0) return Status{};
        int file = std::exchange(file_, -1);
        return file_status(os::place_new_file(file, temporary_.c_str(), path_.c_str()),
                           "the session cannot be brought to the disk", error);
    }

 private:
    const quire_export_desc &desc_;
    std::string path_;
    std::string temporary_;
    int file_ = -1;
};

// Where a session comes from: the caller's callback or a file.
class Origin {
 public:
    explicit Origin(const quire_import_desc &desc) : desc_(desc) {}
    ~Origin() {
        if (file_ >= 0) os::close_file(file_);
    }
    Origin(const Origin &) = delete;
    Origin &operator=(const Origin &) = delete;

    Status open(const char *path, quire_error *error) {
        return file_status(os::open_file(path, &file_, &file_bytes_), "`path` cannot be read",
                           error);
    }
    // A file has exactly the session's bytes.
    Status check_size(uint64_t total_bytes) const {
        if (file_ < 0 || file_bytes_ == total_bytes) return Status{};
        return fail(QUIRE_E_ARG, "damaged session: the file has {} bytes, and the session {}",
                    file_bytes_, total_bytes);
    }
    Status read(void *bytes, uint64_t size_bytes, quire_error *error) {
        if (file_ < 0) {
            return call_back("desc.read returned the failure -{}",
                             [&] { return desc_.read(desc_.user, bytes, size_bytes); });
        }
        bool has_ended = false;
        QUIRE_TRY(file_status(os::read_file(file_, bytes, size_bytes, &has_ended),
                              "`path` cannot be read", error));
        return has_ended ? fail(QUIRE_E_ARG, "damaged session: the file ends too early") : Status{};
    }

 private:
    const quire_import_desc &desc_;
    uint64_t file_bytes_ = 0;
    int file_ = -1;
};

template <typename Desc>
SessionIdentity identity_of(const Desc &desc) {
    SessionIdentity as;
    std::memcpy(as.fingerprint, desc.fingerprint, sizeof as.fingerprint);
    std::memcpy(as.name_space, desc.name_space, sizeof as.name_space);
    return as;
}

void tell(const SessionHeader &header, quire_session_info *info) {
    if (info == nullptr) return;
    quire_session_info full{};
    full.known_tokens = header.known;
    full.computed_tokens = header.computed;
    full.blocks = header.block_count;
    full.size_bytes = header.total_bytes;
    write(full, info);
}

Status check_callback(bool has_callback, bool has_path, const char *missing, const char *extra) {
    if (has_callback == !has_path) return Status{};
    return fail(QUIRE_E_ARG, has_path ? extra : missing);
}

// Export. -----------------------------------------------------------------------------------------

// Lends the sequence to the export, once its last step has run.
quire_status begin_export(const char *function, quire_cache *cache, quire_seq seq,
                          const SessionIdentity &as, SessionExport *e, bool *begun,
                          uint64_t timeout_ns, quire_error *error) {
    uint64_t start = os::monotonic_ns();
    for (;;) {
        Cache::Awaited awaited;
        quire_status status =
            changing_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
                QUIRE_TRY(core.begin_export(seq, as, e, &awaited, sink));
                *begun = awaited.fence == nullptr;
                return Status{};
            });
        if (status != QUIRE_OK || *begun) return status;
        status = guard(function, error, [&](quire_error *sink) -> Status {
            return call<&quire_backend_api::fence_wait_host>(
                *awaited.api, sink, awaited.fence, awaited.value, os::time_left(start, timeout_ns));
        });
        if (status != QUIRE_OK) return status;
    }
}

// Takes piece after piece and hands each on. path: NULL, or where the file belongs.
quire_status write_all(const char *function, quire_cache *cache, SessionExport *e, Target *target,
                       const char *path, quire_error *error) {
    quire_status opened = guard(function, error, [&](quire_error *sink) -> Status {
        return path != nullptr ? target->open(path, sink) : Status{};
    });
    if (opened != QUIRE_OK) return opened;
    for (;;) {
        const uint8_t *bytes = nullptr;
        uint64_t size_bytes = 0;
        quire_status status =
            cache_call(function, cache, error, [&](Cache &, quire_error *sink) -> Status {
                return e->next(&bytes, &size_bytes, sink);
            });
        if (status != QUIRE_OK) return status;
        status = guard(function, error, [&](quire_error *sink) -> Status {
            return size_bytes != 0 ? target->write(bytes, size_bytes, sink) : target->finish(sink);
        });
        if (status != QUIRE_OK || size_bytes == 0) return status;
    }
}

quire_status export_sequence(const char *function, quire_cache *cache, quire_seq seq,
                             const quire_export_desc *desc, bool has_path, const char *path,
                             quire_session_info *info, uint64_t timeout_ns, quire_error *error) {
    quire_export_desc full{};
    std::unique_ptr<SessionExport> e;
    Target target(full);
    quire_status status = guard(function, error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(cache, "cache is NULL"));
        QUIRE_TRY(not_inherited(cache->process));
        QUIRE_TRY(read(desc, &full));
        if (info != nullptr) QUIRE_TRY(check_output(info));
        QUIRE_TRY(check_callback(full.write != nullptr, has_path, "desc.write is NULL",
                                 "desc.write must be NULL: the session goes to the file"));
        e = std::make_unique<SessionExport>(&cache->instance->host);
        return has_path ? need(path, "path is NULL") : Status{};
    });
    if (status != QUIRE_OK) return status;
    bool begun = false;
    status =
        begin_export(function, cache, seq, identity_of(full), e.get(), &begun, timeout_ns, error);
    if (status != QUIRE_OK) return status;
    status = write_all(function, cache, e.get(), &target, path, error);
    if (status == QUIRE_OK) tell(e->header(), info);
    // Frees what the export has on the devices, under the lock, because a cache that is destroyed
    // next must be off its devices.
    quire_status ended = lasting_call(function, cache, nullptr, [&](Cache &, quire_error *) {
        e->end();
        e.reset();
        return Status{};
    });
    // An abandoned cache's devices may never answer: what the export holds there stays.
    if (ended != QUIRE_OK) e.release();
    return status;
}

// Import. -----------------------------------------------------------------------------------------

Status read_head(SessionImport *import, const Geometry &geometry, Origin *origin,
                 const SessionIdentity &as, quire_error *error) {
    uint8_t first[sizeof(SessionHeader)];
    QUIRE_TRY(origin->read(first, sizeof first, error));
    SessionHead &head = import->head();
    QUIRE_TRY(head.read_header(first, geometry));
    QUIRE_TRY(origin->check_size(head.header().total_bytes));
    for (;;) {
        uint8_t *at = nullptr;
        uint64_t count = 0;
        QUIRE_TRY(head.extend(&at, &count));
        if (count == 0) break;
        QUIRE_TRY(origin->read(at, count, error));
    }
    QUIRE_TRY(head.check(geometry));
    return import->check_identity(as);
}

quire_status read_blocks(const char *function, quire_cache *cache, SessionImport *import,
                         Origin *origin, quire_error *error) {
    std::vector<uint8_t> bytes;
    while (!import->at_end()) {
        quire_status status = guard(function, error, [&](quire_error *sink) -> Status {
            uint64_t size_bytes = 0;
            QUIRE_TRY(import->next_bytes(&size_bytes));
            bytes.resize(size_bytes);
            constexpr uint64_t first = sizeof(CanonicalHeader);
            QUIRE_TRY(origin->read(bytes.data(), first, sink));
            QUIRE_TRY(import->check_header(bytes.data()));
            QUIRE_TRY(origin->read(bytes.data() + first, size_bytes - first, sink));
            return import->check(bytes.data(), size_bytes);
        });
        if (status != QUIRE_OK) return status;
        status = cache_call(function, cache, error, [&](Cache &, quire_error *) {
            import->fill(bytes.data());
            return Status{};
        });
        if (status != QUIRE_OK) return status;
    }
    return guard(function, error, [&](quire_error *) { return import->check_total(); });
}

// The caller's request.
struct ImportRequest {
    quire_import_desc desc{};
    quire_seq_desc seq{};
    quire_key keys[kMaxKeys];
    Geometry geometry;  // the cache's, as of now: only its sizes can change
    std::unique_ptr<SessionImport> import;
};

Status read_request(quire_cache *cache, const quire_import_desc *desc, bool has_path,
                    const quire_seq *out, const quire_session_info *info, ImportRequest *request) {
    QUIRE_TRY(need(cache, "cache is NULL"));
    QUIRE_TRY(not_inherited(cache->process));
    QUIRE_TRY(read(desc, &request->desc));
    if (info != nullptr) QUIRE_TRY(check_output(info));
    QUIRE_TRY(need(out, "out is NULL"));
    QUIRE_TRY(check_callback(request->desc.read != nullptr, has_path, "desc.read is NULL",
                             "desc.read must be NULL: the session comes from the file"));
    if (request->desc.seq == nullptr) return Status{};
    QUIRE_TRY(read(request->desc.seq, &request->seq));
    return read_keys(request->seq, request->keys);
}

quire_status import_sequence(const char *function, quire_cache *cache,
                             const quire_import_desc *desc, bool has_path, const char *path,
                             quire_seq *out, quire_session_info *info, quire_error *error) {
    ImportRequest request;
    Origin origin(request.desc);
    std::unique_ptr<SessionImport> &import = request.import;
    quire_status status = guard(function, error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(read_request(cache, desc, has_path, out, info, &request));
        if (!has_path) return Status{};
        QUIRE_TRY(need(path, "path is NULL"));
        return origin.open(path, sink);
    });
    if (status != QUIRE_OK) return status;
    status = changing_call(function, cache, error, [&](Cache &core, quire_error *) -> Status {
        QUIRE_TRY(core.check_sessions());
        request.geometry = core.geometry();
        import.reset(new SessionImport(core.make_import()));
        return Status{};
    });
    if (status != QUIRE_OK) return status;
    status = guard(function, error, [&](quire_error *sink) -> Status {
        return read_head(import.get(), request.geometry, &origin, identity_of(request.desc), sink);
    });
    if (status != QUIRE_OK) return status;
    bool short_of_blocks = false;
    status = changing_call(function, cache, error, [&](Cache &core, quire_error *sink) -> Status {
        QUIRE_TRY(
            core.begin_import(import.get(), request.seq, request.keys, &short_of_blocks, sink));
        return short_of_blocks ? Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0} : Status{};
    });
    if (status != QUIRE_OK) return status;
    status = read_blocks(function, cache, import.get(), &origin, error);
    quire_status ended = lasting_call(function, cache, error, [&](Cache &, quire_error *) {
        import->end(status == QUIRE_OK, out);
        return Status{};
    });
    if (status == QUIRE_OK && ended == QUIRE_OK) tell(import->head().header(), info);
    return status != QUIRE_OK ? status : ended;
}

}  // namespace

extern "C" {

quire_status quire_seq_export_wait(quire_cache *cache, quire_seq seq, const quire_export_desc *desc,
                                   quire_session_info *info, uint64_t timeout_ns,
                                   quire_error *error) {
    return export_sequence("seq_export_wait", cache, seq, desc, false, nullptr, info, timeout_ns,
                           error);
}

quire_status quire_seq_import(quire_cache *cache, const quire_import_desc *desc, quire_seq *out,
                              quire_session_info *info, quire_error *error) {
    return import_sequence("seq_import", cache, desc, false, nullptr, out, info, error);
}

quire_status quire_seq_save_wait(quire_cache *cache, quire_seq seq, const quire_export_desc *desc,
                                 const char *path, quire_session_info *info, uint64_t timeout_ns,
                                 quire_error *error) {
    return export_sequence("seq_save_wait", cache, seq, desc, true, path, info, timeout_ns, error);
}

quire_status quire_seq_restore(quire_cache *cache, const quire_import_desc *desc, const char *path,
                               quire_seq *out, quire_session_info *info, quire_error *error) {
    return import_sequence("seq_restore", cache, desc, true, path, out, info, error);
}

}  // extern "C"

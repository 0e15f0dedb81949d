// SPDX-License-Identifier: Apache-2.0
//
// faulted_session: one sequence through all four calls of session.h, by a table whose calls fail
// repeatedly before they succeed.
//
// Threads: one.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "faulted_api.hpp"

namespace quire::test {

class FaultedSession {
 public:
    // seq: a sequence with computed tokens; like: describes one with its keys.
    FaultedSession(const quire_api &table, quire_cache *cache, quire_seq seq,
                   const quire_seq_desc &like)
        : api_(table), cache_(cache), like_(like) {
        g_faults->begin_try = [this] { at_ = 0; };
        error_.struct_size = sizeof error_;
        exported_ = export_of(seq);
        save_and_restore(seq);
        auto restore = restore_desc();
        restore.read = read;
        restore.user = this;
        ok(api_.seq_import(cache_, &restore, &back_, &info_, &error_));
        EXPECT_EQ(export_of(back_), exported_);
        EXPECT_EQ(export_of(restored_), exported_);
    }
    ~FaultedSession() { g_faults->begin_try = nullptr; }
    FaultedSession(const FaultedSession &) = delete;
    FaultedSession &operator=(const FaultedSession &) = delete;

    quire_seq back() const { return back_; }
    quire_seq restored() const { return restored_; }

 private:
    using Bytes = std::vector<unsigned char>;

    void ok(quire_status status) { ASSERT_EQ(status, QUIRE_OK) << error_.message; }

    static quire_status write(void *user, const void *from, uint64_t size) {
        auto *self = static_cast<FaultedSession *>(user);
        self->stream_.resize(self->at_ + size);
        std::memcpy(self->stream_.data() + self->at_, from, size);
        self->at_ += size;
        return QUIRE_OK;
    }
    static quire_status read(void *user, void *to, uint64_t size) {
        auto *self = static_cast<FaultedSession *>(user);
        if (size > self->stream_.size() - self->at_) return QUIRE_E_OS;
        if (size != 0) std::memcpy(to, self->stream_.data() + self->at_, size);
        self->at_ += size;
        return QUIRE_OK;
    }

    Bytes export_of(quire_seq seq) {
        auto save = described<quire_export_desc>();
        save.user = this;
        save.write = write;
        ok(api_.seq_export_wait(cache_, seq, &save, &info_, UINT64_MAX, &error_));
        EXPECT_EQ(info_.size_bytes, stream_.size());
        return stream_;
    }
    quire_import_desc restore_desc() {
        auto desc = described<quire_import_desc>();
        desc.seq = &like_;
        return desc;
    }
    void save_and_restore(quire_seq seq) {
        std::string folder = (std::filesystem::temp_directory_path() / "quire-faulted-XXXXXX");
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        const std::string file = folder + "/one.session";
        auto save = described<quire_export_desc>();
        ok(api_.seq_save_wait(cache_, seq, &save, file.c_str(), &info_, UINT64_MAX, &error_));
        auto restore = restore_desc();
        ok(api_.seq_restore(cache_, &restore, file.c_str(), &restored_, &info_, &error_));
        for (const auto &entry : std::filesystem::directory_iterator(folder)) {
            EXPECT_EQ(entry.path(), file) << "a refused call leaves no file";
        }
        std::filesystem::remove_all(folder);
    }

    const quire_api &api_;
    quire_cache *cache_;
    quire_seq_desc like_;
    quire_error error_{};
    quire_session_info info_ = described<quire_session_info>();
    quire_seq back_ = 0, restored_ = 0;
    Bytes stream_, exported_;
    size_t at_ = 0;
};

}  // namespace quire::test

// SPDX-License-Identifier: Apache-2.0

#include "memory_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quire::disk::tests {

namespace {

void apply(Bytes *bytes, const Operation &operation, uint64_t most_bytes) {
    if (operation.change == Change::resize) {
        if (most_bytes == UINT64_MAX) bytes->resize(operation.offset);
        return;
    }
    uint64_t size = std::min<uint64_t>(operation.bytes.size(), most_bytes);
    if (size == 0) return;
    bytes->resize(std::max<uint64_t>(bytes->size(), operation.offset + size));
    std::copy_n(operation.bytes.begin(), size,
                bytes->begin() + static_cast<std::ptrdiff_t>(operation.offset));
}

class MemoryFile : public File {
 public:
    MemoryFile(std::shared_ptr<Memory> memory, std::shared_ptr<Memory::Inode> inode)
        : memory_(std::move(memory)), inode_(std::move(inode)) {}
    ~MemoryFile() override {
        std::lock_guard lock(memory_->mutex);
        if (locked_ != 0) inode_->lock_count -= locked_;
    }

    int64_t read(void *out, uint64_t size_bytes, uint64_t offset) override {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call("read"); fault < 0) return fault;
        const Bytes &bytes = inode_->bytes;
        if (offset >= bytes.size()) return 0;
        uint64_t size = std::min<uint64_t>(size_bytes, bytes.size() - offset);
        std::memcpy(out, bytes.data() + offset, size);
        return static_cast<int64_t>(size);
    }

    int64_t write(const void *in, uint64_t size_bytes, uint64_t offset) override {
        std::lock_guard lock(memory_->mutex);
        int64_t fault = memory_->call("write");
        if (fault < 0) return fault;
        if (fault > 0) size_bytes = size_bytes / 2 / 512 * 512;
        const auto *from = static_cast<const uint8_t *>(in);
        change({Change::write, "", inode_->number, offset, Bytes(from, from + size_bytes)});
        return static_cast<int64_t>(size_bytes);
    }

    int sync() override {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call("sync"); fault < 0) return static_cast<int>(fault);
        memory_->operations.push_back({Change::sync, "", inode_->number, 0, {}});
        return 0;
    }

    int allocate(uint64_t size_bytes) override { return resize("allocate", size_bytes); }
    int truncate(uint64_t size_bytes) override { return resize("truncate", size_bytes); }

    int measure(FileSize *out) override {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call("measure"); fault < 0) return static_cast<int>(fault);
        *out = {inode_->bytes.size(), inode_->bytes.size()};
        return 0;
    }

    // 0 or -EWOULDBLOCK.
    int take_lock(bool is_shared) {
        std::lock_guard lock(memory_->mutex);
        int &count = inode_->lock_count;
        if (is_shared ? count < 0 : count != 0) return -EWOULDBLOCK;
        locked_ = is_shared ? 1 : -1;
        count += locked_;
        return 0;
    }

 private:
    int resize(const char *kind, uint64_t size_bytes) {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call(kind); fault < 0) return static_cast<int>(fault);
        change({Change::resize, "", inode_->number, size_bytes, {}});
        return 0;
    }
    void change(Operation operation) {
        apply(&inode_->bytes, operation, UINT64_MAX);
        memory_->operations.push_back(std::move(operation));
    }

    const std::shared_ptr<Memory> memory_;
    const std::shared_ptr<Memory::Inode> inode_;
    int locked_ = 0;
};

class MemoryDirectory : public Directory {
 public:
    explicit MemoryDirectory(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

    int list(std::vector<std::string> *names) override {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call("list"); fault < 0) return static_cast<int>(fault);
        for (const auto &[name, inode] : memory_->names) names->push_back(name);
        return 0;
    }

    int open(const std::string &name, OpenMode mode, std::unique_ptr<File> *out) override {
        return open_as(name, mode == OpenMode::create, mode == OpenMode::create, out);
    }

    int open_locked(const std::string &name, OpenMode mode, std::unique_ptr<File> *out) override {
        if (int result = open_as(name, mode == OpenMode::create, false, out)) return result;
        return static_cast<MemoryFile *>(out->get())->take_lock(mode == OpenMode::read_only);
    }

    int remove(const std::string &name) override {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call("remove"); fault < 0) return static_cast<int>(fault);
        if (memory_->names.erase(name) == 0) return -ENOENT;
        memory_->operations.push_back({Change::remove, name, 0, 0, {}});
        return 0;
    }

    int sync() override {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call("sync_directory"); fault < 0) {
            return static_cast<int>(fault);
        }
        memory_->operations.push_back({Change::sync_directory, "", 0, 0, {}});
        return 0;
    }

 private:
    int open_as(const std::string &name, bool creates, bool is_new, std::unique_ptr<File> *out) {
        std::lock_guard lock(memory_->mutex);
        if (int64_t fault = memory_->call("open"); fault < 0) return static_cast<int>(fault);
        std::shared_ptr<Memory::Inode> inode = memory_->find(name);
        if (inode != nullptr && is_new) return -EEXIST;
        if (inode == nullptr && !creates) return -ENOENT;
        if (inode == nullptr) {
            inode = std::make_shared<Memory::Inode>();
            inode->number = memory_->next_file++;
            memory_->names[name] = inode;
            memory_->operations.push_back({Change::create, name, inode->number, 0, {}});
        }
        *out = std::make_unique<MemoryFile>(memory_, inode);
        return 0;
    }

    const std::shared_ptr<Memory> memory_;
};

class InlineIo : public DataIo {
 public:
    void start(Transfer *transfer) override {
        transfer->result = 0;
        for (;;) {
            auto at = static_cast<uint64_t>(transfer->result);
            uint64_t left = transfer->size_bytes - at;
            int64_t moved = 0;
            switch (transfer->kind) {
                case TransferKind::sync:
                    moved = transfer->file->sync();
                    break;
                case TransferKind::read:
                    moved = transfer->file->read(transfer->bytes + at, left, transfer->offset + at);
                    break;
                case TransferKind::write:
                    moved =
                        transfer->file->write(transfer->bytes + at, left, transfer->offset + at);
                    break;
            }
            if (is_over(*transfer, moved)) break;
        }
        transfer->done(transfer);
    }
    const char *name() const override { return "inline"; }
};

// The changes of one file, or of the directory, before `at` and since its last sync.
std::vector<Operation> unsynced_of(const std::vector<Operation> &operations, uint64_t at,
                                   uint64_t file) {
    std::vector<Operation> found;
    for (uint64_t i = 0; i < at; ++i) {
        const Operation &each = operations[i];
        bool is_name = each.change == Change::create || each.change == Change::remove;
        if (file == UINT64_MAX) {
            if (is_name) found.push_back(each);
            if (each.change == Change::sync_directory) found.clear();
        } else if (each.file == file) {
            if (each.change == Change::write || each.change == Change::resize) {
                found.push_back(each);
            }
            if (each.change == Change::sync) found.clear();
        }
    }
    return found;
}

}  // namespace

std::unique_ptr<Directory> make_directory(std::shared_ptr<Memory> memory) {
    return std::make_unique<MemoryDirectory>(std::move(memory));
}

std::unique_ptr<DataIo> make_inline_io() { return std::make_unique<InlineIo>(); }

std::shared_ptr<Memory::Inode> Memory::find(const std::string &name) {
    auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
}

int64_t Memory::call(const char *kind) {
    if (is_paused) return 0;
    if (!only_call.empty() && only_call != kind) return 0;
    if (left_ == UINT64_MAX || left_-- != 0) return 0;
    left_ = is_forever_ ? 0 : UINT64_MAX;
    bool is_short = fault_ == Fault::short_write;
    if (is_short && std::string("write") != kind) return 0;
    has_failed_ = true;
    if (is_short) return 1;
    return fault_ == Fault::no_space ? -ENOSPC : -EIO;
}

void Memory::fail_at(uint64_t n, Fault fault, bool forever) {
    std::lock_guard lock(mutex);
    left_ = n;
    fault_ = fault;
    is_forever_ = forever;
    has_failed_ = false;
}

void Memory::fail_never() {
    std::lock_guard lock(mutex);
    left_ = UINT64_MAX;
}

uint64_t Memory::operation_count() const {
    std::lock_guard lock(mutex);
    return operations.size();
}

Operation Memory::operation(uint64_t n) const {
    std::lock_guard lock(mutex);
    return operations[n];
}

uint64_t Memory::total_bytes() const {
    std::lock_guard lock(mutex);
    uint64_t total = 0;
    for (const auto &[name, inode] : names) total += inode->bytes.size();
    return total;
}

std::map<std::string, Bytes> Memory::files() const {
    std::lock_guard lock(mutex);
    std::map<std::string, Bytes> found;
    for (const auto &[name, inode] : names) found[name] = inode->bytes;
    return found;
}

void Memory::set_file(const std::string &name, Bytes bytes) {
    std::lock_guard lock(mutex);
    auto inode = std::make_shared<Inode>();
    inode->number = next_file++;
    inode->bytes = bytes;
    names[name] = inode;
    first_[name] = std::make_shared<Inode>(*inode);
}

std::vector<Operation> Memory::unsynced(uint64_t at, uint64_t file) const {
    std::lock_guard lock(mutex);
    return unsynced_of(operations, at, file);
}

std::shared_ptr<Memory> Memory::after(const Crash &crash) const {
    std::lock_guard lock(mutex);
    std::map<uint64_t, Bytes> bytes;
    std::map<std::string, uint64_t> numbers;
    for (const auto &[name, inode] : first_) {
        bytes[inode->number] = inode->bytes;
        numbers[name] = inode->number;
    }
    std::map<uint64_t, uint64_t> unsynced_count;  // by file; UINT64_MAX: the directory
    std::map<uint64_t, uint64_t> seen;
    auto scope_of = [](const Operation &each) {
        bool is_name = each.change == Change::create || each.change == Change::remove;
        return is_name || each.change == Change::sync_directory ? UINT64_MAX : each.file;
    };
    for (uint64_t i = 0; i < crash.at; ++i) {
        const Operation &each = operations[i];
        bool is_sync = each.change == Change::sync || each.change == Change::sync_directory;
        if (is_sync) {
            unsynced_count[scope_of(each)] = 0;
        } else {
            ++unsynced_count[scope_of(each)];
            ++seen[scope_of(each)];
        }
    }
    std::map<uint64_t, uint64_t> passed;
    for (uint64_t i = 0; i < crash.at; ++i) {
        const Operation &each = operations[i];
        if (each.change == Change::sync || each.change == Change::sync_directory) continue;
        uint64_t scope = scope_of(each);
        uint64_t synced = seen[scope] - unsynced_count[scope];
        uint64_t number = passed[scope]++;
        bool is_names = scope == UINT64_MAX;
        uint64_t kept = is_names ? crash.kept_names : crash.kept;
        if (!is_names && crash.only_file != UINT64_MAX && crash.only_file != scope) {
            kept = UINT64_MAX;
        }
        bool is_kept = number < synced || kept == UINT64_MAX || number - synced < kept;
        bool is_torn = !is_kept && !is_names && number - synced == kept;
        if (is_names && is_kept) {
            if (each.change == Change::create) numbers[each.name] = each.file;
            if (each.change == Change::remove) numbers.erase(each.name);
        } else if (is_kept) {
            apply(&bytes[scope], each, UINT64_MAX);
        } else if (is_torn && each.change == Change::write) {
            apply(&bytes[scope], each, crash.torn_bytes);
        }
    }
    auto memory = std::make_shared<Memory>();
    for (const auto &[name, number] : numbers) memory->set_file(name, bytes[number]);
    return memory;
}

}  // namespace quire::disk::tests

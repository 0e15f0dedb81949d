// SPDX-License-Identifier: Apache-2.0

#include "disk/answers.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace quire::disk {

int Answers::open() {
    gone_.resize(kMostNotices);
    descriptor_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return descriptor_ < 0 ? -errno : 0;
}

Answers::~Answers() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void Answers::update() {
    if (is_readable_ == !is_empty()) return;
    is_readable_ = !is_readable_;
    uint64_t count = 1;
    // Neither can fail: the counter is 0 before the write, and 1 before the read.
    ssize_t moved = 0;
    do {
        moved = is_readable_ ? ::write(descriptor_, &count, sizeof count)
                             : ::read(descriptor_, &count, sizeof count);
    } while (moved < 0 && errno == EINTR);
}

void Answers::add(Request *finished) {
    finished_.push_back(finished);
    update();
}

void Answers::add_gone(const quire_store_label &label) {
    // Until LOST was reaped, the caller has to list anyway.
    if (has_lost_) return;
    if (gone_count_ == kMostNotices) {
        gone_count_ = 0;
        has_lost_ = true;
    } else {
        gone_[(first_gone_ + gone_count_++) % kMostNotices] = label;
    }
    update();
}

bool Answers::take(quire_store_answer *out, Request **freed) {
    *freed = finished_.pop();
    if (*freed != nullptr) {
        *out = (*freed)->answer;
    } else if (has_lost_) {
        *out = {};
        out->outcome = QUIRE_STORE_NOTICE_LOST;
        has_lost_ = false;
    } else if (gone_count_ != 0) {
        *out = {};
        out->outcome = QUIRE_STORE_NOTICE_GONE;
        out->label = gone_[first_gone_];
        first_gone_ = (first_gone_ + 1) % kMostNotices;
        --gone_count_;
    } else {
        return false;
    }
    update();
    return true;
}

}  // namespace quire::disk

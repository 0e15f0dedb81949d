// SPDX-License-Identifier: Apache-2.0

#include "transfer.hpp"

#include <algorithm>

#include "device.hpp"
#include "enqueue.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"
#include "shared/copies.hpp"

namespace quire::gpu {

namespace {

uint64_t piece_count(const quire_be_copy &one) {
    return one.size_bytes / kPieceBytes + (one.size_bytes % kPieceBytes != 0 ? 1 : 0);
}

// Collects pieces, and launches them all at once; where there are more than a list may have, or no
// room for one, as many as it or the arguments hold.
class Pieces {
 public:
    // total: of those that are going to be added.
    Pieces(Enqueue *enqueue, uint64_t total) : enqueue_(enqueue), left_(total) { find_room(); }

    quire_status add(const quire_be_copy &one, quire_error *error) {
        for (uint64_t done = 0; done < one.size_bytes; done += kPieceBytes) {
            CopyPiece *to = list_ != nullptr ? list_ : call_.pieces;
            to[count_++] = {one.dst + done, one.src + done,
                            std::min<uint64_t>(one.size_bytes - done, kPieceBytes)};
            if (count_ < most_) continue;
            if (quire_status status = flush(error)) return status;
        }
        return QUIRE_OK;
    }

    quire_status flush(quire_error *error) {
        if (count_ == 0) return QUIRE_OK;
        uint64_t count = count_;
        count_ = 0;
        quire_status status = enqueue_->launch(KernelName::copy, count, &call_.head, error);
        left_ -= count;
        if (list_ != nullptr) find_room();
        return status;
    }

 private:
    void find_room() {
        uint64_t wanted = std::min(left_, PieceRing::kMostTaken);
        call_.list = 0;
        list_ = wanted <= kMostPieces ? nullptr : enqueue_->take_pieces(wanted, &call_.list);
        most_ = list_ != nullptr ? wanted : kMostPieces;
    }

    Enqueue *enqueue_;
    uint64_t left_;
    CopyCall call_{};
    CopyPiece *list_ = nullptr;
    uint64_t most_ = kMostPieces;
    uint64_t count_ = 0;
};

// Collects copies for the driver, and gives them to it by as few calls as it takes. Those of one
// call of ours are independent, so their order does not matter.
class Batch {
 public:
    explicit Batch(Enqueue *enqueue) : enqueue_(enqueue) {}

    quire_status add(const quire_be_copy &one, quire_error *error) {
        if (one.size_bytes == 0) return QUIRE_OK;
        dsts_[count_] = one.dst;
        srcs_[count_] = one.src;
        sizes_bytes_[count_] = one.size_bytes;
        return ++count_ < kMostCopies ? QUIRE_OK : flush(error);
    }

    quire_status flush(quire_error *error) {
        if (count_ == 0) return QUIRE_OK;
        Copies copies = {dsts_, srcs_, sizes_bytes_, count_};
        count_ = 0;
        return enqueue_->copy(copies, error);
    }

 private:
    // 12 KiB of stack; and one of ROCm's versions goes wrong above 8,192 copies.
    static constexpr size_t kMostCopies = 512;

    Enqueue *enqueue_;
    uint64_t dsts_[kMostCopies], srcs_[kMostCopies];
    size_t sizes_bytes_[kMostCopies];
    size_t count_ = 0;
};

}  // namespace

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_copies(copies, count, error)) return status;
    if (count == 0) return QUIRE_OK;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    const Borders &borders = queue->device->borders;
    uint64_t pieces_to_come = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (!borders.is_for_driver(copies[i])) pieces_to_come += piece_count(copies[i]);
    }
    Pieces pieces(&enqueue, pieces_to_come);
    Batch batch(&enqueue);
    for (uint32_t i = 0; i < count; ++i) {
        bool is_for_driver = borders.is_for_driver(copies[i]);
        quire_status status =
            is_for_driver ? batch.add(copies[i], error) : pieces.add(copies[i], error);
        if (status != QUIRE_OK) return status;
    }
    if (quire_status status = batch.flush(error)) return status;
    return pieces.flush(error);
}

quire_status fill(quire_be_queue *queue, uint64_t address, uint64_t size_bytes, uint32_t byte,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_fill(address, size_bytes, byte, error)) return status;
    if (size_bytes == 0) return QUIRE_OK;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    return enqueue.fill(address, static_cast<unsigned char>(byte), size_bytes, error);
}

}  // namespace quire::gpu

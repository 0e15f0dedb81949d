// SPDX-License-Identifier: Apache-2.0

#include "transfer.hpp"

#include <algorithm>

#include "device.hpp"
#include "enqueue.hpp"
#include "queue.hpp"

namespace quire::gpu {

namespace {

uint64_t piece_count(uint64_t size_bytes, uint64_t piece_bytes) {
    return size_bytes / piece_bytes + (size_bytes % piece_bytes != 0 ? 1 : 0);
}

// Copies between host memories always use the kernel: CUDA's own copy blocks until it has run.
bool is_for_driver(const quire_be_copy &one, uint64_t dma_bytes) {
    return one.kind != QUIRE_BE_COPY_H2H && one.size_bytes >= dma_bytes;
}

// Piece size of a fill: a copy's, or larger if a GPU cannot run that many pieces at once.
uint64_t piece_bytes_of(const quire_be_range *ranges, uint32_t count) {
    constexpr uint64_t kEnough = 4096;
    uint64_t sum_bytes = 0;
    for (uint32_t i = 0; i < count; ++i) sum_bytes += ranges[i].size_bytes;
    return (sum_bytes / (kEnough * kPieceBytes) + 1) * kPieceBytes;
}

// Collects pieces and launches them together. If there are more than a list may have, or no room
// for a list, each launch takes as many as the list or the arguments hold.
class Pieces {
 public:
    // kernel: copy or fill. total: how many pieces will be added.
    Pieces(Enqueue *enqueue, KernelName kernel, uint64_t piece_bytes, uint64_t total)
        : enqueue_(enqueue), kernel_(kernel), piece_bytes_(piece_bytes), left_(total) {
        find_room();
    }

    // src: for a fill, the byte.
    quire_status add(uint64_t dst, uint64_t src, uint64_t size_bytes, quire_error *error) {
        for (uint64_t left = size_bytes, piece = 0; left != 0; left -= piece) {
            uint64_t done = size_bytes - left;
            piece = std::min(left, piece_bytes_);
            BytePiece *to = list_ != nullptr ? list_ : call_.pieces;
            to[count_++] = {dst + done, kernel_ == KernelName::copy ? src + done : src, piece};
            if (count_ < most_) continue;
            if (quire_status status = flush(error)) return status;
        }
        return QUIRE_OK;
    }

    quire_status flush(quire_error *error) {
        if (count_ == 0) return QUIRE_OK;
        uint64_t count = count_;
        count_ = 0;
        quire_status status = enqueue_->launch(kernel_, count, &call_.head, error);
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
    KernelName kernel_;
    uint64_t piece_bytes_;
    uint64_t left_;
    PieceCall call_{};
    BytePiece *list_ = nullptr;
    uint64_t most_ = kMostPieces;
    uint64_t count_ = 0;
};

// Collects copies for the driver and submits them in as few calls as possible. The copies of one
// call are independent, so their order does not matter.
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
    // 12 KiB of stack; also, one ROCm version fails above 8,192 copies.
    static constexpr size_t kMostCopies = 512;

    Enqueue *enqueue_;
    uint64_t dsts_[kMostCopies], srcs_[kMostCopies];
    size_t sizes_bytes_[kMostCopies];
    size_t count_ = 0;
};

}  // namespace

quire_status enqueue_copies(Queue &queue, const quire_be_copy *copies, uint32_t count,
                            quire_error *error) {
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    uint64_t dma_bytes = queue.device->dma_bytes;
    uint64_t pieces_to_come = 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (is_for_driver(copies[i], dma_bytes)) continue;
        pieces_to_come += piece_count(copies[i].size_bytes, kPieceBytes);
    }
    Pieces pieces(&enqueue, KernelName::copy, kPieceBytes, pieces_to_come);
    Batch batch(&enqueue);
    for (uint32_t i = 0; i < count; ++i) {
        const quire_be_copy &one = copies[i];
        quire_status status = is_for_driver(one, dma_bytes)
                                  ? batch.add(one, error)
                                  : pieces.add(one.dst, one.src, one.size_bytes, error);
        if (status != QUIRE_OK) return status;
    }
    if (quire_status status = batch.flush(error)) return status;
    return pieces.flush(error);
}

quire_status enqueue_fill(Queue &queue, const quire_be_range *ranges, uint32_t count, uint32_t byte,
                          quire_error *error) {
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    if (count == 1 && ranges->size_bytes != 0) {
        auto value = static_cast<unsigned char>(byte);
        return enqueue.fill(ranges->address, value, ranges->size_bytes, error);
    }
    uint64_t piece_bytes = piece_bytes_of(ranges, count);
    uint64_t pieces_to_come = 0;
    for (uint32_t i = 0; i < count; ++i) {
        pieces_to_come += piece_count(ranges[i].size_bytes, piece_bytes);
    }
    Pieces pieces(&enqueue, KernelName::fill, piece_bytes, pieces_to_come);
    for (uint32_t i = 0; i < count; ++i) {
        quire_status status = pieces.add(ranges[i].address, byte, ranges[i].size_bytes, error);
        if (status != QUIRE_OK) return status;
    }
    return pieces.flush(error);
}

}  // namespace quire::gpu

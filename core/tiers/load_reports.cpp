// SPDX-License-Identifier: Apache-2.0

#include "core/tiers/load_reports.hpp"

#include <cstddef>
#include <cstring>

#include "core/base/hash.hpp"

namespace quire {

namespace {

uint64_t checksum(const uint8_t *bytes, uint64_t size_bytes) {
    ReportHeader header;
    std::memcpy(&header, bytes, sizeof header);
    header.checksum = 0;
    return XXH3_64bits_withSeed(bytes + sizeof header, size_bytes - sizeof header,
                                XXH3_64bits_withSeed(&header, sizeof header, 0));
}

}  // namespace

void seal_report(ReportHeader header, uint8_t *bytes) {
    header.magic = kReportMagic;
    header.version = kReportVersion;
    header.size_bytes = sizeof header + uint64_t{header.count} * sizeof(LoadOutcome);
    std::memcpy(bytes, &header, sizeof header);
    const uint64_t sum = checksum(bytes, header.size_bytes);
    std::memcpy(bytes + offsetof(ReportHeader, checksum), &sum, sizeof sum);
}

Status ReportReader::open(const uint8_t *bytes, uint64_t size_bytes) {
    if (size_bytes < sizeof header_) {
        return fail(QUIRE_E_ARG, "damaged report: {} bytes, but a header takes {}", size_bytes,
                    sizeof header_);
    }
    bytes_ = bytes;
    std::memcpy(&header_, bytes, sizeof header_);
    if (header_.magic != kReportMagic)
        return fail(QUIRE_E_ARG, "damaged report, or not a report: wrong magic");
    if (header_.size_bytes != size_bytes) {
        return fail(QUIRE_E_ARG, "damaged report: {} bytes, but its header says {}", size_bytes,
                    header_.size_bytes);
    }
    if (header_.checksum != checksum(bytes, size_bytes))
        return fail(QUIRE_E_ARG, "damaged report: its checksum does not match");
    if (header_.version != kReportVersion) {
        return fail(QUIRE_E_INCOMPATIBLE, "the report's version is {}, this library reads {}",
                    header_.version, kReportVersion);
    }
    bool fits = size_bytes == sizeof header_ + uint64_t{header_.count} * sizeof(LoadOutcome) &&
                header_.reserved0 == 0;
    for (uint32_t i = 0; fits && i < header_.count; ++i) fits = outcome(i).reserved0 == 0;
    if (fits) return Status{};
    return fail(QUIRE_E_ARG, "damaged report: {} bytes of {} outcomes, or a reserved field is used",
                size_bytes, header_.count);
}

LoadOutcome ReportReader::outcome(uint32_t i) const {
    LoadOutcome outcome;
    std::memcpy(&outcome, bytes_ + sizeof header_ + uint64_t{i} * sizeof outcome, sizeof outcome);
    return outcome;
}

Status KnownFollowers::check(const ReportHeader &header, uint64_t leader, uint32_t most,
                             uint32_t *follower) const {
    if (header.leader != leader)
        return fail(QUIRE_E_ARG, "foreign report: it is for another leader");
    *follower = 0;
    while (*follower < count_ && known_[*follower].identity != header.follower) ++*follower;
    if (*follower == count_ && count_ >= most) {
        return fail(QUIRE_E_ARG,
                    "the report is of another follower than the {} that have reported, and there "
                    "are no more",
                    count_);
    }
    const uint64_t last = *follower < count_ ? known_[*follower].number : 0;
    if (header.number > last) return Status{};
    return fail(QUIRE_E_ARG, "repeated report: number {}, but the follower's last one was {}",
                header.number, last);
}

void KnownFollowers::note(const ReportHeader &header, uint32_t follower) {
    known_[follower] = Known{header.follower, header.number};
    if (follower == count_) ++count_;
}

}  // namespace quire

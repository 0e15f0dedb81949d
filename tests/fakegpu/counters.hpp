// SPDX-License-Identifier: Apache-2.0
//
// counters: what a launch asks of memory and of the instructions that the dialect names, per kernel
// and call site.
//
// A request is one instruction of a warp. Lanes run one after another here, so their accesses are
// put together afterwards: between two barriers or collectives of a warp, the k-th access of each
// lane at a call site is one request. Lanes that leave a loop early still pair up; lanes that skip
// rounds of it pair with the wrong ones. The compiler may merge accesses that the source makes one
// by one, which this cannot see: report.py looks at its code.
//
//   sectors     aligned pieces of 32 bytes of global memory that a request touches
//   wavefronts  passes that a request to shared memory takes. 32 banks of 4 bytes each serve one
//               word per pass; lanes that want the same word share it. 16-byte accesses go by
//               quarters of a warp, 8-byte ones by halves, so that a pass moves at most 128 bytes.
//               Nsight Compute's documentation ("Metrics Decoder": request, sector, wavefront) and
//               the CUDA C++ Programming Guide ("Shared Memory") define these; hardware may need
//               fewer passes for 8-byte accesses of few lanes.
//   least       the units that the same bytes would need if they lay side by side
//
// 64 lanes are served as two, four or eight groups of consecutive lanes. AMD's GPUs choose the
// lanes of a group differently for 8 and 16 bytes, so wavefronts are an estimate there.
//
// Threads: a Recorder belongs to one running launch; Counters may be used by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

namespace fakegpu {

enum class Kind : uint8_t {
    global_load,
    global_store,
    global_atomic,
    global_copy,  // the reading half of an asynchronous copy
    shared_load,
    shared_store,
    shared_atomic,
    shared_copy,    // its writing half, which is no instruction
    shared_matrix,  // ldmatrix: each lane's 16 bytes
    matrix,         // products of small matrices
    shuffle,
    ballot,
    barrier,
    exponential,
    count_of_kinds,
};
const char *name_of(Kind kind);
inline bool is_global(Kind kind) { return kind <= Kind::global_copy; }
inline bool is_shared(Kind kind) { return kind > Kind::global_copy && kind < Kind::matrix; }
inline bool is_instruction(Kind kind) { return kind != Kind::shared_copy; }

// All requests of one kernel at one call site. Strings outlive the program's kernels.
struct SiteCount {
    const char *kernel;
    const char *file;  // its name without folders
    uint32_t line;
    Kind kind;
    uint32_t size_bytes;  // of a lane's access; 0: no memory
    uint64_t requests;
    uint64_t bytes;  // distinct ones of each request
    uint64_t units;  // sectors, wavefronts, or instructions
    uint64_t least;
};

class Counters {
 public:
    void add(const char *kernel, const SiteCount &count);
    void clear();
    std::vector<SiteCount> counts() const;
    // A line per kernel and one per site, as JSON.
    std::string json() const;

 private:
    mutable std::mutex mutex_;
    std::vector<SiteCount> counts_;
};

// What a launch does, added to `counters` at its end.
class Recorder {
 public:
    static constexpr uint32_t kMostLanes = 64, kMostWarps = 32;

    explicit Recorder(uint32_t warp_width) : width_(warp_width) {}

    void note(uint32_t warp, uint32_t lane, Kind kind, uint64_t address, uint32_t size_bytes,
              const std::source_location &where);
    // The warp's lanes meet: later accesses belong to other requests.
    void end_warp(uint32_t warp);
    void add_to(Counters *counters, const char *kernel);

 private:
    struct Request {
        uint64_t lanes = 0;  // one bit each
        uint64_t addresses[kMostLanes];
    };
    // A site's requests of one warp since its lanes met.
    struct Open {
        uint32_t made[kMostLanes] = {};  // accesses of each lane
        std::vector<Request> requests;
        uint32_t used = 0;
    };
    struct Site {
        std::source_location where;
        SiteCount count{};
        std::unique_ptr<Open> open[kMostWarps];
    };

    Site &site_of(Kind kind, uint32_t size_bytes, const std::source_location &where);
    void tally(const Request &request, SiteCount &count) const;

    uint32_t width_;
    std::unordered_map<uint64_t, uint32_t> index_;
    std::vector<Site> sites_;
    std::vector<uint32_t> touched_[kMostWarps];
};

}  // namespace fakegpu

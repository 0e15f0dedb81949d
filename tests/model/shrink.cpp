// SPDX-License-Identifier: Apache-2.0

#include "shrink.hpp"

#include <algorithm>

namespace quire::model {

namespace {

class Shrinker {
 public:
    Shrinker(Script script, const Fails &fails, uint32_t tries)
        : script_(std::move(script)), fails_(fails), tries_(tries) {}

    Script run() {
        size_t before = 0;
        do {
            before = size();
            for (size_t run = script_.size() / 2; run > 0; run /= 2) leave_out(run);
            for (size_t op = 1; op < script_.size(); ++op) lower(op);
        } while (tries_ != 0 && size() != before);
        return script_;
    }

 private:
    // Operations and all their numbers: shrinking makes this smaller.
    size_t size() const {
        size_t sum = script_.size();
        for (const Op &op : script_) {
            for (int arg : op.args) sum += static_cast<size_t>(std::max(arg, 0));
        }
        return sum;
    }

    bool take(const Script &candidate) {
        if (tries_ == 0) return false;
        --tries_;
        if (!fails_(candidate)) return false;
        script_ = candidate;
        return true;
    }

    void leave_out(size_t run) {
        for (size_t first = 1; first < script_.size();) {
            size_t last = std::min(first + run, script_.size());
            Script candidate(script_.begin(), script_.begin() + static_cast<long>(first));
            candidate.insert(candidate.end(), script_.begin() + static_cast<long>(last),
                             script_.end());
            if (!take(candidate)) first = last;
        }
    }

    void lower(size_t op) {
        for (size_t i = 0; i < script_[op].args.size(); ++i) {
            for (int value : {0, script_[op].args[i] / 2, script_[op].args[i] - 1}) {
                if (value < 0 || value >= script_[op].args[i]) continue;
                Script candidate = script_;
                candidate[op].args[i] = value;
                take(candidate);
            }
        }
    }

    Script script_;
    const Fails &fails_;
    uint32_t tries_;
};

}  // namespace

Script shrink(Script script, const Fails &fails, uint32_t tries) {
    return Shrinker(std::move(script), fails, tries).run();
}

}  // namespace quire::model

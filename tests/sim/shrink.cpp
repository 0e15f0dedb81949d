// SPDX-License-Identifier: Apache-2.0
//
// shrink: see shrink.hpp.
#include "shrink.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace sim {
namespace {

constexpr int kMostAttempts = 3000;

}  // namespace

std::string play_apart(const Script &script, const std::string &path, const std::string &known) {
    FILE *file = fopen(path.c_str(), "w");
    if (file == nullptr) return "";
    const std::string text = to_text(script);
    fwrite(text.data(), 1, text.size(), file);
    fclose(file);
    char self[4096];
    FILE *link = popen("readlink /proc/$PPID/exe", "r");
    self[0] = 0;
    if (link != nullptr) {
        if (fgets(self, sizeof self, link) == nullptr) self[0] = 0;
        pclose(link);
    }
    self[strcspn(self, "\n")] = 0;
    const std::string command = std::string(self) + " --replay " + path + " --quiet" + " --known " +
                                (known.empty() ? "none" : known) + " 2>/dev/null";
    FILE *out = popen(command.c_str(), "r");
    if (out == nullptr) return "";
    char line[256];
    std::string promise;
    while (fgets(line, sizeof line, out) != nullptr)
        if (strncmp(line, "finding: ", 9) == 0) promise = std::string(line + 9);
    pclose(out);
    while (!promise.empty() && promise.back() == '\n') promise.pop_back();
    return promise;
}

Script shrink(Script script, const std::string &promise, const std::string &path,
              const std::string &known) {
    int attempts = 0;
    const auto keeps = [&](const Script &smaller) {
        return ++attempts <= kMostAttempts && play_apart(smaller, path, known) == promise;
    };
    for (size_t chunk = std::max<size_t>(1, script.ops.size() / 2);;
         chunk = std::max<size_t>(1, chunk / 2)) {
        bool removed = false;
        for (size_t at = script.ops.size(); at > 0;) {
            const size_t begin = at > chunk ? at - chunk : 0;
            Script smaller = script;
            smaller.ops.erase(smaller.ops.begin() + static_cast<ptrdiff_t>(begin),
                              smaller.ops.begin() + static_cast<ptrdiff_t>(at));
            if (keeps(smaller)) {
                script = std::move(smaller);
                removed = true;
            }
            at = std::min(begin, script.ops.size());
        }
        if (chunk == 1 && !removed) break;
        if (attempts > kMostAttempts) break;
    }
    return script;
}

}  // namespace sim

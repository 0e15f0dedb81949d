// SPDX-License-Identifier: Apache-2.0

#include "events.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace quire::conformance {

namespace {

std::string name_of(const testing::TestInfo &info) {
    return std::string(info.test_suite_name()) + "." + info.name();
}

// "file_test.cpp:12: what was expected", without the builder's path.
std::string text_of(const testing::TestResult &result, bool has_failed) {
    std::string text;
    for (int i = 0; i < result.total_part_count(); ++i) {
        const testing::TestPartResult &part = result.GetTestPartResult(i);
        if (part.passed() || part.skipped() == has_failed) continue;
        if (!text.empty()) text += "\n";
        if (has_failed && part.file_name() != nullptr) {
            const char *slash = std::strrchr(part.file_name(), '/');
            text += slash != nullptr ? slash + 1 : part.file_name();
            text += ':';
            text += std::to_string(part.line_number());
            text += ": ";
        }
        text += part.message();
    }
    return text;
}

class Teller : public testing::EmptyTestEventListener {
 public:
    explicit Teller(int pipe) : pipe_(pipe) {}

    void OnTestStart(const testing::TestInfo &info) override {
        send(pipe_, {{"begin", name_of(info)}});
    }

    void OnTestEnd(const testing::TestInfo &info) override {
        const testing::TestResult &result = *info.result();
        Json event;
        event["end"] = name_of(info);
        event["outcome"] = result.Failed() ? "failed" : result.Skipped() ? "skipped" : "passed";
        event["seconds"] = static_cast<double>(result.elapsed_time()) / 1000.0;
        event["text"] = result.Passed() ? "" : text_of(result, result.Failed());
        event["figures"] = Json::object();
        for (int i = 0; i < result.test_property_count(); ++i) {
            const testing::TestProperty &property = result.GetTestProperty(i);
            event["figures"][property.key()] = std::strtod(property.value(), nullptr);
        }
        send(pipe_, event);
    }

 private:
    int pipe_;
};

}  // namespace

void send(int pipe, const Json &event) {
    std::string line = text_of(event) + "\n";
    for (size_t sent = 0; sent < line.size();) {
        ssize_t count = write(pipe, line.data() + sent, line.size() - sent);
        if (count <= 0) return;  // the reader has gone and does not need it
        sent += static_cast<size_t>(count);
    }
}

void tell_cases_to(int pipe) {
    testing::TestEventListeners &listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Teller(pipe));  // GoogleTest owns it
}

CaseResult case_of(const Json &end_event) {
    CaseResult result;
    result.name = end_event.value("end", "");
    std::string outcome = end_event.value("outcome", "");
    result.outcome = outcome == "passed"    ? Outcome::passed
                     : outcome == "skipped" ? Outcome::skipped
                                            : Outcome::failed;
    result.seconds = end_event.value("seconds", 0.0);
    result.text = end_event.value("text", "");
    result.figures = end_event.value("figures", Json::object());
    return result;
}

}  // namespace quire::conformance

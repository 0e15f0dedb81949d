// SPDX-License-Identifier: Apache-2.0

#include "runner.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>

#include "child.hpp"
#include "events.hpp"

namespace quire::conformance {

namespace {

class Runner {
 public:
    explicit Runner(const RunOptions &options) : options_(options) {}

    void ask_subject(RunResult *result);
    void run_cases(RunResult *result, const std::vector<std::string> &names);

 private:
    std::vector<std::string> arguments(const char *mode) const;
    void run_group(std::vector<std::string> names);
    // Runs `names` until all are done or the child ends; returns the remaining ones.
    std::vector<std::string> run_once(const std::vector<std::string> &names);
    void show_progress(const std::string &name) const;
    void print_line(const CaseResult &result) const;

    const RunOptions &options_;
    std::map<std::string, CaseResult> done_;
    size_t total_ = 0;
};

std::vector<std::string> Runner::arguments(const char *mode) const {
    std::vector<std::string> list = {mode, "--backend=" + options_.backend};
    if (!options_.readme.empty()) list.push_back("--readme=" + options_.readme);
    if (options_.is_short) list.push_back("--short");
    list.push_back("--seed=" + std::to_string(options_.seed));
    if (options_.is_huge) list.push_back("--huge");
    if (options_.is_fast_16bit) list.push_back("--fast-16bit");
    if (options_.is_inline) list.push_back("--inline");
    // A wait inside a case times out before the case is given up, so that the case can report it.
    list.push_back("--patience=" + std::to_string(std::max(1u, options_.patience_s / 2)));
    return list;
}

void Runner::ask_subject(RunResult *result) {
    ChildEnd end =
        run_child(arguments("--describe"), options_.patience_s, [&](const std::string &line) {
            Json event = Json::parse(line, nullptr, false);
            if (event.contains("subject")) result->subject = event["subject"];
            if (event.contains("cannot")) result->cannot = event["cannot"];
        });
    if (!end.is_clean) {
        result->subject = Json::object();
        result->cannot = "the process that describes the plugin " + end.how;
    } else if (result->subject.empty() && result->cannot.empty()) {
        result->cannot =
            "the process that describes the plugin printed no description: " + end.output;
    }
}

void Runner::show_progress(const std::string &name) const {
    if (isatty(STDERR_FILENO) == 0) return;
    std::fprintf(stderr, "\r\033[K[%zu/%zu] %.80s", done_.size() + 1, total_, name.c_str());
    std::fflush(stderr);
}

void Runner::print_line(const CaseResult &result) const {
    if (!options_.has_lines) return;
    nlohmann::ordered_json line = {
        {"case", result.name}, {"outcome", word_of(result.outcome)}, {"seconds", result.seconds}};
    if (result.outcome == Outcome::failed) line["text"] = result.text;
    for (const auto &[name, figure] : result.figures.items()) line[name] = figure;
    std::fprintf(stderr, "%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

std::string with_output(const std::string &how, const ChildEnd &end) {
    std::string text = "the process " + how;
    if (!end.output.empty()) text += "; its last output:\n" + end.output;
    return text;
}

std::vector<std::string> Runner::run_once(const std::vector<std::string> &names) {
    std::vector<std::string> left = names;
    std::string running;
    std::string ended;
    std::vector<std::string> words = arguments("--cases");
    std::string filter;
    for (const std::string &name : names) filter += (filter.empty() ? "" : ":") + name;
    words.push_back("--gtest_filter=" + filter);
    ChildEnd end = run_child(words, options_.patience_s, [&](const std::string &line) {
        Json event = Json::parse(line, nullptr, false);
        if (event.contains("begin")) {
            running = event.value("begin", "");
            show_progress(running);
        } else if (event.contains("end")) {
            CaseResult result = case_of(event);
            std::erase(left, result.name);
            ended = result.name;
            running.clear();
            print_line(result);
            done_[result.name] = std::move(result);
        }
    });
    auto blame = [&](const std::string &name, const std::string &how) {
        CaseResult &result = done_[name];
        result.name = name;
        result.outcome = Outcome::failed;
        result.text = with_output(how, end);
        std::erase(left, name);
        print_line(result);
    };
    std::string how = end.is_clean ? "exited during the case" : end.how;
    if (!running.empty()) {
        blame(running, how);
    } else if (!end.is_clean || !left.empty()) {
        // Between two cases, or after the last one: blames whatever the previous case left running.
        blame(ended.empty() ? left.front() : ended,
              (end.is_clean ? "exited early" : end.how) + std::string(" outside of a case"));
    }
    return left;
}

void Runner::run_group(std::vector<std::string> names) {
    while (!names.empty()) names = run_once(names);
}

void Runner::run_cases(RunResult *result, const std::vector<std::string> &names) {
    total_ = names.size();
    std::vector<std::string> group;
    auto suite_of = [](const std::string &name) { return name.substr(0, name.find('.')); };
    for (const std::string &name : names) {
        if (!group.empty() && suite_of(group.back()) != suite_of(name)) {
            run_group(std::exchange(group, {}));
        }
        group.push_back(name);
    }
    run_group(group);
    for (const std::string &name : names) result->cases.push_back(done_[name]);
    if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K");
}

bool is_disclaimed(const RunOptions &options, const Capability &one) {
    const auto &without = options.without;
    return std::find(without.begin(), without.end(), one.name) != without.end();
}

// The cases of everything that is offered, and of every `must`: those report what they lack.
std::vector<std::string> chosen_cases(const RunOptions &options, const Json &offered) {
    std::vector<std::string> chosen;
    for (const std::string &name : all_cases()) {
        if (!options.only.empty() && !matches(options.only, name)) continue;
        for (const Capability &one : capabilities()) {
            bool is_wanted = one.need == Need::must || offered.value(one.name, "").empty();
            if (!is_wanted || !matches(one.cases, name)) continue;
            chosen.push_back(name);
            break;
        }
    }
    return chosen;
}

// A command for a person to paste, or to run under a debugger.
std::string command_of(const RunOptions &options) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    std::string program =
        length > 0 ? std::string(path, static_cast<size_t>(length)) : "quire-conform";
    return program + " --cases --backend=" + options.backend +
           (options.is_fast_16bit ? " --fast-16bit" : "") + (options.is_inline ? " --inline" : "") +
           " --gtest_filter=";
}

std::string time_now() {
    char text[32];
    std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

}  // namespace

std::vector<std::string> all_cases() {
    std::vector<std::string> names;
    const testing::UnitTest &unit = *testing::UnitTest::GetInstance();
    for (int i = 0; i < unit.total_test_suite_count(); ++i) {
        const testing::TestSuite &suite = *unit.GetTestSuite(i);
        for (int j = 0; j < suite.total_test_count(); ++j) {
            names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(j)->name());
        }
    }
    return names;
}

RunResult run_suite(const RunOptions &options) {
    RunResult result;
    result.started = time_now();
    result.again = command_of(options);
    auto begin = std::chrono::steady_clock::now();
    Runner runner(options);
    runner.ask_subject(&result);
    Json offered = result.subject.value("offered", Json::object());
    for (const Capability &one : capabilities()) {
        if (!result.cannot.empty()) offered[one.name] = "the plugin could not be queried";
        if (is_disclaimed(options, one)) offered[one.name] = "excluded (--without)";
    }
    std::vector<std::string> names = chosen_cases(options, offered);
    if (result.cannot.empty()) runner.run_cases(&result, names);
    for (const CaseResult &one : result.cases) {
        result.random_shapes += one.figures.value("random_shapes", uint64_t{0});
        result.largest_error =
            std::max(result.largest_error, one.figures.value("largest_error", 0.0));
    }
    result.verdict = judge(capabilities(), offered, result.cases,
                           !options.only.empty() && result.cannot.empty());
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    result.seconds = seconds.count();
    return result;
}

}  // namespace quire::conformance

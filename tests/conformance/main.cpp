// SPDX-License-Identifier: Apache-2.0
//
// quire-conform: runs the conformance suite on one backend and reports the results.
//
//   quire-conform [BACKEND|path.so] [--report FILE.html] [--json] [--only PATTERN] ...
//   quire-conform --cases --backend=NAME [--readme=FILE] [GoogleTest's options]
//                        the cases in this process: for a debugger, and for Meson
//   quire-conform --describe, --events=N     the arguments of a child; see events.hpp
//
// Exit status   0 passed, 1 failed, 2 wrong usage.
//
// QUIRE_PLUGIN_PATH  the folder of quire_backend_NAME.so
// QUIRE_TEST_EFFORT  usual or few: as --short, with even fewer shapes; see tests/effort.hpp
// QUIRE_TEST_SEED    as --seed

#include <gtest/gtest.h>
#include <unwind.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "events.hpp"
#include "page.hpp"
#include "print.hpp"
#include "report_file.hpp"
#include "runner.hpp"
#include "subject.hpp"
#include "tests/effort.hpp"

namespace quire::conformance {

namespace {

constexpr int kPassed = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

struct Request {
    RunOptions run;
    std::string report;
    std::string library;  // its version, if it started this program
    bool json = false;
    bool list = false;
    bool check_list = false;
    bool cases = false;
    bool describe = false;
    int events = -1;
};

void add_options(CLI::App *app, Request *request) {
    RunOptions &run = request->run;
    app->add_option("backend,--backend", run.backend, "the backend's name, or the path of its .so")
        ->capture_default_str();
    app->add_option("--report", request->report, "write an HTML report to this file");
    app->add_flag("--json", request->json, "print JSON");
    app->add_option("--only", run.only, "run only the cases that match, such as 'Copy*:Fill*'");
    app->add_option("--without", run.without, "do not test this optional capability; repeatable")
        ->allow_extra_args(false);
    app->add_option("--patience", run.patience_s,
                    "seconds without output before a case counts as hung")
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
    app->add_flag("--short", run.is_short, "fewer random shapes");
    app->add_option("--seed", run.seed, "any number; chooses the shapes of a short run");
    app->add_flag("--huge", run.is_huge, "also copy more than 4 GiB");
    app->add_flag("--fast-16bit", run.is_fast_16bit, "open devices with FAST_16BIT");
    app->add_flag("--inline", run.is_inline, "open devices with INLINE");
    app->add_option("--readme", run.readme, "compare the matrix in this file with the answers");
    app->add_flag("--list", request->list, "print capabilities and cases, and run nothing");
    app->add_flag("--check-list", request->check_list,
                  "check that the capability list matches the cases");
    // For ./dev gpu: also those that ended count if the run is stopped.
    app->add_flag("--lines", run.has_lines)->group("");
    // Options that this program passes to itself.
    app->add_option("--library", request->library)->group("");
    app->add_flag("--cases", request->cases)->group("");
    app->add_flag("--describe", request->describe)->group("");
    app->add_option("--events", request->events)->group("");
    app->footer("example: quire-conform cpu --report cpu.html");
}

int refuse(const std::string &reason) {
    std::fprintf(stderr, "quire-conform: %s\n", reason.c_str());
    return kUsage;
}

int check_list() {
    std::vector<std::string> problems = list_problems(capabilities(), all_cases());
    for (const std::string &problem : problems) std::printf("%s\n", problem.c_str());
    return problems.empty() ? kPassed : kFailed;
}

int list() {
    for (const Capability &one : capabilities()) {
        std::printf("%-5s %s: %s\n", one.need == Need::must ? "must" : "may", one.name,
                    one.sentence);
        for (const std::string &name : all_cases()) {
            if (matches(one.cases, name)) std::printf("        %s\n", name.c_str());
        }
    }
    return kPassed;
}

// Runs in a child, or under a debugger.
int be_subject(const Request &request) {
    options() = {request.run.backend,       request.run.readme,   request.run.is_short,
                 request.run.seed,          request.run.is_huge,  request.run.patience_s,
                 request.run.is_fast_16bit, request.run.is_inline};
    std::string reason = load_subject();
    if (!reason.empty()) {
        if (request.events >= 0) send(request.events, {{"cannot", reason}});
        std::fprintf(stderr, "%s\n", reason.c_str());
        return kFailed;
    }
    if (request.describe) {
        try {
            send(request.events, {{"subject", describe()}});
        } catch (const std::exception &failure) {
            send(request.events, {{"cannot", failure.what()}});
        }
        return kPassed;
    }
    if (request.events >= 0) tell_cases_to(request.events);
    return RUN_ALL_TESTS();
}

// Empty, or what is wrong with the request.
std::string problem_of(const Request &request) {
    if (request.run.backend.empty()) return "name a backend";
    for (const std::string &name : request.run.without) {
        const Capability *found = nullptr;
        for (const Capability &one : capabilities()) {
            if (name == one.name) found = &one;
        }
        if (found == nullptr) return "there is no capability '" + name + "'; --list names them";
        if (found->need == Need::must) return "'" + name + "' is a must and cannot be left out";
    }
    bool is_used = request.run.only.empty();
    for (const std::string &name : all_cases()) is_used |= matches(request.run.only, name);
    if (!is_used) return "no case matches '" + request.run.only + "'; --list names them";
    return {};
}

int conform(const Request &request) {
    std::string problem = problem_of(request);
    if (!problem.empty()) return refuse(problem);
    ReportFile report(request.report);
    if (!report.problem().empty()) return refuse(report.problem());
    RunResult result = run_suite(request.run);
    result.library = request.library;
    if (request.json) {
        std::printf("%s\n",
                    json_of(result).dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
        std::fputs(table_of(result).c_str(), stdout);
    }
    if (!request.report.empty() && !report.commit(page_of(result))) return refuse(report.problem());
    return result.verdict.has_passed ? kPassed : kFailed;
}

}  // namespace

}  // namespace quire::conformance

int main(int argc, char **argv) {
    using namespace quire::conformance;
    // The unwinder linked into this program initialises itself when it first walks a stack. An
    // exception from a plugin's own unwinder would end the process before that.
    _Unwind_Backtrace([](_Unwind_Context *, void *) { return _URC_END_OF_STACK; }, nullptr);
    // With --help, GoogleTest would answer for the whole program.
    bool is_direct = false;
    for (int i = 1; i < argc; ++i) is_direct |= std::strcmp(argv[i], "--cases") == 0;
    if (is_direct)
        testing::InitGoogleTest(&argc, argv);
    else
        testing::InitGoogleTest();
    CLI::App app{"Runs the conformance suite on a backend of Quire."};
    Request request;
    request.run.is_short = quire::tests::effort() != "all";
    request.run.seed = quire::tests::run_seed();
    add_options(&app, &request);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return app.exit(failure) == 0 ? kPassed : kUsage;
    }
    if (request.check_list) return check_list();
    if (request.list) return list();
    if (request.cases || request.describe) return be_subject(request);
    // If SIGCHLD is ignored, this process cannot learn how a child ended.
    std::signal(SIGCHLD, SIG_DFL);
    int status = conform(request);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    std::fprintf(stderr, "standard output cannot be written\n");
    return kFailed;
}

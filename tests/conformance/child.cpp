// SPDX-License-Identifier: Apache-2.0

#include "child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

namespace quire::conformance {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kOutputKept = 4096;  // bytes; enough for a sanitizer's first frames
constexpr auto kTick = std::chrono::milliseconds(50);

class Pipe {
 public:
    Pipe() {
        if (pipe2(ends_, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
    }
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
    ~Pipe() {
        close_reader();
        close_writer();
    }
    int reader() const { return ends_[0]; }
    int writer() const { return ends_[1]; }
    void close_reader() { close_end(0); }
    void close_writer() { close_end(1); }

    // Appends what is available; false at the end of the stream.
    bool take(std::string *into) const {
        char bytes[4096];
        ssize_t count = read(ends_[0], bytes, sizeof bytes);
        if (count > 0) into->append(bytes, static_cast<size_t>(count));
        return count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN));
    }

 private:
    void close_end(int end) {
        if (ends_[end] >= 0) close(ends_[end]);
        ends_[end] = -1;
    }
    int ends_[2] = {-1, -1};
};

// In the child, between fork and exec: nothing here may allocate.
[[noreturn]] void become(char *const *arguments, const Pipe &events, const Pipe &output) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fcntl(events.writer(), F_SETFD, 0);
    dup2(output.writer(), STDOUT_FILENO);
    dup2(output.writer(), STDERR_FILENO);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    execv("/proc/self/exe", arguments);
    _exit(127);
}

void pass_lines(std::string *text, const std::function<void(const std::string &)> &on_line) {
    for (size_t end; (end = text->find('\n')) != std::string::npos;) {
        std::string line = text->substr(0, end);
        text->erase(0, end + 1);
        on_line(line);
    }
}

void describe_end(int status, ChildEnd *end) {
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        end->how =
            "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
    } else if (WEXITSTATUS(status) > 1) {
        end->how = "ended with status " + std::to_string(WEXITSTATUS(status));
    } else {
        end->is_clean = true;
    }
}

}  // namespace

ChildEnd run_child(std::vector<std::string> arguments, uint32_t silence_s,
                   const std::function<void(const std::string &)> &on_line) {
    Pipe events;
    Pipe output;
    arguments.insert(arguments.begin(), "quire-conform");
    arguments.push_back("--events=" + std::to_string(events.writer()));
    std::vector<char *> words;
    for (std::string &argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_t process = fork();
    if (process < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (process == 0) become(words.data(), events, output);
    setpgid(process, process);  // whichever of the two processes comes first
    events.close_writer();
    output.close_writer();

    ChildEnd end;
    std::string text;
    auto silence = std::chrono::seconds(silence_s);
    auto deadline = Clock::now() + silence;
    bool was_killed = false;
    int status = 0;
    pollfd polled[] = {{events.reader(), POLLIN, 0}, {output.reader(), POLLIN, 0}};
    for (bool is_running = true; is_running;) {
        // Checked before the pipes are drained, so that nothing the child wrote is missed.
        is_running = waitpid(process, &status, WNOHANG) != process;
        int timeout_ms = is_running ? static_cast<int>(kTick.count()) : 0;
        while (poll(polled, 2, timeout_ms) > 0) {
            if (polled[0].revents != 0) {
                if (!events.take(&text)) polled[0].fd = -1;
                pass_lines(&text, on_line);
                deadline = Clock::now() + silence;
            }
            if (polled[1].revents != 0 && !output.take(&end.output)) polled[1].fd = -1;
            if (end.output.size() > 2 * kOutputKept) {
                end.output.erase(0, end.output.size() - kOutputKept);
            }
            if (Clock::now() > deadline) break;
            timeout_ms = 0;
        }
        if (is_running && Clock::now() > deadline) {
            kill(-process, SIGKILL);
            waitpid(process, &status, 0);
            was_killed = true;
            break;
        }
    }
    kill(-process, SIGKILL);  // anything that it started and left running
    if (end.output.size() > kOutputKept) end.output.erase(0, end.output.size() - kOutputKept);
    if (was_killed) {
        end.how = "was silent for " + std::to_string(silence_s) + " s and was killed";
    } else {
        describe_end(status, &end);
    }
    return end;
}

}  // namespace quire::conformance

// SPDX-License-Identifier: Apache-2.0
//
// Compaction beside other work: it fails nothing, stops nothing, and brings nothing back.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "scene.hpp"
#include "tests/effort.hpp"

namespace quire::disk::tests {

namespace {

constexpr uint64_t kLabels = 40;

Options compacted_options(const std::string &directory) {
    Options options = small_options(directory);
    options.capacity_bytes = 512 * kKiB;
    options.segment_bytes = 64 * kKiB;
    return options;
}

// Puts, removals and compactions with some in flight; returns how many were answered FAILED.
uint64_t crowd(Session *session, std::mt19937_64 *random, uint64_t count) {
    Bytes bytes(20'000, 7);
    std::vector<quire_store_piece> pieces(count);
    uint64_t submitted = 0, answered = 0, failed = 0;
    while (answered < count) {
        while (submitted < count && submitted - answered < 16) {
            quire_store_request request{};
            const uint64_t choice = (*random)() % 20;
            request.kind = choice == 0  ? QUIRE_STORE_COMPACT
                           : choice < 6 ? QUIRE_STORE_REMOVE
                                        : QUIRE_STORE_PUT;
            request.cookie = 1'000'000 + submitted;
            if (choice != 0) request.label = label_of((*random)() % kLabels);
            if (request.kind == QUIRE_STORE_PUT) {
                pieces[submitted] = {bytes.data(), 1 + (*random)() % bytes.size()};
                request.pieces = &pieces[submitted];
                request.piece_count = 1;
            }
            if (session->store().submit(&request, 1, sizeof request) == 0) break;
            ++submitted;
        }
        if (!session->wait()) ADD_FAILURE() << "the store fell silent";
        std::vector<quire_store_answer> answers;
        session->reap(&answers);
        for (const quire_store_answer &answer : answers) {
            if (answer.kind == 0) continue;
            ++answered;
            failed += answer.outcome == QUIRE_STORE_FAILED;
        }
    }
    return failed;
}

TEST(DiskCompaction, beside_other_work_fails_nothing_and_brings_nothing_back) {
    for (uint64_t seed : quire::tests::seeds(1, {200, 12, 3})) {
        SCOPED_TRACE(seed);
        Folder folder(true);
        std::mt19937_64 random(seed);
        {
            Session session(compacted_options(folder.path()));
            ASSERT_EQ(crowd(&session, &random, 300 + random() % 1'500), 0u);
            // The store still takes values, and gives every one of them up.
            const quire_store_label fresh = label_of(1'000);
            ASSERT_EQ(session.put(fresh, Bytes(100, 1)).outcome, QUIRE_STORE_DONE);
            for (uint64_t i = 0; i < kLabels; ++i) {
                ASSERT_EQ(session.ask(QUIRE_STORE_REMOVE, label_of(i)).outcome, QUIRE_STORE_DONE);
            }
            ASSERT_EQ(session.ask(QUIRE_STORE_FLUSH).outcome, QUIRE_STORE_DONE);
        }
        Session session(compacted_options(folder.path()));
        for (uint64_t i = 0; i < kLabels; ++i) {
            ASSERT_FALSE(session.has(label_of(i))) << "value " << i << " came back";
        }
    }
}

TEST(DiskCompaction, one_request_at_a_time_fails_nothing) {
    Folder folder(true);
    Session session(compacted_options(folder.path()));
    std::mt19937_64 random(7);
    for (int i = 0; i < 4'000; ++i) {
        const quire_store_label label = label_of(random() % kLabels);
        const uint64_t choice = random() % 10;
        const uint32_t outcome = choice == 0 ? session.ask(QUIRE_STORE_COMPACT).outcome
                                 : choice < 4
                                     ? session.ask(QUIRE_STORE_REMOVE, label).outcome
                                     : session.put(label, Bytes(1 + random() % 15'000, 3)).outcome;
        ASSERT_EQ(outcome, QUIRE_STORE_DONE) << i;
    }
}

TEST(DiskLock, is_given_up_at_close_though_a_child_lives) {
    Folder folder;
    const Options options = small_options(folder.path());
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    auto session = std::make_unique<Session>(options);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        close(pipes[1]);
        (void)!read(pipes[0], &byte, 1);  // until the parent is done
        _exit(0);
    }
    close(pipes[0]);
    session = nullptr;
    quire_error error{};
    error.struct_size = sizeof error;
    EXPECT_NE(Session::open(options, &error), nullptr) << error.message;
    close(pipes[1]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
}

}  // namespace

}  // namespace quire::disk::tests

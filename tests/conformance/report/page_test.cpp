// SPDX-License-Identifier: Apache-2.0
//
// The page and the table: a plugin's text stays text, and a report is complete or absent.

#include "../page.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "../print.hpp"
#include "../report_file.hpp"

namespace quire::conformance {

namespace {

constexpr char kHostile[] = "<script>alert(\"1\")</script>&'\x1b[31m\xff";

std::string read(const std::filesystem::path &path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

class Folder {
 public:
    Folder() {
        char name[] = "/tmp/quire-report.XXXXXX";
        path_ = mkdtemp(name);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string operator/(const char *name) const { return path_ / name; }
    size_t count() const {
        return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
    }

 private:
    std::filesystem::path path_;
};

RunResult hostile_result() {
    RunResult result;
    result.subject["name"] = kHostile;
    result.subject["version"] = kHostile;
    result.subject["device"] = {{"name", kHostile}, {"memory_total_bytes", 1}};
    result.subject["matrix"] = Json::array();
    result.subject["matrix"].push_back({{"kind", "causal"},
                                        {"q", "f16"},
                                        {"k", "f16"},
                                        {"v", "f16"},
                                        {"k_dim", 64},
                                        {"v_dim", 64},
                                        {"block_tokens", 16},
                                        {"support", "no"},
                                        {"reason", kHostile}});
    result.cannot = kHostile;
    CaseResult one;
    one.name = "Load.query_gives_the_same_table_every_time";
    one.outcome = Outcome::failed;
    one.text = kHostile;
    result.cases.push_back(one);
    Json offered = Json::object();
    for (const Capability &capability : capabilities()) offered[capability.name] = kHostile;
    result.verdict = judge(capabilities(), offered, result.cases, false);
    return result;
}

}  // namespace

TEST(Page, text_of_a_plugin_stays_text) {
    std::string page = page_of(hostile_result());
    EXPECT_EQ(page.find("<script"), std::string::npos);
    EXPECT_EQ(page.find('\x1b'), std::string::npos);
    EXPECT_EQ(page.find('\xff'), std::string::npos);
    EXPECT_NE(page.find("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;"),
              std::string::npos);
}

TEST(Page, needs_nothing_from_elsewhere) {
    std::string page = page_of(hostile_result());
    for (const char *word : {"http:", "https:", "src=", "href=", "url(", "@import"}) {
        EXPECT_EQ(page.find(word), std::string::npos) << word;
    }
}

TEST(Page, what_is_no_utf_8_is_replaced) {
    EXPECT_EQ(escape("a\xC3\xA4"), "a\xC3\xA4");
    EXPECT_EQ(escape("\xC3"), "\xEF\xBF\xBD");
    EXPECT_EQ(escape("\xE0\x80\x80x"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDx");
    EXPECT_EQ(escape("\xED\xA0\x80").find("\xED\xA0"), std::string::npos);
}

TEST(Table, text_of_a_plugin_cannot_steer_a_terminal) {
    EXPECT_EQ(table_of(hostile_result()).find('\x1b'), std::string::npos);
}

TEST(Table, json_is_json_whatever_the_plugin_said) {
    EXPECT_FALSE(Json::parse(text_of(json_of(hostile_result())), nullptr, false).is_discarded());
}

TEST(ReportFile, path_that_cannot_be_written_is_said_at_once) {
    Folder folder;
    EXPECT_NE(ReportFile(folder / "none/report.html").problem(), "");
    std::filesystem::create_directory(folder / "directory");
    EXPECT_NE(ReportFile(folder / "directory").problem(), "");
}

TEST(ReportFile, old_report_stays_until_the_new_one_is_whole) {
    Folder folder;
    std::string path = folder / "report.html";
    std::ofstream(path) << "old";
    {
        ReportFile report(path);
        EXPECT_EQ(report.problem(), "");
        EXPECT_EQ(read(path), "old");
    }
    EXPECT_EQ(read(path), "old");
    EXPECT_EQ(folder.count(), 1u) << "a temporary file was left";
    ReportFile report(path);
    EXPECT_TRUE(report.commit("new"));
    EXPECT_EQ(read(path), "new");
    EXPECT_EQ(folder.count(), 1u);
    struct stat made{};
    stat(path.c_str(), &made);
    EXPECT_EQ(made.st_mode & 0777, 0644u) << "others may read it";
}

}  // namespace quire::conformance

// Lists of CPUs, the kernel's files on nodes and cores, teams that move between CPUs, and workers.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cpu_list.h"
#include "runtime/error.h"
#include "runtime/parallel.h"
#include "runtime/team_placement.h"
#include "runtime/worker.h"

namespace ipex {
namespace {

namespace fs = std::filesystem;

TEST(CpuList, ReadsTheKernelsText) {
  EXPECT_EQ(parse_cpu_list("0-3,8\n"), (CpuList{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), CpuList{5});
  EXPECT_EQ(parse_cpu_list(" 7,1-2,2 "), (CpuList{1, 2, 7}));
  EXPECT_EQ(parse_cpu_list(""), CpuList{});
  EXPECT_EQ(parse_cpu_list("\n"), CpuList{});
  for (const char* wrong : {"a", "1-", "-1", "3-1", "1,,2", "1,", "1 2", "99999999999", "0-70000"})
    EXPECT_THROW(parse_cpu_list(wrong), UserError) << wrong;
}

TEST(CpuList, IsWrittenAsTheKernelDoes) {
  EXPECT_EQ(cpu_list_text({8, 2, 1, 0, 3}), "0-3,8");
  EXPECT_EQ(cpu_list_text({4}), "4");
  EXPECT_EQ(cpu_list_text({}), "");
  for (const char* text : {"0-3,8", "1,3,5", "0-127"}) EXPECT_EQ(cpu_list_text(parse_cpu_list(text)), text);
}

// A folder like /sys/devices/system.
class System : public ::testing::Test {
 protected:
  System() {
    std::string name = fs::temp_directory_path() / "ipex-system-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~System() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  // By CPU: its siblings.
  void cpus(const std::vector<std::string>& siblings) const {
    for (size_t cpu = 0; cpu < siblings.size(); ++cpu)
      write("cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", siblings[cpu]);
  }
  fs::path root_;
};

TEST_F(System, TwoSocketsWithHyperThreads) {
  write("cpu/online", "0-7");
  write("node/has_cpu", "0-1");
  write("node/node0/cpulist", "0-1,4-5");
  write("node/node1/cpulist", "2-3,6-7");
  cpus({"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"});
  EXPECT_EQ(numa_nodes(root_), (std::vector<int>{0, 1}));
  EXPECT_EQ(cores_of_node(0, root_), (CpuList{0, 1}));
  EXPECT_EQ(cores_of_node(1, root_), (CpuList{2, 3}));
  EXPECT_THROW(cores_of_node(2, root_), UserError);
  EXPECT_THROW(cores_of_node(-1, root_), UserError);
}

TEST_F(System, InterleavedNumbersAndSubNumaClusters) {
  write("cpu/online", "0-7");
  write("node/has_cpu", "0-3");
  for (int node = 0; node < 4; ++node)
    write("node/node" + std::to_string(node) + "/cpulist",
          std::to_string(node) + "," + std::to_string(node + 4));
  cpus({"0", "1", "2", "3", "4", "5", "6", "7"});
  EXPECT_EQ(cores_of_node(1, root_), (CpuList{1, 5}));
  EXPECT_EQ(cores_of_node(3, root_), (CpuList{3, 7}));
}

TEST_F(System, OfflineCpusAndNodesOfMemoryOnly) {
  write("cpu/online", "1-3");  // CPU 0 is offline: its sibling stands for the core
  write("node/has_cpu", "0,2");
  write("node/node0/cpulist", "1");
  write("node/node2/cpulist", "2-3");
  cpus({"0-1", "0-1", "2-3", "2-3"});
  EXPECT_EQ(numa_nodes(root_), (std::vector<int>{0, 2}));
  EXPECT_EQ(cores_of_node(0, root_), CpuList{1});
  EXPECT_EQ(cores_of_node(2, root_), CpuList{2});
  EXPECT_THROW(cores_of_node(1, root_), UserError);
}

TEST_F(System, WithoutFilesOnNodes) {
  write("cpu/online", "0-3");
  cpus({"0-1", "0-1", "2-3", "2-3"});
  EXPECT_EQ(numa_nodes(root_), std::vector<int>{0});
  EXPECT_EQ(cores_of_node(0, root_), (CpuList{0, 2}));
}

class Placement : public ::testing::Test {
 protected:
  Placement() : cpus_(thread_affinity()), threads_(omp_get_max_threads()) {}
  ~Placement() override {
    omp_set_num_threads(threads_);
    EXPECT_EQ(thread_affinity(), cpus_);
  }
  const CpuList cpus_;
  const int threads_;
};

TEST_F(Placement, SetsTheMaskOfAThread) {
  EXPECT_EQ(set_thread_affinity({cpus_.back()}), 0);
  EXPECT_EQ(thread_affinity(), CpuList{cpus_.back()});
  EXPECT_EQ(set_thread_affinity({}), EINVAL);
  EXPECT_EQ(set_thread_affinity({60000}), EINVAL);
  EXPECT_EQ(set_thread_affinity(cpus_), 0);
}

TEST_F(Placement, MovesAndRestoresATeam) {
  omp_set_num_threads(2);
  const TeamPlacement before = current_placement();
  EXPECT_FALSE(before.is_pinned);
  const CpuList two = {cpus_.back(), cpus_.front()};
  place_team(one_thread_each(two));
  EXPECT_EQ(num_threads(), 2);
  EXPECT_EQ(team_masks(), (std::vector<CpuList>{{two[0]}, {two[1]}}));
  EXPECT_EQ(allowed_cpus(), cpus_);

  const TeamPlacement outer = current_placement();
  EXPECT_TRUE(outer.is_pinned);
  place_team(one_thread_each({cpus_.front()}));
  EXPECT_EQ(num_threads(), 1);
  EXPECT_EQ(thread_affinity(), CpuList{cpus_.front()});
  place_team(outer);
  EXPECT_EQ(team_masks(), (std::vector<CpuList>{{two[0]}, {two[1]}}));

  place_team(before);
  EXPECT_EQ(team_masks(), (std::vector<CpuList>{cpus_, cpus_}));
  EXPECT_FALSE(current_placement().is_pinned);
}

TEST_F(Placement, ARefusedCpuChangesNothing) {
  omp_set_num_threads(2);
  try {
    place_team(one_thread_each({cpus_.front(), 60000}));
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("60000"), std::string::npos) << error.what();
  }
  EXPECT_EQ(num_threads(), 2);
  EXPECT_EQ(team_masks(), (std::vector<CpuList>{cpus_, cpus_}));
  EXPECT_THROW(one_thread_each({}), UserError);
}

// Threads of a team that the OpenMP runtime makes after place_team() take their places in the next loop.
// libgomp ends threads when a region uses fewer.
TEST_F(Placement, NewThreadsTakeTheirPlaces) {
  omp_set_num_threads(1);
  const TeamPlacement before = current_placement();
  const CpuList four(4, cpus_.back());
  place_team(one_thread_each(four));
  const auto loop = [](int64_t chunks) {
    std::vector<CpuList> masks(chunks);
    parallel_for(
        0, chunks, 1,
        [](void* closure, int64_t begin, int64_t end, int64_t) {
          for (int64_t i = begin; i < end; ++i)
            (*static_cast<std::vector<CpuList>*>(closure))[i] = thread_affinity();
        },
        &masks);
    return masks;
  };
  for (const int64_t chunks : {4, 2, 4, 3, 4})
    for (const CpuList& mask : loop(chunks)) EXPECT_EQ(mask, CpuList{cpus_.back()});
  place_team(before);
}

struct Counted final : Job {
  explicit Counted(std::function<void()> body) : body(std::move(body)) {}
  void run() noexcept override { body(); }
  std::function<void()> body;
};

Worker::Hooks no_hooks() {
  return {[] {}, [] {}};
}

TEST(Workers, RunJobsInOrderOnAPinnedThread) {
  const CpuList cpus = thread_affinity();
  std::vector<int> log;
  std::promise<CpuList> mask;
  auto worker = std::make_unique<Worker>(CpuList{cpus.back()}, no_hooks());
  EXPECT_FALSE(worker->is_current_thread());
  for (int i = 0; i < 100; ++i) worker->submit(std::make_unique<Counted>([&log, i] { log.push_back(i); }));
  bool inside = false;
  worker->submit(std::make_unique<Counted>([&] {
    inside = worker->is_current_thread() && num_threads() == 1;
    mask.set_value(thread_affinity());
  }));
  EXPECT_EQ(mask.get_future().get(), CpuList{cpus.back()});
  EXPECT_TRUE(inside);
  ASSERT_EQ(log.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(log[i], i);
}

TEST(Workers, CompleteTheirJobsAfterTheirEnd) {
  std::promise<void> last;
  std::atomic<int> done{0};
  {
    Worker worker({thread_affinity().front()}, {[] {}, [&] { last.set_value(); }});
    for (int i = 0; i < 10; ++i) worker.submit(std::make_unique<Counted>([&] { ++done; }));
  }
  last.get_future().get();
  EXPECT_EQ(done, 10);
}

TEST(Workers, TeamsOfSeveralSizesAtOnce) {
  const CpuList cpus = thread_affinity();
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::future<int>> sizes;
  for (int size = 1; size <= 3; ++size) {
    workers.push_back(std::make_unique<Worker>(CpuList(size, cpus.front()), no_hooks()));
    auto found = std::make_shared<std::promise<int>>();
    sizes.push_back(found->get_future());
    workers.back()->submit(std::make_unique<Counted>([found] { found->set_value(num_threads()); }));
  }
  for (int size = 1; size <= 3; ++size) EXPECT_EQ(sizes[size - 1].get(), size);
}

TEST(Workers, RefusedCpusAreAnError) { EXPECT_THROW(Worker({60000}, no_hooks()), UserError); }

}  // namespace
}  // namespace ipex

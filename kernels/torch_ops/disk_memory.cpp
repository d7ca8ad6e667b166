#include "kernels/torch_ops/disk_memory.h"

#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/torch_ops/tensor_kinds.h"
#include "runtime/error.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using at::TensorList;

class File {
 public:
  // An empty file of that size in a folder.
  File(std::string folder, int64_t bytes) : folder_(std::move(folder)) {
    std::string path = folder_ + "/ipex-weights-XXXXXX";
    descriptor_ = mkostemp(path.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail("cannot make a file", errno);
    unlink(path.c_str());
    struct statfs system;
    if (fstatfs(descriptor_, &system) == 0 &&
        (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)) {
      close(descriptor_);
      throw UserError("weights_to_disk: " + folder_ + " is in memory; name a folder on a disk");
    }
    if (const int error = bytes > 0 ? posix_fallocate(descriptor_, 0, bytes) : 0) {
      close(descriptor_);
      fail("cannot reserve " + std::to_string(bytes) + " bytes", error);
    }
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;

  int descriptor() const { return descriptor_; }

  void write(const void* data, int64_t bytes, int64_t at) const {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = pwrite(descriptor_, from, static_cast<size_t>(bytes), at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail("cannot write", done < 0 ? errno : EIO);
      from += done;
      at += done;
      bytes -= done;
    }
  }

  [[noreturn]] void fail(const std::string& what, int error) const {
    throw UserError("weights_to_disk: " + what + " in " + folder_ + ": " + std::strerror(error));
  }

 private:
  std::string folder_;
  int descriptor_ = -1;
};

// Storages whose pages are to be given back.
struct Pending {
  std::mutex mutex;
  std::vector<class Mapping*> mappings;
  std::atomic<bool> any = false;
  static Pending& instance() {
    static auto* pending = new Pending;  // never destroyed: tensors may be freed at exit
    return *pending;
  }
};

class Mapping {
 public:
  Mapping(std::shared_ptr<const File> file, int64_t bytes, int64_t at)
      : file_(std::move(file)), bytes_(bytes), at_(at) {
    data_ = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_->descriptor(),
                 at);
    if (data_ == MAP_FAILED) file_->fail("cannot map " + std::to_string(bytes) + " bytes", errno);
  }
  ~Mapping() {
    {
      Pending& pending = Pending::instance();
      std::lock_guard lock(pending.mutex);
      std::erase(pending.mappings, this);
    }
    munmap(data_, static_cast<size_t>(bytes_));
  }
  Mapping(const Mapping&) = delete;

  void* data() const { return data_; }
  // Values that were written stay in the file.
  void drop_pages() const {
    madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED);
    posix_fadvise(file_->descriptor(), at_, bytes_, POSIX_FADV_DONTNEED);
  }
  static void release(void* mapping) { delete static_cast<Mapping*>(mapping); }

 private:
  std::shared_ptr<const File> file_;
  int64_t bytes_, at_;
  void* data_;
};

std::vector<Tensor> weights_to_disk(TensorList tensors, c10::string_view folder) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<Tensor> dense;
  std::vector<int64_t> places;
  int64_t size = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    require_dense(tensors[i], "weights_to_disk: tensor " + std::to_string(i));
    const Tensor given = materialized(tensors[i]);
    dense.push_back(given.is_non_overlapping_and_dense() ? given : given.contiguous());
    places.push_back(size);
    size += (static_cast<int64_t>(given.nbytes()) + page - 1) / page * page;
  }
  const auto file = std::make_shared<const File>(std::string(folder.data(), folder.size()), size);
  for (size_t i = 0; i < dense.size(); ++i)
    file->write(dense[i].const_data_ptr(), static_cast<int64_t>(dense[i].nbytes()), places[i]);
  if (fdatasync(file->descriptor()) != 0) file->fail("cannot write", errno);  // so that pages can be dropped
  posix_fadvise(file->descriptor(), 0, size, POSIX_FADV_DONTNEED);
  std::vector<Tensor> results;
  for (size_t i = 0; i < dense.size(); ++i) {
    const Tensor& source = dense[i];
    if (source.nbytes() == 0) {
      results.push_back(source.clone());
      continue;
    }
    auto mapping = std::make_unique<Mapping>(file, static_cast<int64_t>(source.nbytes()), places[i]);
    void* data = mapping->data();
    c10::DataPtr pointer(data, mapping.release(), &Mapping::release, c10::Device(c10::kCPU));
    Tensor result = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                           source.nbytes(), std::move(pointer),
                                                           /*allocator=*/nullptr, /*resizable=*/false)),
        c10::DispatchKeySet(c10::DispatchKey::CPU), source.dtype());
    result.unsafeGetTensorImpl()->set_sizes_and_strides(source.sizes(), source.strides());
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

void note_reader(const c10::StorageImpl& storage) {
  const c10::DataPtr& pointer = storage.data_ptr();
  if (pointer.get_deleter() != &Mapping::release) return;
  auto* mapping = static_cast<Mapping*>(pointer.get_context());
  Pending& pending = Pending::instance();
  std::lock_guard lock(pending.mutex);
  if (std::find(pending.mappings.begin(), pending.mappings.end(), mapping) == pending.mappings.end())
    pending.mappings.push_back(mapping);
  pending.any.store(true, std::memory_order_relaxed);
}

void drop_read_pages() {
  Pending& pending = Pending::instance();
  if (!pending.any.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(pending.mutex);
  for (const Mapping* mapping : std::exchange(pending.mappings, {})) mapping->drop_pages();
  pending.any.store(false, std::memory_order_relaxed);
}

}  // namespace ipex::torch_ops

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  // Tensors of the same values, types and layouts whose memory is a file without a name in `folder`.
  m.def("weights_to_disk(Tensor[] tensors, str folder) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("weights_to_disk", &ipex::torch_ops::weights_to_disk); }

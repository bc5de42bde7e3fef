#include "adapters/gloo_rounds.h"

#include <cstring>
#include <utility>

namespace gravac {
namespace {

using Started = c10::intrusive_ptr<c10d::Work>;

// A tensor that shares the memory.
std::vector<at::Tensor> bytes_of(std::span<std::byte> bytes) {
  return {at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte)};
}

// Runs on a thread of the process group, where waiting for single messages may take as long as it needs.
class Rounds final : public c10d::ProcessGroupGloo::AsyncWork {
 public:
  Rounds(c10d::ProcessGroupGloo& group, Parts parts, Messages& received)
      : AsyncWork({}), group_(group), parts_(std::move(parts)), received_(received) {}

  void run() override {
    const int size = group_.getSize(), rank = group_.getRank();
    std::vector<std::span<std::byte>> outgoing;
    std::size_t begin = 0;
    for (const std::int64_t length : parts_.send) {
      outgoing.push_back(std::span(parts_.out).subspan(begin, static_cast<std::size_t>(length)));
      begin += outgoing.back().size();
    }
    const auto mine = outgoing[static_cast<std::size_t>(rank)];
    if (!mine.empty()) {
      std::memcpy(received_.message(static_cast<std::size_t>(rank)).data(), mine.data(), mine.size());
    }

    // A sender waits until the receiver has said that it is ready: all receivers say so at the start, and not
    // in every round anew.
    std::vector<Started> arriving;
    for (int r = 1; r < size; ++r) {
      const int from = (rank + size - r) % size;
      arriving.push_back(receive(received_.message(static_cast<std::size_t>(from)), from));
    }
    for (int r = 1; r < size; ++r) {
      const int to = (rank + r) % size;
      const Started sent = send(outgoing[static_cast<std::size_t>(to)], to);
      // A message is "sent" when the kernel has it. Waiting for the one that arrives keeps ranks in step.
      for (const Started& work : {sent, arriving[static_cast<std::size_t>(r - 1)]}) {
        if (work) work->wait();
      }
    }
  }

 private:
  static constexpr int kTag = 0;

  Started send(std::span<std::byte> bytes, int to) {
    if (bytes.empty()) return {};
    auto tensors = bytes_of(bytes);
    return group_.send(tensors, to, kTag);
  }

  Started receive(std::span<std::byte> bytes, int from) {
    if (bytes.empty()) return {};
    auto tensors = bytes_of(bytes);
    return group_.recv(tensors, from, kTag);
  }

  c10d::ProcessGroupGloo& group_;
  Parts parts_;
  Messages& received_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> RoundsGroup::all_to_all(Parts parts, Messages& received) {
  auto work = c10::make_intrusive<Rounds>(*this, std::move(parts), received);
  enqueue(work);
  return work;
}

}  // namespace gravac

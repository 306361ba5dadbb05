// Why a lock alone is not enough, and what the fence is for: a holder that was paused past its lease does not know it. The resource
// itself, here a small store in memory, refuses every caller with an older fence than it has seen.
//
//   ./fenced_write URL
#include <iostream>
#include <mutex>
#include <string>
#include <syncguard.hpp>

namespace {

class resource {
 public:
  /// Fences order as texts. False: refused.
  bool write(std::string_view fence, std::string text) {
    const std::scoped_lock lock(mutex_);
    if (fence < seen_) {
      return false;
    }
    seen_ = fence;
    text_ = std::move(text);
    return true;
  }

 private:
  std::mutex mutex_;
  std::string seen_;
  std::string text_;
};

}  // namespace

int main(int argc, char** argv) try {
  using namespace std::chrono_literals;
  syncguard::client client(argc > 1 ? argv[1] : "sqlite:./locks.db");
  client.setup_schema();
  resource report;

  // Never renewed: as good as a holder that is stopped right after it got the lock.
  syncguard::lock_options paused;
  paused.ttl = 200ms;
  paused.heartbeat = syncguard::forever;
  auto slow = client.lock("report", paused);
  std::cout << "the first holder has fence " << slow.fence() << " and is paused\n";

  syncguard::lock_options patient;
  patient.acquire_timeout = 30s;
  auto next = client.lock("report", patient);
  std::cout << "the second holder has fence " << next.fence() << '\n';
  if (!report.write(next.fence(), "written by the second")) {
    std::cerr << "the second could not write\n";
    return 1;
  }
  std::cout << "the second has written\n";

  if (report.write(slow.fence(), "written by the first, too late")) {
    std::cerr << "the first overwrote the second\n";
    return 1;
  }
  std::cout << "the first comes back and is refused\n";
  return 0;
} catch (const syncguard::error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}

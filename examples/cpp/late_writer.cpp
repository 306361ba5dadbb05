// A holder that may be paused past its lease, and then writes. The gate at the data, which is in Redis here, refuses it.
//
//   ./late_writer redis://127.0.0.1/
//
// It says "holding" with its fence and waits for a line. Stop it now (kill -STOP), wait until the lease of two seconds is over, start
// another one and let it write, then let the first one go on (kill -CONT) and write: it says "refused".
#include <chrono>
#include <iostream>
#include <string>

#include <syncguard.hpp>

int main(int argc, char** argv) try {
  using namespace std::chrono_literals;
  syncguard::client client(argc > 1 ? argv[1] : "redis://127.0.0.1/");
  syncguard::lock_options options;
  options.ttl = 2s;
  options.acquire_timeout = 60s;
  const syncguard::guard guard = client.lock("report", options);
  std::cout << "holding " << guard.fence() << std::endl;
  std::string text;
  std::getline(std::cin, text);
  // The pause was here. No check of the lock itself could help: another pause may come right after it.
  const bool written = client.fenced_set("report:text", text, guard.fence_number());
  std::cout << (written ? "written" : "refused") << std::endl;
  return 0;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}

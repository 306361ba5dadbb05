// A worker of which only one may run, on whatever machine. It works in steps inside an event loop and stops at once when its lock is
// lost: the guard's descriptor becomes readable. On SIGTERM and SIGINT it gives the lock back, so that the next one need not wait for
// the lease to end.
//
//   ./worker URL STEPS
//
// Ends with 0 when it is done or was told to stop, 2 when another one runs already, 3 when it lost its lock.
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <iostream>
#include <syncguard.hpp>

namespace {

class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {
    if (fd < 0) {
      throw std::runtime_error("no descriptor is left");
    }
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

void watch(const descriptor& loop, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(loop.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::runtime_error("the descriptor cannot be watched");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  // The library may not be called from a signal handler: signals are read in the loop.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);

  syncguard::client client(argc > 1 ? argv[1] : "sqlite:./locks.db");
  client.setup_schema();
  long steps = argc > 2 ? std::stol(argv[2]) : 20;

  syncguard::lock_options options;
  options.ttl = std::chrono::seconds(3);  // so that another machine can take over soon after this one has died
  auto guard = client.try_lock("nightly-report", options);
  if (!guard) {
    std::cout << "another one runs\n";
    return 2;
  }

  // Declared after the guard, so gone before it: its descriptor must leave the loop first.
  descriptor loop(::epoll_create1(EPOLL_CLOEXEC));
  descriptor timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  descriptor told(::signalfd(-1, &signals, SFD_CLOEXEC));
  const itimerspec every{{0, 50000000}, {0, 50000000}};
  ::timerfd_settime(timer.get(), 0, &every, nullptr);
  watch(loop, timer.get());
  watch(loop, told.get());
  watch(loop, guard->lost_fd());
  std::cout << "working with fence " << guard->fence() << std::endl;

  while (steps > 0) {
    epoll_event event{};
    if (::epoll_wait(loop.get(), &event, 1, -1) != 1) {
      continue;  // stopped and continued
    }
    if (event.data.fd == guard->lost_fd()) {
      std::cout << "lost the lock, stopping\n";
      return 3;
    }
    if (event.data.fd == told.get()) {
      std::cout << "told to stop\n";
      return 0;
    }
    std::uint64_t ticks = 0;
    if (::read(timer.get(), &ticks, sizeof ticks) == static_cast<ssize_t>(sizeof ticks)) {
      steps--;  // a step of the work
    }
  }
  std::cout << "done\n";
  return 0;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}

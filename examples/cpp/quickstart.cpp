// Takes a lock, shows its fence, gives it back.
//
//   c++ -std=c++17 quickstart.cpp $(pkg-config --cflags --libs syncguard) && ./a.out [URL]
#include <iostream>
#include <mutex>
#include <syncguard.hpp>

int main(int argc, char** argv) try {
  syncguard::client client(argc > 1 ? argv[1] : "sqlite:./locks.db");
  client.setup_schema();  // Postgres needs its tables once; elsewhere this does nothing

  {
    auto guard = client.lock("invoice:42");  // waits up to 5 s; renewed until it goes out of scope
    std::cout << "locked with fence " << guard.fence() << '\n';
    if (!client.try_lock("invoice:42")) {
      std::cout << "a second one must wait\n";
    }
  }

  // The same as a mutex of the standard library's kind.
  syncguard::mutex invoice(client, "invoice:42");
  std::unique_lock lock(invoice, std::chrono::seconds(10));
  if (lock) {
    std::cout << "locked again with fence " << invoice.fence() << '\n';
  }
  return 0;
} catch (const syncguard::error& e) {
  std::cerr << syncguard_status_str(e.code()) << ": " << e.what() << '\n';
  return 1;
}

// A second unit that includes the header: nothing in it may be defined twice.
#include <syncguard.hpp>

std::string other_unit(syncguard::client& client) {
  syncguard::mutex mutex(client, "other unit");
  std::scoped_lock lock(mutex);
  return std::string(mutex.fence());
}

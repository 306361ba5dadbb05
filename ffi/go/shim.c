#include "_cgo_export.h"

/* The callbacks that C calls, each of which calls the function of callbacks.go with the id in its user data. A callback that comes after
 * the id was removed finds nothing. */
static void on_lost(void *id, const syncguard_error *why) { syncguardGoOnLost((uintptr_t)id, (syncguard_error *)why); }

static void on_client_lost(void *id, const syncguard_lost_lock *lost) {
  syncguardGoOnClientLost((uintptr_t)id, (syncguard_lost_lock *)lost);
}

static void on_call(void *id) { syncguardGoOnCall((uintptr_t)id); }

static void on_release_error(void *id, const syncguard_error *err, const char *key, const char *lock_id, const char *source) {
  syncguardGoOnReleaseError((uintptr_t)id, (syncguard_error *)err, (char *)key, (char *)lock_id, (char *)source);
}

static void on_event(void *id, const syncguard_event *event) { syncguardGoOnEvent((uintptr_t)id, (syncguard_event *)event); }

static void on_warning(void *id, const char *message) { syncguardGoOnWarning((uintptr_t)id, (char *)message); }

static int on_password(void *id, char *out, size_t size) { return syncguardGoOnPassword((uintptr_t)id, out, size); }

static int on_connect(void *id, const char *host, uint16_t port, int64_t timeout_ms) {
  return syncguardGoOnConnect((uintptr_t)id, (char *)host, port, timeout_ms);
}

static void forget(void *id) { syncguardGoForget((uintptr_t)id); }

void sg_go_client_hooks(syncguard_client_options *options, int hooks, uintptr_t id) {
  if (hooks & SG_GO_HOOK_RELEASE_ERROR) {
    options->on_release_error = on_release_error;
  }
  if (hooks & SG_GO_HOOK_EVENT) {
    options->on_event = on_event;
  }
  if (hooks & SG_GO_HOOK_WARNING) {
    options->on_warning = on_warning;
  }
  if (hooks & SG_GO_HOOK_LOST) {
    options->on_lost = on_client_lost;
  }
  if (hooks & SG_GO_HOOK_PASSWORD) {
    options->password = on_password;
  }
  if (hooks & SG_GO_HOOK_CONNECTOR) {
    options->connector = on_connect;
  }
  if (hooks != 0) {
    options->user_data = (void *)id;
    options->user_data_free = forget;
  }
}

void sg_go_guard_hooks(syncguard_lock_options *options, int hooks, uintptr_t id) {
  options->on_lost = on_lost;
  options->user_data = (void *)id;
  /* The hook may be called after the guard is gone, so only the library knows when the id can go. */
  if (hooks & SG_GO_HOOK_RELEASE_ERROR) {
    options->on_release_error = on_release_error;
    options->user_data_free = forget;
  }
}

syncguard_status sg_go_lock_or_wait(syncguard_client *client, const char *key, size_t len, const syncguard_lock_options *options, uintptr_t id,
                                    syncguard_guard **out, syncguard_waiter **place, syncguard_error **err) {
  return syncguard_lock_or_wait(client, key, len, options, on_call, (void *)id, out, place, err);
}

syncguard_status sg_go_waiter_new(syncguard_client *client, const char *key, size_t len, const syncguard_lock_options *options, uintptr_t id,
                                  syncguard_waiter **out, syncguard_error **err) {
  return syncguard_waiter_new(client, key, len, options, on_call, (void *)id, out, err);
}

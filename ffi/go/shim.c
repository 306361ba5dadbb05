#include "_cgo_export.h"

/* The callbacks that C calls, each of which calls the function of callbacks.go with the id in its user data. A callback that comes after
 * the id was removed finds nothing. */
static void on_lost(void *id, const syncguard_error *why) { syncguardGoOnLost((uintptr_t)id, (syncguard_error *)why); }

static void on_call(void *id) { syncguardGoOnCall((uintptr_t)id); }

static void on_release_error(void *id, const syncguard_error *err, const char *key, const char *lock_id, const char *source) {
  syncguardGoOnReleaseError((uintptr_t)id, (syncguard_error *)err, (char *)key, (char *)lock_id, (char *)source);
}

static void on_event(void *id, const syncguard_event *event) { syncguardGoOnEvent((uintptr_t)id, (syncguard_event *)event); }

static void on_warning(void *id, const char *message) { syncguardGoOnWarning((uintptr_t)id, (char *)message); }

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

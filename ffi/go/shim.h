/* Between cgo and syncguard.h: ids instead of pointers as user data, and answers by value, so that nothing of Go's escapes. */
#ifndef SYNCGUARD_GO_SHIM_H
#define SYNCGUARD_GO_SHIM_H

#include <syncguard.h>

/* Beside the statuses: somebody of this client waits for the key, join the line. */
#define SG_GO_JOIN 1000

typedef struct {
  int32_t status;
  syncguard_error *err;
} sg_go_answer;

typedef struct {
  int32_t status;
  syncguard_error *err;
  int64_t number;
} sg_go_number;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_client *client;
} sg_go_opened;

/* The texts belong to the guard. */
typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_guard *guard;
  const char *key, *lock_id, *fence;
} sg_go_granted;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_waiter *waiter;
} sg_go_joined;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_acquired acquired;
} sg_go_acquired;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_lock_info_raw found;
} sg_go_found;

typedef struct {
  int32_t status;
  syncguard_error *err;
  bool was_lost;
  int64_t expires_at_ms;
} sg_go_released;

/* What callbacks a client has: bits of `hooks`. */
#define SG_GO_HOOK_RELEASE_ERROR 1
#define SG_GO_HOOK_EVENT 2
#define SG_GO_HOOK_WARNING 4

void sg_go_client_hooks(syncguard_client_options *options, int hooks, uintptr_t id);
void sg_go_guard_hooks(syncguard_lock_options *options, int hooks, uintptr_t id);
syncguard_status sg_go_waiter_new(syncguard_client *client, const char *key, size_t len, uintptr_t id, syncguard_waiter **out,
                                  syncguard_error **err);

#endif

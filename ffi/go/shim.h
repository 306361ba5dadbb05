/* Between cgo and syncguard.h: ids instead of pointers as user data, and answers by value, so that nothing of Go's escapes. */
#ifndef SYNCGUARD_GO_SHIM_H
#define SYNCGUARD_GO_SHIM_H

#include <syncguard.h>

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
  uint32_t warnings, undelivered;
} sg_go_checked;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_client *client;
} sg_go_opened;

/* A grant, or none and perhaps a place in line. The key belongs to the guard; NULL if it is the one that was given. */
typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_guard *guard;
  syncguard_waiter *waiter;
  const char *key;
  char lock_id_and_fence[22 + 15];
  int64_t waited_ms;
} sg_go_granted;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_acquired acquired;
  syncguard_holder holder;
} sg_go_acquired;

typedef struct {
  int32_t attempts, loss;
  bool may_have_applied, has_holder;
  int64_t waited_ms;
  syncguard_holder holder;
} sg_go_details;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_lock_info_raw found;
  char holder[201];
} sg_go_found;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_page *page;
} sg_go_page;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_report *report;
} sg_go_report;

typedef struct {
  int32_t status;
  syncguard_error *err;
  syncguard_loss_reason loss;
  int64_t expires_at_ms;
} sg_go_released;

/* What callbacks a client has: bits of `hooks`. */
#define SG_GO_HOOK_RELEASE_ERROR 1
#define SG_GO_HOOK_EVENT 2
#define SG_GO_HOOK_WARNING 4
#define SG_GO_HOOK_LOST 8
#define SG_GO_HOOK_PASSWORD 16
#define SG_GO_HOOK_CONNECTOR 32

void sg_go_client_hooks(syncguard_client_options *options, int hooks, uintptr_t id);
void sg_go_guard_hooks(syncguard_lock_options *options, int hooks, uintptr_t id);
syncguard_status sg_go_lock_or_wait(syncguard_client *client, const char *key, size_t len, const syncguard_lock_options *options, uintptr_t id,
                                    syncguard_guard **out, syncguard_waiter **place, syncguard_error **err);
syncguard_status sg_go_waiter_new(syncguard_client *client, const char *key, size_t len, const syncguard_lock_options *options, uintptr_t id,
                                  syncguard_waiter **out, syncguard_error **err);

#endif

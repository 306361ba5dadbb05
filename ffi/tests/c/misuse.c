/* 43: what the header calls undefined is recognised by a debug build of the library. */
#include "check.h"

static void freed_twice(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "twice");
  syncguard_cancel *cancel = syncguard_cancel_new();
  syncguard_error *e = NULL;
  syncguard_guard_free(guard);
  syncguard_guard_free(guard);
  CHECK(syncguard_lock(client, "", 0, NULL, &guard, &e) == IA && guard == NULL);
  syncguard_error_free(e);
  syncguard_error_free(e);
  syncguard_cancel_free(cancel);
  syncguard_cancel_free(cancel);
  syncguard_client_free(client);
  syncguard_client_free(client);
}

static void used_after_free(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "after"), *out = NULL;
  syncguard_guard_free(guard);
  EXPECT(IA, syncguard_guard_extend(guard, 1000, NULL, &err));
  EXPECT(IA, syncguard_guard_release(guard, NULL, &err));
  CHECK(syncguard_guard_key(guard) == NULL && syncguard_guard_is_lost(guard) && syncguard_guard_lost_fd(guard) == -1);
  syncguard_client_free(client);
  EXPECT(IA, syncguard_lock(client, "k", NUL, NULL, &out, &err));
  CHECK(syncguard_client_backend(client) == NULL);
}

static void of_another_type(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "type");
  void *as_client = client, *as_guard = guard;
  EXPECT(IA, syncguard_guard_release(as_client, NULL, &err));
  EXPECT(IA, syncguard_client_check(as_guard, NULL, &err));
  EXPECT(IA, syncguard_client_check(client, as_guard, &err));
  syncguard_guard_free(as_client);
  syncguard_client_free(as_guard);
  syncguard_error_free(as_guard);
  EXPECT(OK, syncguard_client_check(client, NULL, &err));
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void never_a_handle(void) {
  long garbage[64];
  void *wild[] = {garbage, (void *)8, (void *)3, (void *)(intptr_t)-1, (char *)garbage + 1};
  memset(garbage, 0x5a, sizeof garbage);
  for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
    EXPECT(IA, syncguard_guard_release(wild[i], NULL, &err));
    EXPECT(IA, syncguard_client_check(wild[i], NULL, &err));
    syncguard_cancel_trigger(wild[i]);
    syncguard_guard_free(wild[i]);
    syncguard_client_free(wild[i]);
    syncguard_cancel_free(wild[i]);
    syncguard_error_free(wild[i]);
    CHECK(syncguard_error_status(wild[i]) == IA);
  }
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(freed_twice);
  RUN(used_after_free);
  RUN(of_another_type);
  RUN(never_a_handle);
  return 0;
}

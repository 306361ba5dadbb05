/* Live locks page by page, and what a check found line by line. */
#include "check.h"

#define KEYS 5

static syncguard_page *page_after(syncguard_client *client, const char *after) {
  syncguard_page *page = NULL;
  EXPECT(OK, syncguard_client_list(client, "list:", NUL, 2, after, NULL, &page, &err));
  CHECK(page != NULL);
  return page;
}

/* Finds each of the locks, on one page or another. */
static void every_lock_is_on_a_page(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held[KEYS];
  bool found[KEYS] = {false};
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.holder = "a list of C";
  for (int i = 0; i < KEYS; i++) {
    char key[] = "list:0";
    key[5] = (char)('0' + i);
    EXPECT(OK, syncguard_lock(client, key, NUL, &options, &held[i], &err));
  }
  syncguard_guard *other = lock(client, "other");
  int pages = 0;
  syncguard_page *page = page_after(client, NULL);
  for (;;) {
    pages++;
    for (size_t i = 0; i < syncguard_page_count(page); i++) {
      syncguard_lock_info info;
      syncguard_lock_info_raw raw;
      EXPECT(OK, syncguard_page_info(page, i, &info, &err));
      EXPECT(OK, syncguard_page_info_raw(page, i, &raw, &err));
      CHECK(strncmp(raw.key, "list:", 5) == 0 && strcmp(info.key_hash, raw.info.key_hash) == 0);
      CHECK(strcmp(info.lock_id_hash, raw.info.lock_id_hash) == 0 && info.expires_at_ms == raw.info.expires_at_ms);
      const syncguard_guard *guard = held[raw.key[5] - '0'];
      CHECK(strcmp(raw.lock_id, syncguard_guard_lock_id(guard)) == 0 && strcmp(info.fence, syncguard_guard_fence(guard)) == 0);
      CHECK(strcmp(syncguard_page_holder_text(page, i), "a list of C") == 0);
      found[raw.key[5] - '0'] = true;
    }
    if (syncguard_page_next(page) == NULL) {
      break;
    }
    syncguard_page *next = page_after(client, syncguard_page_next(page));
    syncguard_page_free(page);
    page = next;
  }
  syncguard_page_free(page);
  CHECK(pages > 1);
  for (int i = 0; i < KEYS; i++) {
    CHECK(found[i]);
    syncguard_guard_free(held[i]);
  }
  syncguard_guard_free(other);
  syncguard_client_free(client);
}

static void bad_lists(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = NULL;
  syncguard_lock_options silent = SYNCGUARD_LOCK_OPTIONS_INIT;
  silent.holder = "";
  EXPECT(OK, syncguard_lock(client, "alone", NUL, &silent, &held, &err));
  syncguard_page *page = (syncguard_page *)&page;
  syncguard_lock_info info;
  syncguard_lock_info_raw raw;
  EXPECT(IA, syncguard_client_list(client, NULL, 0, 10001, NULL, NULL, &page, &err));
  CHECK(page == NULL);
  EXPECT(IA, syncguard_client_list(client, NULL, 0, 0, "not a cursor", NULL, &page, &err));
  EXPECT(IA, syncguard_client_list(client, "a\0b", 3, 0, NULL, NULL, &page, &err));
  EXPECT(IA, syncguard_client_list(client, "\xff", 1, 0, NULL, NULL, &page, &err));
  EXPECT(IA, syncguard_client_list(client, "a", NUL, 0, NULL, NULL, NULL, &err));
  EXPECT(IA, syncguard_client_list(NULL, "a", NUL, 0, NULL, NULL, &page, &err));
  syncguard_cancel *cancel = syncguard_cancel_new();
  syncguard_cancel_trigger(cancel);
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_client_list(client, NULL, 0, 0, NULL, cancel, &page, &err));
  syncguard_cancel_free(cancel);
  /* On Redis a call examines what it comes to, so the lock may be on a later page. */
  EXPECT(OK, syncguard_client_list(client, "alone", NUL, 10000, NULL, NULL, &page, &err));
  while (syncguard_page_count(page) == 0) {
    CHECK(syncguard_page_next(page) != NULL);
    syncguard_page *next = NULL;
    EXPECT(OK, syncguard_client_list(client, "alone", NUL, 10000, syncguard_page_next(page), NULL, &next, &err));
    syncguard_page_free(page);
    page = next;
  }
  CHECK(syncguard_page_count(page) == 1 && syncguard_page_holder_text(page, 0) == NULL);
  EXPECT(OK, syncguard_page_info(page, 0, &info, &err));
  EXPECT(IA, syncguard_page_info(page, 1, &info, &err));
  EXPECT(IA, syncguard_page_info(page, SIZE_MAX, &info, &err));
  EXPECT(IA, syncguard_page_info(page, 0, NULL, &err));
  EXPECT(IA, syncguard_page_info(NULL, 0, &info, &err));
  EXPECT(IA, syncguard_page_info_raw(page, 1, &raw, &err));
  EXPECT(IA, syncguard_page_info_raw(page, 0, NULL, &err));
  EXPECT(IA, syncguard_page_info_raw(NULL, 0, &raw, &err));
  CHECK(syncguard_page_holder_text(page, 1) == NULL && syncguard_page_holder_text(NULL, 0) == NULL);
  CHECK(syncguard_page_count(NULL) == 0 && syncguard_page_next(NULL) == NULL);
  syncguard_page_free(page);
  syncguard_page_free(NULL);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

static void a_report(void) {
  syncguard_client *client = open_client();
  syncguard_report *report = NULL;
  syncguard_finding found;
  EXPECT(OK, syncguard_client_report(client, &report, &err));
  CHECK(syncguard_report_status(report) == OK && syncguard_report_level(report) < SYNCGUARD_CHECK_ERROR);
  size_t count = syncguard_report_count(report);
  CHECK(count >= 4);
  int32_t worst = SYNCGUARD_CHECK_OK;
  for (size_t i = 0; i < count; i++) {
    EXPECT(OK, syncguard_report_finding(report, i, &found, &err));
    CHECK(found.subject >= SYNCGUARD_CHECK_REACHABLE && found.subject <= SYNCGUARD_CHECK_EVICTING && strlen(found.text) > 3);
    worst = found.level > worst ? found.level : worst;
  }
  CHECK(worst == syncguard_report_level(report));
  EXPECT(OK, syncguard_report_finding(report, 0, &found, &err));
  CHECK(found.subject == SYNCGUARD_CHECK_REACHABLE && found.level == SYNCGUARD_CHECK_OK && found.advice == NULL);
  EXPECT(IA, syncguard_report_finding(report, count, &found, &err));
  EXPECT(IA, syncguard_report_finding(report, 0, NULL, &err));
  EXPECT(IA, syncguard_report_finding(NULL, 0, &found, &err));
  syncguard_report_free(report);
  report = (syncguard_report *)&report;
  EXPECT(IA, syncguard_client_report(NULL, &report, &err));
  CHECK(report == NULL);
  EXPECT(IA, syncguard_client_report(client, NULL, &err));
  CHECK(syncguard_report_status(NULL) == IA && syncguard_report_level(NULL) == SYNCGUARD_CHECK_ERROR);
  CHECK(syncguard_report_count(NULL) == 0);
  syncguard_report_free(NULL);
  syncguard_client_free(client);
}

/* Trouble of the store is a finding, with what to do. */
static void a_report_of_no_store(void) {
  syncguard_client *client = NULL;
  syncguard_report *report = NULL;
  syncguard_finding found;
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  options.connect_timeout_ms = 200;
  EXPECT(OK, syncguard_client_open("sqlite:/dev/null/locks.db", NUL, &options, &client, &err));
  EXPECT(OK, syncguard_client_report(client, &report, &err));
  CHECK(syncguard_report_level(report) == SYNCGUARD_CHECK_ERROR && syncguard_report_status(report) < 0);
  EXPECT(OK, syncguard_report_finding(report, syncguard_report_count(report) - 1, &found, &err));
  CHECK(found.level == SYNCGUARD_CHECK_ERROR && found.advice != NULL && strlen(found.advice) > 3);
  syncguard_report_free(report);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(every_lock_is_on_a_page);
  RUN(bad_lists);
  RUN(a_report);
  RUN(a_report_of_no_store);
  return 0;
}

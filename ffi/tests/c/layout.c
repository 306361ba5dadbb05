/* Prints the layout of every struct of the header, one line each, for comparison with the committed one. */
#include <stdio.h>
#include <stddef.h>
#include <syncguard.h>

#define S(t) printf("%s %zu\n", #t, sizeof(t))
#define F(t, f) printf("  %s %zu %zu\n", #f, offsetof(t, f), sizeof(((t *)0)->f))

static void options(void) {
  S(syncguard_status);
  S(syncguard_client_options);
  F(syncguard_client_options, struct_size);
  F(syncguard_client_options, key_prefix);
  F(syncguard_client_options, schema);
  F(syncguard_client_options, table_name);
  F(syncguard_client_options, fence_table_name);
  F(syncguard_client_options, tls_ca_file);
  F(syncguard_client_options, pool_size);
  F(syncguard_client_options, connect_timeout_ms);
  F(syncguard_client_options, operation_timeout_ms);
  F(syncguard_client_options, dispose_timeout_ms);
  F(syncguard_client_options, cleanup_in_is_locked);
  F(syncguard_client_options, events_include_raw);
  F(syncguard_client_options, on_release_error);
  F(syncguard_client_options, on_event);
  F(syncguard_client_options, on_warning);
  F(syncguard_client_options, user_data);
  F(syncguard_client_options, user_data_free);
  F(syncguard_client_options, on_lost);
  F(syncguard_client_options, fences);
  F(syncguard_client_options, tls_client_cert_file);
  F(syncguard_client_options, tls_client_key_file);
  F(syncguard_client_options, password);
  F(syncguard_client_options, connector);
  S(syncguard_lock_options);
  F(syncguard_lock_options, struct_size);
  F(syncguard_lock_options, ttl_ms);
  F(syncguard_lock_options, acquire_timeout_ms);
  F(syncguard_lock_options, heartbeat_ms);
  F(syncguard_lock_options, max_hold_ms);
  F(syncguard_lock_options, max_retries);
  F(syncguard_lock_options, retry_delay_ms);
  F(syncguard_lock_options, backoff);
  F(syncguard_lock_options, jitter);
  F(syncguard_lock_options, cancel);
  F(syncguard_lock_options, on_lost);
  F(syncguard_lock_options, on_release_error);
  F(syncguard_lock_options, user_data);
  F(syncguard_lock_options, user_data_free);
  F(syncguard_lock_options, holder);
  F(syncguard_lock_options, dispose_timeout_ms);
}

static void answers(void) {
  S(syncguard_acquired);
  F(syncguard_acquired, lock_id);
  F(syncguard_acquired, fence);
  F(syncguard_acquired, expires_at_ms);
  S(syncguard_lock_info);
  F(syncguard_lock_info, key_hash);
  F(syncguard_lock_info, lock_id_hash);
  F(syncguard_lock_info, fence);
  F(syncguard_lock_info, expires_at_ms);
  F(syncguard_lock_info, acquired_at_ms);
  S(syncguard_lock_info_raw);
  F(syncguard_lock_info_raw, info);
  F(syncguard_lock_info_raw, key);
  F(syncguard_lock_info_raw, lock_id);
  S(syncguard_holder);
  F(syncguard_holder, lock_id_hash);
  F(syncguard_holder, fence);
  F(syncguard_holder, fence_number);
  F(syncguard_holder, remaining_ms);
  S(syncguard_event);
  F(syncguard_event, struct_size);
  F(syncguard_event, type);
  F(syncguard_event, ok);
  F(syncguard_event, reason);
  F(syncguard_event, key_hash);
  F(syncguard_event, lock_id_hash);
  F(syncguard_event, key);
  F(syncguard_event, lock_id);
  F(syncguard_event, duration_us);
  F(syncguard_event, reason_number);
  F(syncguard_event, error_status);
  F(syncguard_event, loss_reason);
  F(syncguard_event, attempts);
  F(syncguard_event, backend);
  F(syncguard_event, fence);
  F(syncguard_event, waited_us);
  F(syncguard_event, held_us);
  F(syncguard_event, holder);
  S(syncguard_lost_lock);
  F(syncguard_lost_lock, struct_size);
  F(syncguard_lost_lock, why);
  F(syncguard_lost_lock, key);
  F(syncguard_lost_lock, lock_id);
  F(syncguard_lost_lock, fence);
  F(syncguard_lost_lock, held_us);
  S(syncguard_finding);
  F(syncguard_finding, subject);
  F(syncguard_finding, level);
  F(syncguard_finding, text);
  F(syncguard_finding, advice);
}

int main(void) {
  options();
  answers();
  return 0;
}

// The names of UCX's functions that this backend calls; it finds them at run time.
#ifndef COTUNE_PLUGINS_UCX_UCX_FUNCTIONS_H_
#define COTUNE_PLUGINS_UCX_UCX_FUNCTIONS_H_

// Those of libucp beside ucp_get_version, by which the others are known; all of them are in 1.13.
#define COTUNE_UCP_FUNCTIONS(X) \
  X(ucp_config_read)            \
  X(ucp_config_modify)          \
  X(ucp_config_print)           \
  X(ucp_config_release)         \
  X(ucp_init_version)           \
  X(ucp_cleanup)                \
  X(ucp_context_query)          \
  X(ucp_worker_create)          \
  X(ucp_worker_destroy)         \
  X(ucp_worker_get_address)     \
  X(ucp_worker_release_address) \
  X(ucp_worker_progress)        \
  X(ucp_worker_flush_nbx)       \
  X(ucp_ep_create)              \
  X(ucp_ep_close_nbx)           \
  X(ucp_ep_flush_nbx)           \
  X(ucp_ep_print_info)          \
  X(ucp_tag_send_nbx)           \
  X(ucp_tag_send_sync_nbx)      \
  X(ucp_tag_recv_nbx)           \
  X(ucp_tag_probe_nb)           \
  X(ucp_tag_msg_recv_nbx)       \
  X(ucp_request_cancel)         \
  X(ucp_request_check_status)   \
  X(ucp_request_free)
// Those of libucs.
#define COTUNE_UCS_FUNCTIONS(X) \
  X(ucs_status_string)          \
  X(ucs_debug_disable_signals)

#endif  // COTUNE_PLUGINS_UCX_UCX_FUNCTIONS_H_

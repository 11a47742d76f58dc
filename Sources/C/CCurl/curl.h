#include <curl/curl.h>

#if LIBCURL_VERSION_NUM < 0x075700
#error "libcurl 7.87 or newer is needed (CURLOPT_QUICK_EXIT)"
#endif

// Swift cannot call a variadic function: one wrapper for each type of argument.

static inline CURLcode curl_easy_set_long(CURL *easy, CURLoption option, long value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode curl_easy_set_string(CURL *easy, CURLoption option, const char *value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode curl_easy_set_pointer(CURL *easy, CURLoption option, void *value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode curl_easy_set_receiver(CURL *easy, CURLoption option, curl_write_callback value) {
  return curl_easy_setopt(easy, option, value);
}

static inline CURLcode curl_easy_set_progress(CURL *easy, curl_xferinfo_callback value) {
  return curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, value);
}

#if !defined(SO_PASSRIGHTS)
#define SO_PASSRIGHTS 83
#endif

// As libcurl does, with a socket over which no descriptors come, from Linux 6.16 on. In C, because Swift finds the constants of
// sockets in one of the modules that have them only.
static inline curl_socket_t open_without_descriptors(
    void *context, curlsocktype purpose, struct curl_sockaddr *address) {
  (void)context, (void)purpose;
  int off = 0;
  curl_socket_t result = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (result >= 0) setsockopt(result, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off);
  return result;
}

static inline CURLcode curl_easy_refuse_descriptors(CURL *easy) {
  return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_without_descriptors);
}

// The context of `open` is CURLOPT_OPENSOCKETDATA. It may change the address.
static inline CURLcode curl_easy_set_opener(CURL *easy, curl_opensocket_callback open) {
  return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open);
}

static inline CURLcode curl_easy_set_closer(CURL *easy, curl_closesocket_callback value) {
  return curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, value);
}

static inline CURLcode curl_easy_get_long(CURL *easy, CURLINFO info, long *value) {
  return curl_easy_getinfo(easy, info, value);
}

static inline CURLcode curl_easy_get_offset(CURL *easy, CURLINFO info, curl_off_t *value) {
  return curl_easy_getinfo(easy, info, value);
}

static inline CURLcode curl_easy_get_socket(CURL *easy, curl_socket_t *value) {
  return curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, value);
}

static inline CURLcode curl_easy_get_list(CURL *easy, CURLINFO info, struct curl_slist **value) {
  return curl_easy_getinfo(easy, info, value);
}

static inline CURLMcode curl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
  return curl_multi_setopt(multi, option, value);
}

static inline CURLMcode curl_multi_set_pointer(CURLM *multi, CURLMoption option, void *value) {
  return curl_multi_setopt(multi, option, value);
}

static inline CURLMcode curl_multi_set_socket_callback(CURLM *multi, curl_socket_callback value) {
  return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, value);
}

static inline CURLMcode curl_multi_set_timer_callback(CURLM *multi, curl_multi_timer_callback value) {
  return curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, value);
}

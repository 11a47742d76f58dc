#include "nats-client.h"

#include <dlfcn.h>
#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(f) \
  f(nats_GetLastError) f(nats_GetVersionNumber) f(nats_Open) f(nats_ReleaseThreadMemory) f(nats_Sign) \
  f(natsConnection_Connect) f(natsConnection_Destroy) f(natsConnection_GetLastError) \
  f(natsConnection_GetMaxPayload) f(natsConnection_Publish) f(natsConnection_PublishMsg) \
  f(natsConnection_PublishRequest) f(natsConnection_QueueSubscribe) f(natsConnection_Subscribe) \
  f(natsMsg_Create) f(natsMsg_Destroy) f(natsMsg_GetData) f(natsMsg_GetDataLength) f(natsMsg_GetReply) \
  f(natsMsg_GetSubject) f(natsMsgHeader_Get) f(natsMsgHeader_Set) \
  f(natsOptions_Create) f(natsOptions_Destroy) f(natsOptions_LoadCATrustedCertificates) \
  f(natsOptions_LoadCertificatesChain) f(natsOptions_SetAllowReconnect) f(natsOptions_SetClosedCB) \
  f(natsOptions_SetErrorHandler) f(natsOptions_SetIgnoreDiscoveredServers) f(natsOptions_SetMaxPingsOut) \
  f(natsOptions_SetName) f(natsOptions_SetNKey) f(natsOptions_SetPingInterval) f(natsOptions_SetSecure) \
  f(natsOptions_SetSendAsap) f(natsOptions_SetServers) f(natsOptions_SetTimeout) f(natsOptions_SetToken) \
  f(natsOptions_SetUserCredentialsCallbacks) \
  f(natsOptions_SetUserInfo) f(natsOptions_SetWriteDeadline) f(natsOptions_UseGlobalMessageDelivery) \
  f(natsStatus_GetText) f(natsSubscription_Destroy) f(natsSubscription_SetPendingLimits)

/// The library's functions, with the types of its header.
struct functions {
#define MEMBER(name) __typeof__(&name) name;
  FUNCTIONS(MEMBER)
#undef MEMBER
};

static struct functions library;

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded;
/// Do not change once the library is loaded.
static nats_client_callbacks callbacks;

/// NULL, or the reason why this file is not the library.
static const char *load(const char *name) {
  static const char missing[] =
      "the NATS client library cannot be loaded: install libnats3.4, or a later version of libnats 3";
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return missing;
  struct functions found;
#define MEMBER(name) \
  if ((found.name = (__typeof__(found.name))dlsym(handle, #name)) == NULL) { \
    dlclose(handle); \
    return missing; \
  }
  FUNCTIONS(MEMBER)
#undef MEMBER
  const uint32_t version = found.nats_GetVersionNumber();
  if (version < 0x030400 || version >= 0x040000) {
    dlclose(handle);
    return "the NATS client library is of an unsupported version: install libnats3.4, or a later version of libnats 3";
  }
  if (found.nats_Open(-1) != NATS_OK) return "the NATS client library fails to start";  // its threads remain: so does it
  library = found;
  is_loaded = true;
  return NULL;
}

const char *nats_client_load(const char *name, nats_client_callbacks all_callbacks) {
  // A minor version is a library of its own name. The highest that exists is 3.13.
  enum { highest_minor = 30, lowest_minor = 4 };
  pthread_mutex_lock(&loading);
  const char *reason = NULL;
  if (!is_loaded) callbacks = all_callbacks;
  if (name != NULL) {
    reason = load(name);
  } else if (!is_loaded) {
    for (int minor = highest_minor; minor >= lowest_minor && !is_loaded; minor--) {
      char file[32];
      snprintf(file, sizeof file, "libnats.so.3.%d", minor);
      reason = load(file);
    }
    if (!is_loaded) reason = load("libnats.so");
  }
  pthread_mutex_unlock(&loading);
  return reason;
}

void nats_client_leave_thread(void) { library.nats_ReleaseThreadMemory(); }

// MARK: Attempts

struct nats_attempt {
  natsOptions *options;
  natsStatus status;
  const char **servers;
  int server_count;
  char *token;  // of a user, or NULL
  char *seed;
};

struct nats_link {
  natsConnection *connection;
};

static void *pointer(uint64_t number) { return (void *)(uintptr_t)number; }
static uint64_t number(void *pointer) { return (uint64_t)(uintptr_t)pointer; }

static void closed(natsConnection *connection, void *closure) {
  const char *text = NULL;
  const natsStatus status = library.natsConnection_GetLastError(connection, &text);
  if (text == NULL || *text == '\0') text = library.natsStatus_GetText(status == NATS_OK ? NATS_CONNECTION_CLOSED : status);
  callbacks.failed(number(closure), text);
}

static void failed(natsConnection *connection, natsSubscription *subscription, natsStatus status, void *closure) {
  (void)subscription;
  if (status == NATS_SLOW_CONSUMER) callbacks.dropped(number(closure));
  if (status == NATS_NOT_PERMITTED) closed(connection, closure);
}

static void received(natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *closure) {
  (void)connection;
  (void)subscription;
  const char *status = NULL, *sequence = NULL;
  if (library.natsMsgHeader_Get(message, "Status", &status) != NATS_OK) status = NULL;
  if (library.natsMsgHeader_Get(message, "Nats-Sequence", &sequence) != NATS_OK) sequence = NULL;
  const int count = library.natsMsg_GetDataLength(message);
  callbacks.received(number(closure), library.natsMsg_GetSubject(message), library.natsMsg_GetReply(message),
                             status, sequence, library.natsMsg_GetData(message), count > 0 ? (size_t)count : 0);
  library.natsMsg_Destroy(message);
}

nats_attempt *nats_attempt_begin(uint64_t link, int64_t timeout, int64_t ping_interval) {
  nats_attempt *attempt = calloc(1, sizeof *attempt);
  if (attempt == NULL) return NULL;
  natsStatus status = library.natsOptions_Create(&attempt->options);
  natsOptions *options = attempt->options;
  if (status == NATS_OK) status = library.natsOptions_SetAllowReconnect(options, false);
  if (status == NATS_OK) status = library.natsOptions_SetIgnoreDiscoveredServers(options, true);
  if (status == NATS_OK) status = library.natsOptions_SetName(options, "streamd");
  if (status == NATS_OK) status = library.natsOptions_SetTimeout(options, timeout);
  if (status == NATS_OK) status = library.natsOptions_SetWriteDeadline(options, timeout);
  if (status == NATS_OK) status = library.natsOptions_SetPingInterval(options, ping_interval);
  if (status == NATS_OK) status = library.natsOptions_SetMaxPingsOut(options, 2);
  if (status == NATS_OK) status = library.natsOptions_SetSendAsap(options, true);
  if (status == NATS_OK) status = library.natsOptions_UseGlobalMessageDelivery(options, true);
  if (status == NATS_OK) status = library.natsOptions_SetClosedCB(options, closed, pointer(link));
  if (status == NATS_OK) status = library.natsOptions_SetErrorHandler(options, failed, pointer(link));
  attempt->status = status;
  return attempt;
}

void nats_attempt_add_server(nats_attempt *attempt, const char *url) {
  const char **servers = realloc(attempt->servers, (size_t)(attempt->server_count + 1) * sizeof *servers);
  if (servers != NULL) attempt->servers = servers;
  char *copy = servers != NULL ? strdup(url) : NULL;
  if (copy == NULL) {
    attempt->status = NATS_NO_MEMORY;
  } else {
    servers[attempt->server_count++] = copy;
  }
}

void nats_attempt_use_tls(nats_attempt *attempt) {
  if (attempt->status == NATS_OK) attempt->status = library.natsOptions_SetSecure(attempt->options, true);
}

void nats_attempt_trust(nats_attempt *attempt, const char *file) {
  if (attempt->status == NATS_OK) {
    attempt->status = library.natsOptions_LoadCATrustedCertificates(attempt->options, file);
  }
}

void nats_attempt_use_certificate(nats_attempt *attempt, const char *certificate, const char *key) {
  if (attempt->status == NATS_OK) {
    attempt->status = library.natsOptions_LoadCertificatesChain(attempt->options, certificate, key);
  }
}

void nats_attempt_use_password(nats_attempt *attempt, const char *user, const char *password) {
  if (attempt->status == NATS_OK) attempt->status = library.natsOptions_SetUserInfo(attempt->options, user, password);
}

void nats_attempt_use_token(nats_attempt *attempt, const char *token) {
  if (attempt->status == NATS_OK) attempt->status = library.natsOptions_SetToken(attempt->options, token);
}

/// Called while connecting only.
static natsStatus user_token(char **token, char **error, void *closure) {
  (void)error;
  const nats_attempt *attempt = closure;
  *token = strdup(attempt->token);
  return *token != NULL ? NATS_OK : NATS_NO_MEMORY;
}

static natsStatus sign(char **error, unsigned char **signature, int *size, const char *nonce, void *closure) {
  (void)error;
  const nats_attempt *attempt = closure;
  return library.nats_Sign(attempt->seed, nonce, signature, size);
}

void nats_attempt_use_nkey(nats_attempt *attempt, const char *key, const char *seed) {
  attempt->seed = strdup(seed);
  if (attempt->seed == NULL) attempt->status = NATS_NO_MEMORY;
  if (attempt->status == NATS_OK) attempt->status = library.natsOptions_SetNKey(attempt->options, key, sign, attempt);
}

/// A copy of the line after the one that begins with dashes and contains `title`; NULL without one.
static char *section(const char *content, const char *title) {
  while (*content != '\0') {
    const size_t length = strcspn(content, "\r\n");
    const char *next = content + length + strspn(content + length, "\r\n");
    const char *found = strncmp(content, "---", 3) == 0 ? strstr(content, title) : NULL;
    if (found != NULL && found < content + length) {
      const size_t count = strcspn(next, "\r\n");
      return count > 0 ? strndup(next, count) : NULL;
    }
    content = next;
  }
  return NULL;
}

void nats_attempt_use_credentials(nats_attempt *attempt, const char *content) {
  attempt->token = section(content, "BEGIN NATS USER JWT");
  attempt->seed = section(content, "BEGIN USER NKEY SEED");
  if (attempt->token == NULL || attempt->seed == NULL) attempt->status = NATS_NOT_FOUND;
  if (attempt->status == NATS_OK) {
    attempt->status =
        library.natsOptions_SetUserCredentialsCallbacks(attempt->options, user_token, attempt, sign, attempt);
  }
}

static void erase(char *secret) {
  if (secret != NULL) explicit_bzero(secret, strlen(secret));
  free(secret);
}

nats_link *nats_attempt_connect(nats_attempt *attempt, char *reason, size_t reason_size) {
  nats_link *link = calloc(1, sizeof *link);
  natsStatus status = link == NULL ? NATS_NO_MEMORY : attempt->status;
  if (status == NATS_OK) {
    status = library.natsOptions_SetServers(attempt->options, attempt->servers, attempt->server_count);
  }
  if (status == NATS_OK) status = library.natsConnection_Connect(&link->connection, attempt->options);
  if (status != NATS_OK) {
    natsStatus detailed = NATS_OK;
    const char *detail = library.nats_GetLastError(&detailed);
    if (detailed != status || detail == NULL || *detail == '\0') detail = library.natsStatus_GetText(status);
    // "(file.c:123): " of the library's source.
    const char *end = *detail == '(' ? strstr(detail, "): ") : NULL;
    snprintf(reason, reason_size, "%s", end != NULL ? end + 3 : detail);
    free(link);
    link = NULL;
  }
  library.natsOptions_Destroy(attempt->options);
  for (int index = 0; index < attempt->server_count; index++) free((void *)attempt->servers[index]);
  free(attempt->servers);
  erase(attempt->token);
  erase(attempt->seed);
  free(attempt);
  return link;
}

// MARK: Links

void nats_link_close(nats_link *link) {
  library.natsConnection_Destroy(link->connection);
  free(link);
}

int64_t nats_link_maximum_message(nats_link *link) { return library.natsConnection_GetMaxPayload(link->connection); }

bool nats_link_publish(nats_link *link, const char *subject, const char *reply, const char *header, const char *value,
                       const void *bytes, size_t count) {
  if (count > INT32_MAX) return false;
  if (header == NULL) {
    return (reply == NULL ? library.natsConnection_Publish(link->connection, subject, bytes, (int)count)
                          : library.natsConnection_PublishRequest(link->connection, subject, reply, bytes, (int)count))
           == NATS_OK;
  }
  natsMsg *message = NULL;
  natsStatus status = library.natsMsg_Create(&message, subject, reply, bytes, (int)count);
  if (status == NATS_OK) status = library.natsMsgHeader_Set(message, header, value);
  if (status == NATS_OK) status = library.natsConnection_PublishMsg(link->connection, message);
  library.natsMsg_Destroy(message);
  return status == NATS_OK;
}

nats_subscription *nats_link_subscribe(nats_link *link, const char *subject, const char *group, uint64_t number,
                                       int count_limit, int byte_limit) {
  natsSubscription *subscription = NULL;
  const natsStatus status =
      group == NULL
          ? library.natsConnection_Subscribe(&subscription, link->connection, subject, received, pointer(number))
          : library.natsConnection_QueueSubscribe(&subscription, link->connection, subject, group, received,
                                                  pointer(number));
  if (status != NATS_OK) return NULL;
  library.natsSubscription_SetPendingLimits(subscription, count_limit, byte_limit);
  return (nats_subscription *)subscription;
}

void nats_subscription_end(nats_subscription *subscription) {
  library.natsSubscription_Destroy((natsSubscription *)subscription);
}

#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// The NATS client library (libnats), loaded when it is first used: a program that never connects to NATS neither needs
/// nor loads it, and one build works with every later version. No structure of the library is accessed, only pointers to
/// them, so that the functions' signatures are all that must remain: within a major version they do.
///
/// Functions that take an attempt or a link may block, and must not be called on an event loop that serves anything else.
/// Those for one link must not be called concurrently.

/// Called on threads of the library, also after `nats_link_close`: therefore with numbers instead of pointers.
typedef struct {
  /// A message has arrived. All pointers are valid during the call only.
  /// - Parameters:
  ///   - subscription: the number given to `nats_link_subscribe`.
  ///   - reply: NULL if no answer is expected.
  ///   - status: the header "Status"; NULL without one.
  ///   - sequence: the header "Nats-Sequence"; NULL without one.
  void (*received)(uint64_t subscription, const char *subject, const char *reply, const char *status,
                   const char *sequence, const void *bytes, size_t count);
  /// Messages of a subscription were dropped, because too many wait for `received`.
  void (*dropped)(uint64_t link);
  /// The connection is closed, or not usable because of a missing permission.
  /// - Parameter reason: may contain text of the server.
  void (*failed)(uint64_t link, const char *reason);
} nats_client_callbacks;

/// Loads the library, unless it is loaded.
///
/// - Parameters:
///   - name: for tests, the library's file; NULL: every version that is accepted, the newest first.
///   - callbacks: always the same.
/// - Returns: NULL, or the reason why it cannot be used: static text, a sentence without its full stop.
const char *nats_client_load(const char *name, nats_client_callbacks callbacks);

/// An attempt to connect, and its options. An option that the library rejects makes it fail.
typedef struct nats_attempt nats_attempt;

/// - Parameters:
///   - link: a number for the callbacks.
///   - timeout: in milliseconds: for the connection to one server, and for writing a message to the socket.
///   - ping_interval: in milliseconds: a connection with two unanswered pings is closed.
/// - Returns: NULL without memory. Ends with `nats_attempt_connect`. Requires `nats_client_load`.
nats_attempt *nats_attempt_begin(uint64_t link, int64_t timeout, int64_t ping_interval);
/// - Parameter url: nats:// or tls://, host and port.
void nats_attempt_add_server(nats_attempt *attempt, const char *url);
void nats_attempt_use_tls(nats_attempt *attempt);
/// - Parameter file: of trusted authorities, PEM.
void nats_attempt_trust(nats_attempt *attempt, const char *file);
/// Files of the client's certificate chain and its key, PEM.
void nats_attempt_use_certificate(nats_attempt *attempt, const char *certificate, const char *key);
void nats_attempt_use_password(nats_attempt *attempt, const char *user, const char *password);
void nats_attempt_use_token(nats_attempt *attempt, const char *token);
/// - Parameters:
///   - key: the public key, "U…".
///   - seed: "SU…".
void nats_attempt_use_nkey(nats_attempt *attempt, const char *key, const char *seed);
/// - Parameter content: of a credentials file: a user's JWT and the seed of its key.
void nats_attempt_use_credentials(nats_attempt *attempt, const char *content);

/// A connection.
typedef struct nats_link nats_link;

/// Connects to the first server that accepts, in random order, and frees the attempt.
///
/// - Parameters:
///   - reason: receives the reason of a failure, which may contain text of the server.
/// - Returns: NULL after a failure. Ends with `nats_link_close`.
nats_link *nats_attempt_connect(nats_attempt *attempt, char *reason, size_t reason_size);
void nats_link_close(nats_link *link);
/// Frees what the library keeps for the calling thread. For a thread that ends.
void nats_client_leave_thread(void);

/// The size of the largest message that the server accepts, in bytes.
int64_t nats_link_maximum_message(nats_link *link);

/// - Parameters:
///   - reply: NULL: no answer is expected.
///   - header: the name of a header; NULL: none.
/// - Returns: whether it was written to the socket, or soon will be.
bool nats_link_publish(nats_link *link, const char *subject, const char *reply, const char *header, const char *value,
                       const void *bytes, size_t count);

typedef struct nats_subscription nats_subscription;

/// - Parameters:
///   - group: NULL: every subscriber receives each message, otherwise one of the group.
///   - number: for the callback.
///   - count_limit, byte_limit: of messages that wait for the callback.
/// - Returns: NULL after a failure. Ends with `nats_subscription_end`, before the link does.
nats_subscription *nats_link_subscribe(nats_link *link, const char *subject, const char *group, uint64_t number,
                                       int count_limit, int byte_limit);
void nats_subscription_end(nats_subscription *subscription);

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdint.h>

#if OPENSSL_VERSION_NUMBER < 0x30000000L
#error "OpenSSL 3.0 or newer is needed"
#endif

// Swift cannot call OpenSSL's macros.

static inline int tls_no_password(char *buffer, int size, int is_writing, void *closure) {
  (void)buffer, (void)size, (void)is_writing, (void)closure;
  return 0;
}

/// A client's context, which accepts servers with a valid certificate only, and never asks for a passphrase at a terminal.
static inline SSL_CTX *tls_new_context(void) {
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  if (context == NULL) return NULL;
  SSL_CTX_set_default_passwd_cb(context, tls_no_password);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1) return context;
  SSL_CTX_free(context);
  return NULL;
}

/// Requires a certificate for this name, or for this address, and tells the server which name is meant.
static inline bool tls_expect_host(SSL *session, const char *host) {
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host) == 1) return true;
  ERR_clear_error();
  SSL_set_hostflags(session, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set1_host(session, host) == 1 && SSL_set_tlsext_host_name(session, host) == 1;
}

/// Signs a message with Ed25519.
/// - Parameters:
///   - seed: the private key, 32 bytes.
///   - signature: receives 64 bytes.
static inline bool tls_sign(const uint8_t *seed, const uint8_t *message, size_t count, uint8_t *signature) {
  EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  size_t signature_count = 64;
  const bool is_signed = key != NULL && context != NULL && EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
                         EVP_DigestSign(context, signature, &signature_count, message, count) == 1 && signature_count == 64;
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  return is_signed;
}

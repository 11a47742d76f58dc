/* Where the daemon listens. A host is looked up once, in sdm_connect(), because a look-up blocks. */
#include "internal.h"

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

static int find_path(sdm *c, const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path[0] != '/' || strlen(path) >= sizeof address.sun_path) return -EINVAL;
  strcpy(address.sun_path, path);
  memcpy(&c->addresses[0], &address, sizeof address);
  c->address_size[0] = sizeof address;
  c->address_count = 1;
  return 0;
}

/* Divides host:port or [address]:port. */
static int divide(const char *text, char host[256], char port[6]) {
  const char *colon = strrchr(text, ':');
  if (!colon || colon == text) return -EINVAL;
  const char *start = text, *end = colon;
  if (*start == '[') {
    if (end[-1] != ']') return -EINVAL;
    start++;
    end--;
  } else if (memchr(start, ':', (size_t)(end - start))) {
    return -EINVAL;
  }
  size_t size = (size_t)(end - start), digits = strlen(colon + 1);
  if (size == 0 || size >= 256 || digits == 0 || digits > 5 || strspn(colon + 1, "0123456789") != digits) return -EINVAL;
  long number = strtol(colon + 1, NULL, 10);
  if (number < 1 || number > 65535) return -EINVAL;
  memcpy(host, start, size);
  host[size] = 0;
  static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  if (*text == '[' ? !strchr(host, ':') : strspn(host, name) != size) return -EINVAL;
  snprintf(port, 6, "%ld", number);
  return 0;
}

static int find_host(sdm *c, const char *text) {
  char host[256], port[6];
  int result = divide(text, host, port);
  if (result < 0) return result;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
  result = getaddrinfo(host, port, &hints, &found);
  if (result == EAI_MEMORY) return -ENOMEM;
  if (result != 0) return -EHOSTUNREACH;
  for (struct addrinfo *a = found; a && c->address_count < ADDRESSES; a = a->ai_next) {
    if (a->ai_addrlen > sizeof c->addresses[0]) continue;
    memcpy(&c->addresses[c->address_count], a->ai_addr, a->ai_addrlen);
    c->address_size[c->address_count++] = a->ai_addrlen;
  }
  freeaddrinfo(found);
  return c->address_count ? 0 : -EHOSTUNREACH;
}

int address_find(sdm *c, const char *text) {
  if (!text) text = getenv("STREAMD_SOCKET");
  else if (!*text) return -EINVAL;
  if (!text || !*text) text = "/run/streamd/streamd.sock";
  if (strncmp(text, "unix:", 5) == 0) return find_path(c, text + 5);
  if (*text == '/') return find_path(c, text);
  return find_host(c, strncmp(text, "tcp:", 4) == 0 ? text + 4 : text);
}
